package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// narrowTile multiplies, with AVX2, codes of a few bits. They are not signed: what a format subtracts from its codes is made
// up for by the sums of the activation codes. Several groups of products are added up in 16 bits before they are widened, so
// that a group takes two instructions and not four.
type narrowTile struct {
	integerTile
	bits int
}

// groups is how many groups' pairs of products with activation codes, which are -128 at least, fit 16 bits.
func (t narrowTile) groups() int { return 1 << 15 / (2 * 128 << t.bits) }

// offsetBits is the binary logarithm of what is to be subtracted from the codes of a format without minima.
func (t narrowTile) offsetBits() uint64 { return uint64(t.bits - 1) }

// words sets acc to sums of products, two words for each row, of so many groups of four codes, and moves on.
func (t narrowTile) words(s *integerState, xr rows, groups int) {
	step := t.rows() * 4
	for g := range groups {
		w := s.width.vectors(s.vectors)
		for v := range w {
			VMOVDQU(Mem{Base: s.panel, Disp: g*step + v*s.bytes}, w[v])
		}
		for i := range s.inputs {
			x := YMM()
			VPBROADCASTD(xr.at(i, 4*g), x)
			for v, acc := range s.acc[i] {
				if g == 0 {
					VPMADDUBSW(x, w[v], acc)
					continue
				}
				y := x
				if v+1 < s.vectors {
					y = YMM()
				}
				VPMADDUBSW(x, w[v], y)
				VPADDW(y, acc, acc)
			}
		}
	}
	ADDQ(U32(groups*step), s.panel)
	xr.advance(4 * groups)
}

// run adds the products of a run of codes, multiplied by the pair of words that scale has for each row, to whole; or sets it,
// if it is the first.
func (t narrowTile) run(s *integerState, xr rows, codes int, scale []Op, whole [][]reg.VecVirtual, first bool) {
	n := min(codes/4, t.groups())
	for g := 0; g < codes/4; g += n {
		t.words(s, xr, n)
		s.each(func(i, v int) {
			acc := s.acc[i][v]
			if first && g == 0 {
				VPMADDWD(scale[v], acc, whole[i][v])
			} else {
				VPMADDWD(scale[v], acc, acc)
				VPADDD(acc, whole[i][v], whole[i][v])
			}
		})
	}
}

func (t narrowTile) kernelName(name string, minima bool) string {
	if minima {
		name += "Min"
	}
	return fmt.Sprintf("%s%dBits", name, t.bits)
}

// blocks: the simple formats.
func (t narrowTile) blocks(minima bool) {
	t.blocksAdding(t.kernelName("blocks", minima)+"x", minima, func(s *integerState, xr, sr rows) {
		whole := s.grid()
		ones := repeated("eachWord1", 0x0001000100010001, 0x0001000100010001)
		t.run(s, xr, 32, []Op{ones, ones}, whole, true)
		s.acc = whole
		if minima {
			return
		}
		for i := range s.inputs {
			x := YMM()
			VPBROADCASTD(sr.at(i, blockSideSum), x)
			VPSLLD(Imm(t.offsetBits()), x, x)
			for _, acc := range s.acc[i] {
				VPSUBD(x, acc, acc)
			}
		}
	}, addProduct)
}

// supers: the K formats.
func (t narrowTile) supers(run int, minima bool) {
	add := func(s *integerState, part int, xr, _ rows, whole [][]reg.VecVirtual) {
		scales := make([]Op, s.vectors) // of 32 elements: twice the same; of 16: two
		for v := range scales {
			m := Mem{Base: s.scales, Disp: v * s.bytes}
			if scales[v] = m; run == 16 {
				scale := YMM()
				VMOVDQU(m, scale)
				VPSHUFB(bothWords(part), scale, scale)
				scales[v] = scale
			}
		}
		t.run(s, xr, run, scales, whole, false)
	}
	t.supersAdding(fmt.Sprintf("%sRun%dx", t.kernelName("supers", minima), run), run, add, func(s *integerState, sum reg.GPVirtual, sr rows, whole [][]reg.VecVirtual) {
		if !minima {
			t.subtractOffset(s, sr, whole)
		}
		t.finishSuper(s, sum, sr, whole, run, minima)
	})
}

// subtractOffset makes up for the offset of the codes of a block of 256; s.scales is past the pairs of scales.
func (t narrowTile) subtractOffset(s *integerState, sr rows, whole [][]reg.VecVirtual) {
	s.sumProducts(sr, sideSums, 8, Mem{Base: s.scales, Disp: -8 * 4 * t.rows()})
	t.each(func(i, v int) {
		VPSLLD(Imm(t.offsetBits()), s.acc[i][v], s.acc[i][v])
		VPSUBD(s.acc[i][v], whole[i][v], whole[i][v])
	})
}

// bothWords copies the lower (0) or upper (1) word of every 32 bits to both.
func bothWords(part int) Mem {
	w := uint64(0x0504050401000100 + part*0x0202020202020202)
	high := w + 0x0808080808080808
	return table(fmt.Sprint("bothWords", part), []uint64{w, high, w, high})
}
