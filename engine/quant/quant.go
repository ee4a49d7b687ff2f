// Package quant converts between float32 and the block formats of GGUF files, and quantises whole model files with the
// type mixes known as Q4_K_M, Q8_0 and so on.
//
// The formats and the searches for the best scales are those of llama.cpp without an importance matrix, in the same order
// of float32 operations, so that a file made here can be compared with one made there. It does not multiply matrices
// (package kernel does), does not read importance matrices and does not requantise a quantised file.
//
// Products that feed a sum are wrapped in an explicit float32 conversion throughout: it forbids the compiler to fuse
// them, so results are the same on every processor.
package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"attnbudget/engine/gguf"
)

// codec is the pair of conversions of one type, over any number of whole blocks.
type codec struct {
	dequantize func(dst []float32, src []byte)
	quantize   func(dst []byte, src []float32)
	halves     []int // offsets of the half precision numbers in a block
}

// codecs is indexed by gguf.Type; conversions are called per row, where a map would cost as much as a short row.
var codecs = [...]codec{
	gguf.F32:    {dequantizeF32, quantizeF32, nil},
	gguf.F16:    {dequantizeF16, quantizeF16, []int{0}},
	gguf.BF16:   {dequantizeBF16, quantizeBF16, nil},
	gguf.Q4_0:   {dequantizeQ4_0, quantizeQ4_0, []int{0}},
	gguf.Q4_1:   {dequantizeQ4_1, quantizeQ4_1, []int{0, 2}},
	gguf.Q5_0:   {dequantizeQ5_0, quantizeQ5_0, []int{0}},
	gguf.Q5_1:   {dequantizeQ5_1, quantizeQ5_1, []int{0, 2}},
	gguf.Q8_0:   {dequantizeQ8_0, quantizeQ8_0, []int{0}},
	gguf.Q8_1:   {dequantizeQ8_1, quantizeQ8_1, []int{0, 2}},
	gguf.Q2_K:   {dequantizeQ2_K, quantizeQ2_K, []int{80, 82}},
	gguf.Q3_K:   {dequantizeQ3_K, quantizeQ3_K, []int{108}},
	gguf.Q4_K:   {dequantizeQ4_K, quantizeQ4_K, []int{0, 2}},
	gguf.Q5_K:   {dequantizeQ5_K, quantizeQ5_K, []int{0, 2}},
	gguf.Q6_K:   {dequantizeQ6_K, quantizeQ6_K, []int{208}},
	gguf.Q8_K:   {dequantizeQ8_K, quantizeQ8_K, nil},
	gguf.IQ4_NL: {dequantizeIQ4_NL, quantizeIQ4_NL, []int{0}},
	gguf.IQ4_XS: {dequantizeIQ4_XS, quantizeIQ4_XS, []int{0}},
}

// Dequantize expands whole blocks of type t into dst. It panics unless len(dst) is a multiple of the type's block size
// and src has exactly the bytes of that many elements, or when t holds no real numbers (I32).
func Dequantize(t gguf.Type, dst []float32, src []byte) {
	codecOf("Dequantize", t, len(dst), len(src)).dequantize(dst, src)
}

// Quantize stores src in whole blocks of type t. It panics under the same conditions as Dequantize. Numbers that are not
// finite, or too large for the type's half precision scale, give blocks without meaning: check them before or after.
func Quantize(t gguf.Type, dst []byte, src []float32) {
	codecOf("Quantize", t, len(src), len(dst)).quantize(dst, src)
}

func codecOf(function string, t gguf.Type, elements, bytes int) codec {
	if int(t) >= len(codecs) || codecs[t].dequantize == nil {
		panic(fmt.Sprintf("quant.%s: no conversion for %v", function, t))
	}
	if elements%t.BlockSize() != 0 || bytes != t.RowBytes(elements) {
		panic(fmt.Sprintf("quant.%s: %d elements and %d bytes do not belong together in %v (%d elements take %d bytes)",
			function, elements, bytes, t, t.BlockSize(), t.BlockBytes()))
	}
	return codecs[t]
}

func dequantizeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func quantizeF32(dst []byte, src []float32) {
	for i, x := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}
