package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Records of scales, as in package kernel: blockScale and superScale.
const (
	blockScaleBytes = 8
	superScaleBytes = 72
	superMins       = 32
	superD          = 64
)

// blockFormat is how a block of a format is unpacked.
type blockFormat struct {
	name     string
	bytes    int  // of a block
	elements int  // of a block
	offset   byte // what less subtracts from the codes
	signed   bool // codes are signed without an offset
	minima   bool
	unpack   func(u *unpacker)
	codes    func(u *unpacker) // K formats: the codes alone
}

var blockFormats = []blockFormat{
	{"Q4_0", 18, 32, 8, false, false, func(u *unpacker) { u.scale(0); u.emit(0, u.less(u.nibbles(2), 8)) }, nil},
	{"Q4_1", 20, 32, 0, false, true, func(u *unpacker) { u.scale(0); u.emit(0, u.nibbles(4)) }, nil},
	{"Q5_0", 22, 32, 16, false, false, func(u *unpacker) { u.scale(0); u.emit(0, u.less(u.fifthBits(u.nibbles(6), 2), 16)) }, nil},
	{"Q5_1", 24, 32, 0, false, true, func(u *unpacker) { u.scale(0); u.emit(0, u.fifthBits(u.nibbles(8), 4)) }, nil},
	{"Q8_0", 34, 32, 0, true, false, func(u *unpacker) { u.scale(0); u.emit(0, u.load(2)) }, nil},
	{"IQ4_NL", 18, 32, 0, true, false, func(u *unpacker) { u.scale(0); u.emit(0, u.iq4(u.nibbles(2))) }, nil},
	{"Q2_K", 84, 256, 0, false, true, (*unpacker).q2K, (*unpacker).q2KCodes},
	{"Q3_K", 110, 256, 4, false, false, (*unpacker).q3K, (*unpacker).q3KCodes},
	{"Q4_K", 144, 256, 0, false, true, (*unpacker).q4K, (*unpacker).q4KCodes},
	{"Q5_K", 176, 256, 0, false, true, (*unpacker).q5K, (*unpacker).q5KCodes},
	{"Q6_K", 210, 256, 32, false, false, (*unpacker).q6K, (*unpacker).q6KCodes},
	{"IQ4_XS", 136, 256, 0, true, false, (*unpacker).iq4XS, (*unpacker).iq4XSCodes},
}

// unpacker writes the instructions that unpack one block at src. What becomes of the parts is up to whoever makes it.
type unpacker struct {
	src Mem  // address of the block
	raw bool // leave the format's offset in the codes

	held map[Mem]reg.VecVirtual // constants that stay in registers

	scale  func(off int)                                    // simple formats: d (and m behind it) are at off
	super  func(off int)                                    // K formats: the same
	scales func(scales reg.VecVirtual, mins reg.VecVirtual) // K formats: 16 words; 16 or 8 words, or nil
	emit   func(at int, codes reg.VecVirtual)               // 32 codes from element at on
}

func unpack() {
	for _, f := range blockFormats {
		unpackRows(f)
	}
}

// unpackRows loops over rows and blocks.
func unpackRows(f blockFormat) {
	begin("unpack"+f.name+"AVX2",
		"func(codes *int8, strideCodes int, side *byte, strideSide int, src *byte, strideSrc int, rows int, blocks int)",
		"Unpacks blocks of rows into codes and records of scales; strides in bytes; rows and blocks > 0.")
	codes, side, src, rows := arg("codes"), arg("side"), arg("src"), arg("rows")
	scale := blockScaleBytes
	if f.elements == 256 {
		scale = superScaleBytes
	}
	Label("row")
	c, s, from := GP64(), GP64(), GP64()
	MOVQ(codes, c)
	MOVQ(side, s)
	MOVQ(src, from)
	blocks := arg("blocks")
	u := &unpacker{src: Mem{Base: from}}
	u.scale = func(off int) { VMOVQ(u.halves(off, f.minima), Mem{Base: s}) }
	u.super = func(off int) { VMOVQ(u.halves(off, f.minima), Mem{Base: s, Disp: superD}) }
	u.scales = func(scales, mins reg.VecVirtual) {
		VMOVDQU(scales, Mem{Base: s})
		if mins != nil {
			VMOVDQU(mins, Mem{Base: s, Disp: superMins})
		}
	}
	u.emit = func(at int, v reg.VecVirtual) { VMOVDQU(v, Mem{Base: c, Disp: at}) }
	loop("block", blocks, 1, func() {
		f.unpack(u)
		ADDQ(U32(f.elements), c)
		ADDQ(U32(scale), s)
		ADDQ(U32(f.bytes), from)
	})
	for _, p := range []struct {
		stride string
		row    reg.GPVirtual
	}{{"strideCodes", codes}, {"strideSide", side}, {"strideSrc", src}} {
		stride, err := Param(p.stride).Resolve()
		if err != nil {
			panic(err)
		}
		ADDQ(stride.Addr, p.row)
	}
	DECQ(rows)
	JNZ(LabelRef("row"))
	end()
}

func (u *unpacker) at(off int) Mem {
	m := u.src
	m.Disp += off
	return m
}

// halves returns {d, m} or {d, 0} as float32 in the lowest lanes.
func (u *unpacker) halves(off int, both bool) reg.VecVirtual {
	x := XMM()
	if both {
		VMOVD(u.at(off), x)
	} else {
		h := GP32()
		MOVWLZX(u.at(off), h)
		VMOVD(h, x)
	}
	VCVTPH2PS(x, x)
	return x
}

// bytes is 32 bytes of value b in the read-only data.
func bytes(b byte) Mem {
	w := uint64(b) * 0x0101010101010101
	return table("bytes"+hex(b), []uint64{w, w, w, w})
}

func hex(b byte) string { const d = "0123456789abcdef"; return string([]byte{d[b>>4], d[b&15]}) }

// shifted moves bits left (n > 0) or right (n < 0); bits that cross into the neighbouring byte are the caller's to mask.
func shifted(v reg.VecVirtual, n int) reg.VecVirtual {
	out := YMM()
	switch {
	case n > 0:
		VPSLLW(Imm(uint64(n)), v, out)
	case n < 0:
		VPSRLW(Imm(uint64(-n)), v, out)
	default:
		return v
	}
	return out
}

// field takes bits of v: shifted as shifted does, masked.
func (u *unpacker) field(v reg.VecVirtual, shift int, mask byte) reg.VecVirtual {
	out := YMM()
	VPAND(u.constant(bytes(mask)), shifted(v, shift), out)
	return out
}

// constant is where an instruction finds one.
func (u *unpacker) constant(m Mem) Op {
	if v := u.held[m]; v != nil {
		return v
	}
	return m
}

// hold loads constants.
func hold(constants ...Mem) map[Mem]reg.VecVirtual {
	held := map[Mem]reg.VecVirtual{}
	for _, m := range constants {
		held[m] = YMM()
		VMOVDQU(m, held[m])
	}
	return held
}

func or(a, b reg.VecVirtual) reg.VecVirtual {
	out := YMM()
	VPOR(a, b, out)
	return out
}

func (u *unpacker) less(v reg.VecVirtual, n byte) reg.VecVirtual {
	if u.raw {
		return v
	}
	out := YMM()
	VPSUBB(bytes(n), v, out)
	return out
}

// nibbles spreads 16 bytes over 32: low halves, then high halves.
func (u *unpacker) nibbles(off int) reg.VecVirtual {
	v, out := YMM(), YMM()
	VBROADCASTI128(u.at(off), v)
	VPSRLVQ(u.constant(lowHigh()), v, v)
	VPAND(u.constant(bytes(15)), v, out)
	return out
}

// lowHigh shifts the upper 16 bytes by four bits.
func lowHigh() Mem { return table("lowHigh", []uint64{0, 0, 4, 4}) }

// table places 32 bytes in the read-only data.
func table(name string, words []uint64) Mem {
	m, ok := constants[name]
	if !ok {
		m = GLOBL(group+"_"+name, RODATA|NOPTR)
		for i, w := range words {
			DATA(8*i, U64(w))
		}
		constants[name] = m
	}
	return m
}

// fifthBits adds 16 where the bit of an element is set: each byte gets the byte its bit is in and tests that bit.
func (u *unpacker) fifthBits(codes reg.VecVirtual, off int) reg.VecVirtual {
	v, bit := YMM(), u.held[bitOfByte()]
	VPBROADCASTD(u.at(off), v)
	VPSHUFB(u.constant(spread()), v, v)
	if bit == nil {
		bit = YMM()
		VMOVDQU(bitOfByte(), bit)
	}
	VPAND(bit, v, v)
	VPCMPEQB(bit, v, v)
	VPAND(u.constant(bytes(16)), v, v)
	return or(v, codes)
}

func spread() Mem {
	return table("spread", []uint64{0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303})
}

func bitOfByte() Mem {
	const b = 0x8040201008040201
	return table("bits", []uint64{b, b, b, b})
}

// iq4 replaces indices by the reconstruction points.
func (u *unpacker) iq4(index reg.VecVirtual) reg.VecVirtual {
	v, points := YMM(), u.held[iq4Points()]
	if points == nil {
		points = v
		VMOVDQU(iq4Points(), points)
	}
	VPSHUFB(index, points, v)
	return v
}

func iq4Points() Mem {
	return table("iq4", []uint64{0xf6eaddcfbfad9881, 0x7159453526190d01, 0xf6eaddcfbfad9881, 0x7159453526190d01})
}

// words32 is 16 words of 32, the offset of signed 6-bit scales.
func words32() Mem {
	const w = 0x0020002000200020
	return table("words32", []uint64{w, w, w, w})
}

func (u *unpacker) load(off int) reg.VecVirtual {
	v := YMM()
	VMOVDQU(u.at(off), v)
	return v
}

// words widens 16 bytes to 16 unsigned words.
func words(x reg.VecVirtual) reg.VecVirtual {
	v := YMM()
	VPMOVZXBW(x.AsX(), v)
	return v
}

func (u *unpacker) q2K() {
	s, low := XMM(), XMM()
	VMOVDQU(u.at(0), s)
	VPAND(bytes(15), s, low)
	VPSRLW(Imm(4), s, s)
	VPAND(bytes(15), s, s)
	u.scales(words(low), words(s))
	u.super(80)
	u.q2KCodes()
}

func (u *unpacker) q2KCodes() {
	for h := range 2 {
		q := u.load(16 + 32*h)
		for j := range 4 {
			u.emit(128*h+32*j, u.field(q, -2*j, 3))
		}
	}
}

func (u *unpacker) q3K() {
	u.q3Scales()
	u.super(108)
	u.q3KCodes()
}

func (u *unpacker) q3KCodes() {
	high := u.load(0)
	for h := range 2 {
		q := u.load(32 + 32*h)
		for j := range 4 {
			// Bit 4h+j of the high bits becomes bit 2 of the code.
			c := or(u.field(q, -2*j, 3), u.field(high, 2-(4*h+j), 4))
			u.emit(128*h+32*j, u.less(c, 4))
		}
	}
}

// q3Scales works on four scales at a time in a general register: low four bits from one place, upper two from another.
func (u *unpacker) q3Scales() {
	upper, x := GP32(), XMM()
	MOVL(u.at(96+8), upper)
	for j := range 4 {
		low, up := GP32(), GP32()
		MOVL(u.at(96+4*(j%2)), low)
		if j >= 2 {
			SHRL(Imm(4), low)
		}
		ANDL(U32(0x0f0f0f0f), low)
		MOVL(upper, up)
		switch j {
		case 0:
			SHLL(Imm(4), up)
		case 1:
			SHLL(Imm(2), up)
		case 3:
			SHRL(Imm(2), up)
		}
		ANDL(U32(0x30303030), up)
		ORL(up, low)
		if j == 0 {
			VMOVD(low, x)
		} else {
			VPINSRD(Imm(uint64(j)), low, x, x)
		}
	}
	v := words(x)
	VPSUBW(words32(), v, v)
	u.scales(v, nil)
}

// scalesK4 reads the scales and minima of Q4_K and Q5_K four at a time in general registers.
func (u *unpacker) scalesK4() {
	a, b, c := GP32(), GP32(), GP32()
	MOVL(u.at(4), a)
	MOVL(u.at(8), b)
	MOVL(u.at(12), c)
	scales, mins := XMM(), XMM()
	for _, p := range []struct {
		first reg.GPVirtual
		shift uint64
		out   reg.VecVirtual
	}{{a, 0, scales}, {b, 4, mins}} {
		low, high, top := GP32(), GP32(), GP32()
		MOVL(p.first, low)
		ANDL(U32(0x3f3f3f3f), low)
		VMOVD(low, p.out)
		MOVL(c, high)
		if p.shift > 0 {
			SHRL(Imm(p.shift), high)
		}
		ANDL(U32(0x0f0f0f0f), high)
		MOVL(p.first, top)
		SHRL(Imm(2), top)
		ANDL(U32(0x30303030), top)
		ORL(top, high)
		VPINSRD(Imm(1), high, p.out, p.out)
	}
	VPUNPCKLBW(scales, scales, scales) // each twice
	VPMOVZXBW(mins, mins)
	u.scales(words(scales), mins)
}

func (u *unpacker) q4K() {
	u.super(0)
	u.scalesK4()
	u.q4KCodes()
}

func (u *unpacker) q4KCodes() {
	for j := range 4 {
		q := u.load(16 + 32*j)
		u.emit(64*j, u.field(q, 0, 15))
		u.emit(64*j+32, u.field(q, -4, 15))
	}
}

func (u *unpacker) q5K() {
	u.super(0)
	u.scalesK4()
	u.q5KCodes()
}

func (u *unpacker) q5KCodes() {
	high := u.load(16)
	for j := range 4 {
		q := u.load(48 + 32*j)
		u.emit(64*j, or(u.field(q, 0, 15), u.field(high, 4-2*j, 16)))
		u.emit(64*j+32, or(u.field(q, -4, 15), u.field(high, 3-2*j, 16)))
	}
}

func (u *unpacker) q6K() {
	s := YMM()
	VPMOVSXBW(u.at(192), s)
	u.scales(s, nil)
	u.super(208)
	u.q6KCodes()
}

func (u *unpacker) q6KCodes() {
	for h := range 2 {
		a, b, high := u.load(64*h), u.load(64*h+32), u.load(128+32*h)
		for j, low := range []reg.VecVirtual{a, b, a, b} {
			c := or(u.field(low, -4*(j/2), 15), u.field(high, 4-2*j, 0x30))
			u.emit(128*h+32*j, u.less(c, 32))
		}
	}
}

func (u *unpacker) iq4XS() {
	u.super(0)
	low, next, high := XMM(), XMM(), XMM()
	VMOVD(u.at(4), low)
	VPSRLW(Imm(4), low, next)
	VPUNPCKLBW(next, low, low)
	VPAND(bytes(15), low, low)
	VPMOVZXBW(low, low)
	// Word j times 2^(14-2j) has bits 2j and 2j+1 on top.
	VPBROADCASTW(u.at(2), high)
	VPMULLW(table("quarters", []uint64{0x0100040010004000, 0x0001000400100040, 0, 0}), high, high)
	VPSRLW(Imm(14), high, high)
	VPSLLW(Imm(4), high, high)
	VPOR(high, low, low)
	VPSUBW(words32(), low, low)
	twice, upper := YMM(), XMM()
	VPUNPCKLWD(low, low, twice.AsX())
	VPUNPCKHWD(low, low, upper)
	VINSERTI128(Imm(1), upper, twice, twice)
	u.scales(twice, nil)
	u.iq4XSCodes()
}

func (u *unpacker) iq4XSCodes() {
	for j := range 8 {
		u.emit(32*j, u.iq4(u.nibbles(8+16*j)))
	}
}
