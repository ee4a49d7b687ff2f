// Command asm writes the amd64 assembly of package limits.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// chains of multiply-adds that do not wait for each other: more than latency times units of any processor so far.
const chains = 12

func main() {
	ConstraintExpr("!purego")
	read()
	multiplyAdd("multiplyAddAVX2", 32, func() VecVirtual { return YMM() })
	multiplyAdd("multiplyAddAVX512", 64, func() VecVirtual { return ZMM() })
	Generate()
}

// read loads whole cache lines with independent vectors.
func read() {
	TEXT("readAVX2", NOSPLIT, "func(p *byte, n int) byte")
	Doc("readAVX2 reads n bytes from p, a multiple of 256, and returns a byte that depends on all of them.")
	p, n := Load(Param("p"), GP64()), Load(Param("n"), GP64())
	var sums [4]VecVirtual
	for i := range sums {
		sums[i] = YMM()
		VPXOR(sums[i], sums[i], sums[i])
	}
	Label("loop")
	CMPQ(n, U32(256))
	JL(LabelRef("done"))
	for i := range 8 {
		VPXOR(Mem{Base: p, Disp: 32 * i}, sums[i%4], sums[i%4])
	}
	ADDQ(U32(256), p)
	SUBQ(U32(256), n)
	JMP(LabelRef("loop"))
	Label("done")
	VPXOR(sums[1], sums[0], sums[0])
	VPXOR(sums[3], sums[2], sums[2])
	VPXOR(sums[2], sums[0], sums[0])
	half := XMM()
	VEXTRACTI128(Imm(1), sums[0].AsY(), half)
	VPXOR(half, sums[0].AsX(), half)
	for _, bytes := range []uint64{8, 4, 2, 1} {
		part := XMM()
		VPSRLDQ(Imm(bytes), half, part)
		VPXOR(part, half, half)
	}
	out := GP32()
	VMOVD(half, out)
	VZEROUPPER()
	Store(out.As8(), ReturnIndex(0))
	RET()
}

// multiplyAdd does n rounds of a multiply-add on each of the chains.
func multiplyAdd(name string, width int, vector func() VecVirtual) {
	TEXT(name, NOSPLIT, "func(n int)")
	Doc(name + " does n rounds of independent float32 multiply-adds on 12 vectors.")
	n := Load(Param("n"), GP64())
	var sums [chains]VecVirtual
	for i := range sums {
		sums[i] = vector()
		if width == 64 {
			VPXORD(sums[i], sums[i], sums[i])
		} else {
			VXORPS(sums[i], sums[i], sums[i])
		}
	}
	a := vector()
	if width == 64 {
		VPXORD(a, a, a)
	} else {
		VXORPS(a, a, a)
	}
	Label("loop")
	for i := range sums {
		VFMADD231PS(a, a, sums[i])
	}
	DECQ(n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}
