//go:build !purego

package kernel

import (
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"

	"golang.org/x/sys/cpu"
)

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
		rows: 4, inputs: 3,
		tile:     []tileFunc{dotTile1AVX2, dotTile2AVX2, dotTile3AVX2},
		widenF16: widenF16AVX2, widenBF16: widenBF16AVX2,
	}
	a := &attentionTiles{
		narrow:     []multiplyFunc{multiply1x16AVX2, multiply2x16AVX2, multiply3x16AVX2, multiply4x16AVX2, multiply5x16AVX2, multiply6x16AVX2},
		transposed: [32]transposeFunc{gguf.F32: transposeF32AVX2, gguf.F16: transposeF16AVX2, gguf.BF16: transposeBF16AVX2}, lanes: 8,
		widenRows: [32]widenRowsFunc{
			gguf.F32: widenRowsF32AVX2, gguf.F16: widenRowsF16AVX2, gguf.BF16: widenRowsBF16AVX2,
			gguf.Q8_0: widenRowsQ8_0AVX2, gguf.Q4_0: widenRowsQ4_0AVX2,
		},
	}
	k.floatPanel, k.quantPanel, k.widen = f.panel, byType(narrowTilesAVX2(), signedTilesAVX2()), f.widen
	k.dot32 = dot32OnAVX2
	k.dotCells, k.dotCodedCells, k.addHalves = dotCellsOnAVX2, dotCodedCellsOnAVX2, addHalvesOnAVX2
	k.scaleMax, k.expBelow = scaleMaxOn(scaleMaxAVX2), expBelowOnAVX2
	k.upstreamQuantPanel = upstreamTilesAVX2().panel
	k.multiplyAdd, k.keys, k.values = a.multiplyAdd, a.keys, a.values
	k.squares = squaresOnAVX2
	k.add, k.mul = unary(addAVX2, add), unary(mulAVX2, mul)
	k.scale, k.scaleMul, k.combine = scaled(scaleAVX2, scale), withScaleMul(scaleMulAVX2), withCombine(combineAVX2)
	k.silu = unary(siluAVX2, silu)
	k.siluMul, k.geluMul = withSiLUMul(siluMulAVX2), withGELUMul(geluMulAVX2)
	k.expSum = withExpSum(scaleMaxAVX2, expSumAVX2)
	k.rotateHalves, k.rotatePairs = withRotateHalves(rotateHalvesAVX2), withRotatePairs(rotatePairsAVX2)
	k.softMax, k.addScaled = softMaxOnAVX2, scaled(addScaledAVX2, upstream.AddScaled)
	k.roundF16, k.roundBF16 = unary(roundF16AVX2, roundF16), unary(roundBF16AVX2, roundBF16)
	k.narrowF16 = withNarrowF16(narrowF16AVX2)
	k.delta, k.convolve = withDelta(deltaColumnsAVX2, 16), withConvolve(convolveAVX2)
	k.quantiseBlocks, k.quantiseSupers = withBlocks, withSupers
	return k
}

func avx512() kernels {
	k := avx2()
	k.name = "avx512"
	f := &floatTiles{
		rows: 8, inputs: 6,
		tile:     []tileFunc{dotTile1AVX512, dotTile2AVX512, dotTile3AVX512, dotTile4AVX512, dotTile5AVX512, dotTile6AVX512},
		widenF16: widenF16AVX512, widenBF16: widenBF16AVX512,
	}
	a := &attentionTiles{
		narrow:     []multiplyFunc{multiply1x16AVX512, multiply2x16AVX512, multiply3x16AVX512, multiply4x16AVX512, multiply5x16AVX512, multiply6x16AVX512},
		wide:       []multiplyFunc{multiply1x64AVX512, multiply2x64AVX512, multiply3x64AVX512, multiply4x64AVX512, multiply5x64AVX512, multiply6x64AVX512},
		transposed: [32]transposeFunc{gguf.F32: transposeF32AVX512, gguf.F16: transposeF16AVX512, gguf.BF16: transposeBF16AVX512}, lanes: 16,
		widenRows: [32]widenRowsFunc{
			gguf.F32: widenRowsF32AVX512, gguf.F16: widenRowsF16AVX512, gguf.BF16: widenRowsBF16AVX512,
			gguf.Q8_0: widenRowsQ8_0AVX512, gguf.Q4_0: widenRowsQ4_0AVX512,
		},
	}
	i := integerTilesAVX512()
	k.floatPanel, k.quantPanel, k.widen = f.panel, i.panel, f.widen
	k.upstreamQuantPanel = upstreamTilesAVX512().panel
	k.multiplyAdd, k.keys, k.values = a.multiplyAdd, a.keys, a.values
	k.squares = squaresOnAVX512
	k.add, k.mul = unary(addAVX512, add), unary(mulAVX512, mul)
	k.scale, k.scaleMul, k.combine = scaled(scaleAVX512, scale), withScaleMul(scaleMulAVX512), withCombine(combineAVX512)
	k.silu = unary(siluAVX512, silu)
	k.siluMul, k.geluMul = withSiLUMul(siluMulAVX512), withGELUMul(geluMulAVX512)
	k.expSum = withExpSum(scaleMaxAVX512, expSumAVX512)
	k.rotateHalves = withRotateHalves(rotateHalvesAVX512)
	k.addScaled = scaled(addScaledAVX512, upstream.AddScaled)
	k.delta, k.convolve = withDelta(deltaColumnsAVX512, 32), withConvolve(convolveAVX512)
	return k
}
