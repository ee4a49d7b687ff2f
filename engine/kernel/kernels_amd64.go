//go:build !purego

package kernel

import (
	"os"

	"golang.org/x/sys/cpu"
)

// choose returns the best of the available kernels; ATTNBUDGET_KERNEL may name a lesser one.
func choose() kernels {
	all := available()
	wanted := os.Getenv("ATTNBUDGET_KERNEL")
	for _, k := range all {
		if k.name == wanted {
			return k
		}
	}
	return all[len(all)-1]
}

// available returns the kernels this processor can run, slowest first.
func available() []kernels {
	all := []kernels{generic()}
	x := cpu.X86
	if !(x.HasAVX2 && x.HasFMA && x.HasF16C) {
		return all
	}
	all = append(all, avx2())
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI {
		all = append(all, avx512())
	}
	return all
}

func avx2() kernels {
	k := generic()
	k.name = "avx2"
	f := &floatTiles{
		rows: 2, inputs: 3,
		dot:  [3]dotFunc{dotF32AVX2, dotF16AVX2, dotBF16AVX2},
		dot4: [3]dotFunc{dotF32x4AVX2, dotF16x4AVX2, dotBF16x4AVX2},
		tile: []tileFunc{dotTile1AVX2, dotTile2AVX2, dotTile3AVX2},
		fold: foldSumsAVX2, widenF16: widenF16AVX2, widenBF16: widenBF16AVX2,
	}
	a := &attentionTiles{
		narrow:     []multiplyFunc{multiply1x16AVX2, multiply2x16AVX2, multiply3x16AVX2, multiply4x16AVX2, multiply5x16AVX2, multiply6x16AVX2},
		transposed: transposeAVX2, lanes: 8,
	}
	k.floatPanel, k.widen = f.panel, f.widen
	k.multiply, k.transpose = a.multiply, a.transpose
	return k
}

func avx512() kernels {
	k := avx2()
	k.name = "avx512"
	f := &floatTiles{
		rows: 4, inputs: 6,
		dot:  [3]dotFunc{dotF32AVX512, dotF16AVX512, dotBF16AVX512},
		dot4: [3]dotFunc{dotF32x4AVX512, dotF16x4AVX512, dotBF16x4AVX512},
		tile: []tileFunc{dotTile1AVX512, dotTile2AVX512, dotTile3AVX512, dotTile4AVX512, dotTile5AVX512, dotTile6AVX512},
		fold: foldSumsAVX512, widenF16: widenF16AVX512, widenBF16: widenBF16AVX512,
	}
	a := &attentionTiles{
		narrow:     []multiplyFunc{multiply1x16AVX512, multiply2x16AVX512, multiply3x16AVX512, multiply4x16AVX512, multiply5x16AVX512, multiply6x16AVX512},
		wide:       []multiplyFunc{multiply1x64AVX512, multiply2x64AVX512, multiply3x64AVX512, multiply4x64AVX512, multiply5x64AVX512, multiply6x64AVX512},
		transposed: transposeAVX512, lanes: 16,
	}
	k.floatPanel, k.widen = f.panel, f.widen
	k.multiply, k.transpose = a.multiply, a.transpose
	return k
}
