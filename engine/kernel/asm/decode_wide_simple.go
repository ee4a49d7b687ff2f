package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The simple formats take two blocks of eight rows at a time: the lower half of a vector of codes is the first block, the
// upper half the second. Results lie in the order of pairedOrder.
type widePairs struct {
	*wideDecoder
	upper  reg.Register // mask of the upper half, in lanes
	raised bool         // codes are signed and raised by 128 to be the unsigned operand
}

func (p *widePairs) kernel() {
	begin("dotEights"+p.name+"AVX512", "func(dst *float32, w *byte, stride int, eights int, x *int8, side *byte, blocks int)",
		"dst[r] = product of quantised activations with row r of eight times eights, stride bytes apart; eights > 0, blocks > 0 and even.")
	dst, from, stride, eights := arg("dst"), arg("w"), arg("stride"), arg("eights")
	half := GP32()
	MOVL(U32(0xff00), half)
	p.upper = K()
	KMOVW(half, p.upper)
	switch p.name {
	case "Q8_0":
		p.mask(0x80)
	case "Q5_0", "Q5_1":
		p.mask(16)
		fallthrough
	default:
		p.mask(15)
		p.lowHigh()
	}
	if p.name == "IQ4_NL" {
		p.raisedIQ4()
	}
	p.eachEight(dst, from, stride, eights, 2, 64, 2*blockSideBytes, p.blocks)
	end()
}

// blocks adds the products of two blocks of eight rows to total.
func (p *widePairs) blocks(x, side reg.GPVirtual, total reg.VecVirtual) {
	xs := ZMM()
	VMOVDQU32(Mem{Base: x}, xs)
	row := func(r int) reg.VecVirtual {
		out, codes := ZMM(), p.pairCodes(r)
		zero(out)
		dpbusd(xs, codes, out)
		return out
	}
	four := func(r int) reg.VecVirtual {
		return addPairs(addPairs(row(r), row(r+1)), addPairs(row(r+2), row(r+3)))
	}
	a, b := four(0), four(4)
	sums, odd := ZMM(), ZMM()
	VSHUFI32X4(Imm(0x88), b, a, sums)
	VSHUFI32X4(Imm(0xdd), b, a, odd)
	VPADDD(odd, sums, sums)
	records := ZMM() // of both blocks, twice
	VBROADCASTI64X4(Mem{Base: side}, records)
	field := func(off int) reg.VecVirtual {
		v := ZMM()
		VPSHUFD(Imm(uint64(off/4*0x55)), records, v)
		return v
	}
	switch {
	case p.raised:
		VPADDD(field(blockSideBias), sums, sums)
	case p.offset > 0:
		correct := field(blockSideSum)
		VPSLLD(Imm(uint64(bits.TrailingZeros8(p.offset))), correct, correct)
		VPSUBD(correct, sums, sums)
	}
	scale, minimum := p.pairScales()
	VCVTDQ2PS(sums, sums)
	VMULPS(field(blockSideD), scale, scale)
	VMULPS(scale, sums, sums)
	if !p.minima {
		p.addBoth(total, sums, nil)
		return
	}
	VMULPS(field(blockSideS), minimum, minimum)
	p.addBoth(total, sums, minimum)
}

// addBoth adds, for one block after the other, the products and then the minima.
func (p *widePairs) addBoth(total, products, minima reg.VecVirtual) {
	parts := [][2]reg.VecVirtual{}
	for _, v := range []reg.VecVirtual{products, minima} {
		if v != nil {
			ordered, upper := ZMM(), YMM()
			VSHUFF32X4(Imm(0xd8), v, v, ordered)
			VEXTRACTF64X4(Imm(1), ordered, upper)
			parts = append(parts, [2]reg.VecVirtual{ordered, upper})
		}
	}
	for block := range 2 {
		for _, v := range parts {
			VADDPS(v[block].AsY(), total, total)
		}
	}
}

// pairScales widens d, and m, of both blocks of eight rows: rows 0 to 3 of the first block, of the second, then rows 4 to 7.
func (p *widePairs) pairScales() (scale, minimum reg.VecVirtual) {
	scale = ZMM()
	if !p.minima {
		parts := [2]reg.VecVirtual{YMM(), YMM()}
		for i, v := range parts {
			VPBROADCASTD(p.rows.at(4*i, 0), v)
			for at := 1; at < 8; at++ {
				VPINSRW(Imm(uint64(at)), p.rows.at(4*i+at%4, at/4*p.bytes), v.AsX(), v.AsX())
			}
		}
		VINSERTI32X4(Imm(1), parts[1].AsX(), parts[0], parts[0])
		VCVTPH2PS(parts[0], scale)
		return scale, nil
	}
	var all reg.VecVirtual
	for i := range 4 {
		v := ZMM()
		VPBROADCASTD(p.rows.at(i/2*4, i%2*p.bytes), v)
		for r := 1; r < 4; r++ {
			VPINSRD(Imm(uint64(r)), p.rows.at(i/2*4+r, i%2*p.bytes), v.AsX(), v.AsX())
		}
		if i == 0 {
			all = v
		} else {
			VINSERTI32X4(Imm(uint64(i)), v.AsX(), all, all)
		}
	}
	minimum = ZMM()
	words := YMM()
	VPMOVDW(all, words)
	VCVTPH2PS(words, scale)
	VPSRLD(Imm(16), all, all)
	VPMOVDW(all, words)
	VCVTPH2PS(words, minimum)
	return scale, minimum
}

// pairCodes loads the codes of both blocks of a row.
func (p *widePairs) pairCodes(r int) reg.VecVirtual {
	at := func(block, off int) Mem { return p.rows.at(r, block*p.bytes+off) }
	v := ZMM()
	if p.name == "Q8_0" {
		VBROADCASTI32X8(at(0, 2), v)
		VBROADCASTI32X8(at(1, 2), p.upper, v)
		VPXORD(p.mask(0x80), v, v)
		return v
	}
	nibbles := p.bytes - 16 // where they begin
	VBROADCASTI32X4(at(0, nibbles), v)
	VBROADCASTI32X4(at(1, nibbles), p.upper, v)
	VPSRLVQ(p.lowHigh(), v, v)
	VPANDD(p.mask(15), v, v)
	switch p.name {
	case "IQ4_NL":
		out := ZMM()
		VPSHUFB(v, p.raisedIQ4(), out)
		return out
	case "Q5_0", "Q5_1":
		low, high := K(), K()
		KMOVD(at(0, nibbles-4), low)
		KMOVD(at(1, nibbles-4), high)
		KUNPCKDQ(low, high, low)
		VPADDB(p.mask(16), v, low, v)
	}
	return v
}

// lowHigh shifts the upper of two times 16 bytes by four bits.
func (w *wideDecoder) lowHigh() reg.VecVirtual {
	return w.constant("lowHighTwice", []uint64{0, 0, 4, 4, 0, 0, 4, 4})
}

// raisedIQ4 are the reconstruction points plus 128.
func (w *wideDecoder) raisedIQ4() reg.VecVirtual {
	const low, high = 0x766a5d4f3f2d1801, 0xf1d9c5b5a6998d81
	return w.constant("raisedIQ4", []uint64{low, high, low, high, low, high, low, high})
}
