package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// width is a vector width: it makes registers and names kernels.
type width struct {
	name  string
	bytes int
}

var (
	avx2   = width{"AVX2", 32}
	avx512 = width{"AVX512", 64}
)

// lanes is the number of float32 or int32 in a vector.
func (w width) lanes() int { return w.bytes / 4 }

func (w width) vector() reg.VecVirtual {
	if w == avx512 {
		return ZMM()
	}
	return YMM()
}

func (w width) vectors(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = w.vector()
	}
	return v
}

// half returns the register of half the vector's size that its lower part is.
func (w width) half(v reg.VecVirtual) reg.Register {
	if w == avx512 {
		return v.AsY()
	}
	return v.AsX()
}

// zero clears registers.
func zero(vs ...reg.VecVirtual) {
	for _, v := range vs {
		VXORPS(v, v, v)
	}
}

// begin starts a function that keeps nothing of its pointer arguments.
func begin(name, signature, doc string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(doc)
}

// arg loads an argument into a general register.
func arg(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// end returns to Go, whose code must not meet dirty upper halves.
func end() {
	VZEROUPPER()
	RET()
}

// loop runs body while count, lowered by step each time, stays above zero; count must be a positive multiple of step.
func loop(label string, count reg.GPVirtual, step int, body func()) {
	Label(label)
	body()
	SUBQ(Imm(uint64(step)), count)
	JNZ(LabelRef(label))
}

// rows addresses rows of equal stride, with a register for every three.
type rows struct {
	bases  []reg.GPVirtual // of rows 0, 3, 6
	stride reg.GPVirtual
}

// newRows prepares n rows that begin at base.
func newRows(base, stride reg.GPVirtual, n int) rows {
	r := rows{bases: []reg.GPVirtual{base}, stride: stride}
	for i := 3; i < n; i += 3 {
		next := GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, next)
		ADDQ(r.bases[i/3-1], next)
		r.bases = append(r.bases, next)
	}
	return r
}

// at is the address of byte offset off in row i.
func (r rows) at(i, off int) Mem {
	m := Mem{Base: r.bases[i/3], Disp: off}
	if i %= 3; i > 0 {
		m.Index, m.Scale = r.stride, uint8(i)
	}
	return m
}

// advance moves all rows on by n bytes.
func (r rows) advance(n int) {
	for _, b := range r.bases {
		ADDQ(I32(n), b)
	}
}

// fold adds the sixteen partial sums in v (two vectors of 256 bits, or one of 512): upper half to lower half until one is
// left, in the lowest lane of the result.
func (w width) fold(v []reg.VecVirtual) reg.Register {
	y, t := YMM(), YMM()
	if w == avx512 {
		VEXTRACTF64X4(Imm(1), v[0], t)
		VADDPS(t, v[0].AsY(), y)
	} else {
		VADDPS(v[1], v[0], y)
	}
	VEXTRACTF128(Imm(1), y, t.AsX())
	VADDPS(t.AsX(), y.AsX(), y.AsX())
	VPERMILPD(Imm(1), y.AsX(), t.AsX())
	VADDPS(t.AsX(), y.AsX(), y.AsX())
	VMOVSHDUP(y.AsX(), t.AsX())
	VADDSS(t.AsX(), y.AsX(), y.AsX())
	return y.AsX()
}

// sumAcross adds the eight floats of a vector of 256 bits as the function of that name in package upstream does; the sum is in
// the lowest lane of the result.
func sumAcross(v reg.VecVirtual) reg.VecVirtual {
	s, t := XMM(), XMM()
	VEXTRACTF128(Imm(1), v, s)
	VADDPS(v.AsX(), s, s)
	VMOVHLPS(s, s, t)
	VADDPS(t, s, s)
	VMOVSHDUP(s, t)
	VADDSS(t, s, s)
	return s
}

// fill returns a vector whose lanes all hold the float or integer constant with these bits.
func (w width) fill(name string, bits uint32) reg.VecVirtual {
	v := w.vector()
	VBROADCASTSS(constant(name, bits), v)
	return v
}

// param returns a vector whose lanes all hold a float32 argument.
func (w width) param(name string) reg.VecVirtual {
	x := XMM()
	Load(Param(name), x)
	v := w.vector()
	VBROADCASTSS(x, v)
	return v
}

var constants = map[string]Mem{}

// constant places a 32-bit constant in the read-only data, once per file.
func constant(name string, bits uint32) Mem {
	m, ok := constants[name]
	if !ok {
		m = GLOBL(group+"_"+name, RODATA|NOPTR)
		DATA(0, U32(bits))
		constants[name] = m
	}
	return m
}

func float32bits(f float32) uint32 { return math.Float32bits(f) }

// choose returns yes where a compares with b by the predicate (VCMPPS immediate), else no.
func (w width) choose(predicate uint64, a, b, yes, no reg.VecVirtual) reg.VecVirtual {
	out := w.vector()
	if w == avx512 {
		k := K()
		VCMPPS(Imm(predicate), b, a, k)
		VBLENDMPS(yes, no, k, out)
	} else {
		mask := w.vector()
		VCMPPS(Imm(predicate), b, a, mask)
		VBLENDVPS(mask, yes, no, out)
	}
	return out
}

// skipUnless jumps to label if a compares with b by the predicate nowhere.
func (w width) skipUnless(predicate uint64, a, b reg.VecVirtual, label string) {
	if w == avx512 {
		k := K()
		VCMPPS(Imm(predicate), b, a, k)
		KORTESTW(k, k)
	} else {
		mask := w.vector()
		VCMPPS(Imm(predicate), b, a, mask)
		VPTEST(mask, mask)
	}
	JZ(LabelRef(label))
}

var labels int

// newLabel returns a label that no other has.
func newLabel(name string) string {
	labels++
	return fmt.Sprint(name, labels)
}

// VCMPPS predicates.
const (
	lessThan  = 1
	unordered = 3
	lessEqual = 2
	notEqual  = 4
)

// sums is the number of elements that loops over vectors take at a time, and of partial sums where one is kept.
const sums = 16

// stream runs body over n elements, 16 at a time, with offsets for each vector; pointers advance by their element sizes.
func (w width) stream(left reg.GPVirtual, pointers []reg.GPVirtual, sizes []int, body func(p int)) {
	loop("next", left, sums, func() {
		for p := range sums / w.lanes() {
			body(p)
		}
		for i, r := range pointers {
			ADDQ(Imm(uint64(sums*sizes[i])), r)
		}
	})
}
