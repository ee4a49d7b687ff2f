//go:build !purego

package kernel

import (
	"unsafe"

	"attnbudget/engine/gguf"
)

type (
	integerFunc = func(sums *float32, panel *int8, scales *byte, x *int8, strideX int, side *byte, strideSide int, blocks int)
	unpackFunc  = func(codes *int8, strideCodes int, side *byte, strideSide int, src *byte, strideSrc int, rows int, blocks int)
)

// integerTiles computes products with quantised weights by assembly kernels: weight rows are unpacked to signed 8-bit
// codes, a panel of rows is laid out with one row per lane, and the panel multiplies the activation rows a few at a time.
// A few activation rows are left to the decoders, which give the same results.
type integerTiles struct {
	decode      *decoders
	rows, lanes int // of a panel; of a vector
	inputs      []int
	// kernels by number of activation rows as in inputs
	blocks, blocksMin                            []integerFunc
	supers16, supersMin16, supers32, supersMin32 []integerFunc
	transposed                                   transposeFunc
	interleave                                   func(dst *int8, strideDst int, src *int8, strideSrc int, n int)
}

// panelDepth is the number of columns unpacked at a time: codes, panel and activations of it fit the first-level cache.
const panelDepth = 512

var unpackers = map[gguf.Type]unpackFunc{
	gguf.Q4_0: unpackQ4_0AVX2, gguf.Q4_1: unpackQ4_1AVX2, gguf.Q5_0: unpackQ5_0AVX2, gguf.Q5_1: unpackQ5_1AVX2,
	gguf.Q8_0: unpackQ8_0AVX2, gguf.IQ4_NL: unpackIQ4_NLAVX2, gguf.Q2_K: unpackQ2_KAVX2, gguf.Q3_K: unpackQ3_KAVX2,
	gguf.Q4_K: unpackQ4_KAVX2, gguf.Q5_K: unpackQ5_KAVX2, gguf.Q6_K: unpackQ6_KAVX2, gguf.IQ4_XS: unpackIQ4_XSAVX2,
}

func integerTilesAVX2() *integerTiles {
	return &integerTiles{
		decode: &decodersAVX2, rows: 8, lanes: 8, inputs: []int{4, 2, 1},
		blocks:      []integerFunc{blocks4AVX2, blocks2AVX2, blocks1AVX2},
		blocksMin:   []integerFunc{blocksMin4AVX2, blocksMin2AVX2, blocksMin1AVX2},
		supers16:    []integerFunc{supers16x4AVX2, supers16x2AVX2, supers16x1AVX2},
		supersMin16: []integerFunc{supersMin16x4AVX2, supersMin16x2AVX2, supersMin16x1AVX2},
		supers32:    []integerFunc{supers32x4AVX2, supers32x2AVX2, supers32x1AVX2},
		supersMin32: []integerFunc{supersMin32x4AVX2, supersMin32x2AVX2, supersMin32x1AVX2},
		transposed:  transposeF32AVX2,
		interleave: func(dst *int8, strideDst int, src *int8, strideSrc int, n int) {
			transposeF32AVX2((*float32)(unsafe.Pointer(dst)), strideDst, (*byte)(unsafe.Pointer(src)), strideSrc, n/4)
		},
	}
}

func integerTilesAVX512() *integerTiles {
	return &integerTiles{
		decode: &decodersAVX512, rows: 32, lanes: 16, inputs: []int{6, 4, 2, 1},
		blocks:      []integerFunc{blocks6AVX512, blocks4AVX512, blocks2AVX512, blocks1AVX512},
		blocksMin:   []integerFunc{blocksMin6AVX512, blocksMin4AVX512, blocksMin2AVX512, blocksMin1AVX512},
		supers16:    []integerFunc{supers16x6AVX512, supers16x4AVX512, supers16x2AVX512, supers16x1AVX512},
		supersMin16: []integerFunc{supersMin16x6AVX512, supersMin16x4AVX512, supersMin16x2AVX512, supersMin16x1AVX512},
		supers32:    []integerFunc{supers32x6AVX512, supers32x4AVX512, supers32x2AVX512, supers32x1AVX512},
		supersMin32: []integerFunc{supersMin32x6AVX512, supersMin32x4AVX512, supersMin32x2AVX512, supersMin32x1AVX512},
		transposed:  transposeF32AVX512,
		interleave:  interleaveAVX512,
	}
}

// kernels returns the kernels of a format.
func (t *integerTiles) kernels(f *format) []integerFunc {
	switch {
	case !f.super && !f.minima:
		return t.blocks
	case !f.super:
		return t.blocksMin
	case f.run == 16 && !f.minima:
		return t.supers16
	case f.run == 16:
		return t.supersMin16
	case !f.minima:
		return t.supers32
	}
	return t.supersMin32
}

// panel is quantPanel.
func (t *integerTiles) panel(m *product, s *scratch, from, to int) {
	f, unpack := formatOf(m.w.Type), unpackers[m.w.Type]
	if m.in.n <= decodeInputs {
		from = t.decode.rows(m, f, from, to)
	}
	s.sums = grow(s.sums, m.in.n*t.rows)
	for r := from; r < to; r += t.rows {
		rows := min(t.rows, to-r)
		clear(s.sums)
		for k := 0; k < m.w.Cols; k += panelDepth {
			depth := min(panelDepth, m.w.Cols-k)
			t.pack(m.w, f, unpack, &s.panel, r, rows, k, depth)
			t.multiply(m, f, s, k, depth)
		}
		for i := range m.in.n {
			copy(m.dst[i*m.w.Rows+r:][:rows], s.sums[i*t.rows:])
		}
	}
}

// pack unpacks columns [k, k+depth) of the rows from r on and lays them out. What fills up the panel is arbitrary.
func (t *integerTiles) pack(w *Matrix, f *format, unpack unpackFunc, p *integerPanel, r, rows, k, depth int) {
	block, words := 32, int(unsafe.Sizeof(blockScale{}))/4
	if f.super {
		block, words = 256, int(unsafe.Sizeof(superScale{}))/4
	}
	width := (depth + 63) / 64 * 64
	words = (words*depth/block + 15) / 16 * 16
	p.codes, p.side = grow(p.codes, t.rows*width), grow(p.side, t.rows*words)
	p.laneCodes, p.laneSide = grow(p.laneCodes, t.rows*width), grow(p.laneSide, t.rows*words)
	stride := w.Type.RowBytes(w.Cols)
	unpack(&p.codes[0], width, (*byte)(unsafe.Pointer(&p.side[0])), words*4, &w.Data[r*stride+w.Type.RowBytes(k)], stride, rows, depth/block)
	for l := 0; l < t.rows; l += t.lanes {
		t.interleave(&p.laneCodes[l*4], t.rows*4, &p.codes[l*width], width, width)
		t.transposed((*float32)(unsafe.Pointer(&p.laneSide[l])), t.rows*4, (*byte)(unsafe.Pointer(&p.side[l*words])), words*4, words)
	}
}

// multiply adds the products of the panel with columns [k, k+depth) of all activation rows.
func (t *integerTiles) multiply(m *product, f *format, s *scratch, k, depth int) {
	codes, side, strideSide, blocks := m.in.integerForm(f, k, depth)
	kernels := t.kernels(f)
	scales := (*byte)(unsafe.Pointer(&s.panel.laneSide[0]))
	for i, j := 0, 0; i < m.in.n; {
		if m.in.n-i < t.inputs[j] {
			j++
			continue
		}
		kernels[j](&s.sums[i*t.rows], &s.panel.laneCodes[0], scales, &codes[i*m.w.Cols+k], m.w.Cols,
			(*byte)(unsafe.Add(side, i*strideSide)), strideSide, blocks)
		i += t.inputs[j]
	}
}

// integerForm returns the activations that weights of format f multiply: codes [n][cols], and the first row's record for
// column k, the distance in bytes to the next row's, and the number of blocks in depth columns.
func (in *Input) integerForm(f *format, k, depth int) (codes []int8, side unsafe.Pointer, strideSide, blocks int) {
	if f.super {
		return in.q8k.codes, unsafe.Pointer(&in.q8k.side[k/256]), in.cols / 256 * int(unsafe.Sizeof(superSide{})), depth / 256
	}
	return in.q8.codes, unsafe.Pointer(&in.q8.side[k/32]), in.cols / 32 * int(unsafe.Sizeof(blockSide{})), depth / 32
}
