//go:build !purego

package kernel

import (
	"unsafe"

	"attnbudget/engine/gguf"
)

type (
	dotEightFunc  = func(dst *float32, w *byte, stride int, x *int8, side *byte, blocks int)
	dotSuperFunc  = func(dst *float32, w *byte, stride int, rows int, x *int8, side *byte, blocks int)
	dotEightsFunc = func(dst *float32, w *byte, stride int, eights int, x *int8, side *byte, blocks int)
)

// decoders multiply few activation rows straight from the blocks of the weights: eight weight rows of a simple format at a
// time, any number of a K format. Where there are kernels for any multiple of eight rows they are better; of a simple format
// they take an even number of blocks.
type decoders struct {
	eight  map[gguf.Type]dotEightFunc
	super  map[gguf.Type]dotSuperFunc
	eights map[gguf.Type]dotEightsFunc
}

var decodersAVX2 = decoders{
	eight: map[gguf.Type]dotEightFunc{
		gguf.Q4_0: dot8Q4_0AVX2, gguf.Q4_1: dot8Q4_1AVX2, gguf.Q5_0: dot8Q5_0AVX2, gguf.Q5_1: dot8Q5_1AVX2,
		gguf.Q8_0: dot8Q8_0AVX2, gguf.IQ4_NL: dot8IQ4_NLAVX2,
	},
	super: map[gguf.Type]dotSuperFunc{
		gguf.Q2_K: dotQ2_KAVX2, gguf.Q3_K: dotQ3_KAVX2, gguf.Q4_K: dotQ4_KAVX2, gguf.Q5_K: dotQ5_KAVX2,
		gguf.Q6_K: dotQ6_KAVX2, gguf.IQ4_XS: dotIQ4_XSAVX2,
	},
	eights: map[gguf.Type]dotEightsFunc{
		gguf.Q2_K: dotEightsQ2_KAVX2, gguf.Q3_K: dotEightsQ3_KAVX2, gguf.Q4_K: dotEightsQ4_KAVX2, gguf.Q5_K: dotEightsQ5_KAVX2,
		gguf.Q6_K: dotEightsQ6_KAVX2, gguf.IQ4_XS: dotEightsIQ4_XSAVX2,
	},
}

var decodersAVX512 = decoders{
	eight: decodersAVX2.eight, super: decodersAVX2.super,
	eights: map[gguf.Type]dotEightsFunc{
		gguf.Q2_K: dotEightsQ2_KAVX512, gguf.Q3_K: dotEightsQ3_KAVX512, gguf.Q4_K: dotEightsQ4_KAVX512, gguf.Q5_K: dotEightsQ5_KAVX512,
		gguf.Q6_K: dotEightsQ6_KAVX512, gguf.IQ4_XS: dotEightsIQ4_XSAVX512,
		gguf.Q4_0: dotEightsQ4_0AVX512, gguf.Q4_1: dotEightsQ4_1AVX512, gguf.Q5_0: dotEightsQ5_0AVX512, gguf.Q5_1: dotEightsQ5_1AVX512,
		gguf.Q8_0: dotEightsQ8_0AVX512, gguf.IQ4_NL: dotEightsIQ4_NLAVX512,
	},
}

// rows computes the outputs of weight rows from on, as many as it can up to to, and returns the first it has not.
func (d *decoders) rows(m *product, f *format, from, to int) int {
	codes, side, strideSide, blocks := m.in.integerForm(f, 0, m.w.Cols)
	stride := m.w.Type.RowBytes(m.w.Cols)
	x := func(i int) (*int8, *byte) { return &codes[i*m.w.Cols], (*byte)(unsafe.Add(side, i*strideSide)) }
	if dot, eights := d.eights[m.w.Type], (to-from)/8; dot != nil && eights > 0 && (f.super || blocks%2 == 0) {
		for i := range m.in.n {
			c, s := x(i)
			dot(&m.dst[i*m.w.Rows+from], &m.w.Data[from*stride], stride, eights, c, s, blocks)
		}
		from += 8 * eights
	}
	if from == to {
		return to
	}
	if dot := d.super[m.w.Type]; dot != nil {
		for i := range m.in.n {
			c, s := x(i)
			dot(&m.dst[i*m.w.Rows+from], &m.w.Data[from*stride], stride, to-from, c, s, blocks)
		}
		return to
	}
	dot := d.eight[m.w.Type]
	for ; dot != nil && from+8 <= to; from += 8 {
		for i := range m.in.n {
			c, s := x(i)
			dot(&m.dst[i*m.w.Rows+from], &m.w.Data[from*stride], stride, c, s, blocks)
		}
	}
	return from
}
