package kernel

import "encoding/binary"

// The K formats hold 256 elements: two halves of 128. A scale covers 16 elements (Q2_K, Q3_K, Q6_K) or 32 (the others).

// double spreads scale j of 32 elements over its two runs of 16.
func (s *superScale) double(j int, v int16) { s.scales[2*j], s.scales[2*j+1] = v, v }

// scalesK4 reads the eight 6-bit scales and minima of Q4_K and Q5_K from 12 bytes: the first four lie in the low six bits
// of bytes 0-3 and 4-7; of the others the low four bits are in bytes 8-11, the upper two on top of the first eight bytes.
func scalesK4(s *superScale, q []byte) {
	q = q[:12]
	for j := range 4 {
		s.double(j, int16(q[j]&63))
		s.double(j+4, int16(q[j+8]&15|q[j]>>6<<4))
		s.mins[j], s.mins[j+4] = int16(q[j+4]&63), int16(q[j+8]>>4|q[j+4]>>6<<4)
	}
}

func unpackQ2_K(r *rowCodes, src []byte) {
	for b := range r.super {
		block, codes := src[b*84:][:84], r.codes[b*256:][:256]
		scale := &r.super[b]
		for j, s := range block[:16] {
			scale.scales[j], scale.mins[j] = int16(s&15), int16(s>>4)
		}
		scale.d, scale.m = half(block[80:]), half(block[82:])
		for h := range 2 {
			for l, q := range block[16+32*h:][:32] {
				c := codes[128*h+l:]
				c[0], c[32], c[64], c[96] = int8(q&3), int8(q>>2&3), int8(q>>4&3), int8(q>>6)
			}
		}
	}
}

func unpackQ3_K(r *rowCodes, src []byte) {
	for b := range r.super {
		block, codes := src[b*110:][:110], r.codes[b*256:][:256]
		scalesQ3(&r.super[b], block[96:])
		r.super[b].d = half(block[108:])
		high := block[:32]
		for h := range 2 {
			for l, q := range block[32+32*h:][:32] {
				c, m := codes[128*h+l:], high[l]>>(4*h)
				c[0] = int8(q&3|m&1<<2) - 4
				c[32] = int8(q>>2&3|m>>1&1<<2) - 4
				c[64] = int8(q>>4&3|m>>2&1<<2) - 4
				c[96] = int8(q>>6|m>>3&1<<2) - 4
			}
		}
	}
}

// scalesQ3 reads the sixteen signed 6-bit scales of Q3_K: low four bits in bytes 0-7 (low halves first), upper two in 8-11.
func scalesQ3(s *superScale, q []byte) {
	q = q[:12]
	for j := range 16 {
		low := q[j&7] >> (j >> 3 * 4) & 15
		up := q[8+j&3] >> (j >> 2 * 2) & 3
		s.scales[j] = int16(low|up<<4) - 32
	}
}

func unpackQ4_K(r *rowCodes, src []byte) {
	for b := range r.super {
		block, codes := src[b*144:][:144], r.codes[b*256:][:256]
		scale := &r.super[b]
		scale.d, scale.m = half(block), half(block[2:])
		scalesK4(scale, block[4:])
		for j := range 4 {
			for l, q := range block[16+32*j:][:32] {
				c := codes[64*j+l:]
				c[0], c[32] = int8(q&15), int8(q>>4)
			}
		}
	}
}

func unpackQ5_K(r *rowCodes, src []byte) {
	for b := range r.super {
		block, codes := src[b*176:][:176], r.codes[b*256:][:256]
		scale := &r.super[b]
		scale.d, scale.m = half(block), half(block[2:])
		scalesK4(scale, block[4:])
		high := block[16:48]
		for j := range 4 {
			for l, q := range block[48+32*j:][:32] {
				c, m := codes[64*j+l:], high[l]>>(2*j)
				c[0], c[32] = int8(q&15|m&1<<4), int8(q>>4|m>>1&1<<4)
			}
		}
	}
}

func unpackQ6_K(r *rowCodes, src []byte) {
	for b := range r.super {
		block, codes := src[b*210:][:210], r.codes[b*256:][:256]
		for j, s := range block[192:208] {
			r.super[b].scales[j] = int16(int8(s))
		}
		r.super[b].d = half(block[208:])
		for h := range 2 {
			low, high := block[64*h:][:64], block[128+32*h:][:32]
			for l, m := range high {
				c := codes[128*h+l:]
				c[0] = int8(low[l]&15|m&3<<4) - 32
				c[32] = int8(low[l+32]&15|m>>2&3<<4) - 32
				c[64] = int8(low[l]>>4|m>>4&3<<4) - 32
				c[96] = int8(low[l+32]>>4|m>>6<<4) - 32
			}
		}
	}
}

func unpackIQ4_XS(r *rowCodes, src []byte) {
	for b := range r.super {
		block, codes := src[b*136:][:136], r.codes[b*256:][:256]
		r.super[b].d = half(block)
		high := binary.LittleEndian.Uint16(block[2:])
		for j := range 8 {
			low := block[4+j/2] >> (j & 1 * 4) & 15
			r.super[b].double(j, int16(low|byte(high>>(2*j)&3<<4))-32)
			c := codes[32*j:][:32]
			nibbles(c, block[8+16*j:])
			for i, v := range c {
				c[i] = iq4Values[v]
			}
		}
	}
}
