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

// integerTiles computes products with quantised weights by assembly kernels: weight rows are unpacked to 8-bit codes, a
// panel of rows is laid out with one row per lane, and the panel multiplies the activation rows a few at a time. A few
// activation rows are left to the decoders, which give the same results.
type integerTiles struct {
	panelLayout
	decode  *decoders
	inputs  []int
	kernels map[gguf.Type][]integerFunc // by number of activation rows as in inputs; nil where there is none for so many
}

// panelLayout lays out panels of weight rows.
type panelLayout struct {
	rows, lanes int                // of a panel; of a vector
	raise       map[gguf.Type]int8 // what is added to the codes
	transposed  transposeFunc
	interleave  func(dst *int8, strideDst int, src *int8, strideSrc int, n int, raise int8)
}

// panelDepth is the number of columns unpacked at a time: codes, panel and activations of it fit the first-level cache.
const panelDepth = 512

var unpackers = map[gguf.Type]unpackFunc{
	gguf.Q4_0: unpackQ4_0AVX2, gguf.Q4_1: unpackQ4_1AVX2, gguf.Q5_0: unpackQ5_0AVX2, gguf.Q5_1: unpackQ5_1AVX2,
	gguf.Q8_0: unpackQ8_0AVX2, gguf.IQ4_NL: unpackIQ4_NLAVX2, gguf.Q2_K: unpackQ2_KAVX2, gguf.Q3_K: unpackQ3_KAVX2,
	gguf.Q4_K: unpackQ4_KAVX2, gguf.Q5_K: unpackQ5_KAVX2, gguf.Q6_K: unpackQ6_KAVX2, gguf.IQ4_XS: unpackIQ4_XSAVX2,
}

// layoutAVX2 leaves codes as they are.
func layoutAVX2() panelLayout {
	return panelLayout{rows: 8, lanes: 8, transposed: transposeF32AVX2, interleave: interleaveAVX2}
}

func layoutAVX512() panelLayout {
	return panelLayout{rows: 32, lanes: 16, transposed: transposeF32AVX512, interleave: interleaveAVX512}
}

// raised is a layout that raises codes of all types by 128, so that none is negative.
func (l panelLayout) raised() panelLayout {
	l.raise = map[gguf.Type]int8{}
	for t := range formats {
		l.raise[t] = -128 // the same as 128 in eight bits
	}
	return l
}

// byType is quantPanel by those tiles that have kernels for the type of the weights.
func byType(all ...*integerTiles) func(m *product, s *scratch, from, to int) {
	return func(m *product, s *scratch, from, to int) {
		for _, t := range all {
			if t.kernels[m.w.Type] != nil {
				t.panel(m, s, from, to)
				return
			}
		}
	}
}

// signedTilesAVX2 are for formats whose codes take all of eight bits.
func signedTilesAVX2() *integerTiles {
	blocks := []integerFunc{blocks4AVX2, blocks2AVX2, blocks1AVX2}
	return &integerTiles{
		panelLayout: layoutAVX2(), decode: &decodersAVX2, inputs: []int{4, 2, 1},
		kernels: map[gguf.Type][]integerFunc{
			gguf.Q8_0: blocks, gguf.IQ4_NL: blocks, gguf.IQ4_XS: {supers32x4AVX2, supers32x2AVX2, supers32x1AVX2},
		},
	}
}

// narrowTilesAVX2 are for the others; the codes in a panel are as they are stored, before the format's offset is subtracted.
func narrowTilesAVX2() *integerTiles {
	t := &integerTiles{
		panelLayout: layoutAVX2(), decode: &decodersAVX2, inputs: []int{3, 2, 1},
		kernels: map[gguf.Type][]integerFunc{
			gguf.Q4_0: {blocks4Bitsx3AVX2, blocks4Bitsx2AVX2, blocks4Bitsx1AVX2},
			gguf.Q5_0: {nil, blocks5Bitsx2AVX2, blocks5Bitsx1AVX2},
			gguf.Q4_1: {blocksMin4Bitsx3AVX2, blocksMin4Bitsx2AVX2, blocksMin4Bitsx1AVX2},
			gguf.Q5_1: {nil, blocksMin5Bitsx2AVX2, blocksMin5Bitsx1AVX2},
			gguf.Q2_K: {supersMin2BitsRun16x3AVX2, supersMin2BitsRun16x2AVX2, supersMin2BitsRun16x1AVX2},
			gguf.Q3_K: {supers3BitsRun16x3AVX2, supers3BitsRun16x2AVX2, supers3BitsRun16x1AVX2},
			gguf.Q4_K: {supersMin4BitsRun32x3AVX2, supersMin4BitsRun32x2AVX2, supersMin4BitsRun32x1AVX2},
			gguf.Q5_K: {supersMin5BitsRun32x3AVX2, supersMin5BitsRun32x2AVX2, supersMin5BitsRun32x1AVX2},
			gguf.Q6_K: {supers6BitsRun16x3AVX2, supers6BitsRun16x2AVX2, supers6BitsRun16x1AVX2},
		},
	}
	t.rows = 16
	t.raise = map[gguf.Type]int8{gguf.Q4_0: 8, gguf.Q5_0: 16, gguf.Q3_K: 4, gguf.Q6_K: 32}
	return t
}

func integerTilesAVX512() *integerTiles {
	t := &integerTiles{
		panelLayout: layoutAVX512().raised(), decode: &decodersAVX512, inputs: []int{6, 4, 2, 1}, kernels: map[gguf.Type][]integerFunc{},
	}
	for typ, f := range formats {
		t.kernels[typ] = kernelsAVX512(f)
	}
	return t
}

func kernelsAVX512(f *format) []integerFunc {
	switch {
	case !f.super && !f.minima:
		return []integerFunc{blocks6AVX512, blocks4AVX512, blocks2AVX512, blocks1AVX512}
	case !f.super:
		return []integerFunc{blocksMin6AVX512, blocksMin4AVX512, blocksMin2AVX512, blocksMin1AVX512}
	case f.run == 16 && !f.minima:
		return []integerFunc{supers16x6AVX512, supers16x4AVX512, supers16x2AVX512, supers16x1AVX512}
	case f.run == 16:
		return []integerFunc{supersMin16x6AVX512, supersMin16x4AVX512, supersMin16x2AVX512, supersMin16x1AVX512}
	case !f.minima:
		return []integerFunc{supers32x6AVX512, supers32x4AVX512, supers32x2AVX512, supers32x1AVX512}
	}
	return []integerFunc{supersMin32x6AVX512, supersMin32x4AVX512, supersMin32x2AVX512, supersMin32x1AVX512}
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
func (l *panelLayout) pack(w *Matrix, f *format, unpack unpackFunc, p *integerPanel, r, rows, k, depth int) {
	block, words := 32, int(unsafe.Sizeof(blockScale{}))/4
	if f.super {
		block, words = 256, int(unsafe.Sizeof(superScale{}))/4
	}
	width := (depth + 63) / 64 * 64
	words = (words*depth/block + 15) / 16 * 16
	p.codes, p.side = grow(p.codes, l.rows*width), grow(p.side, l.rows*words)
	p.laneCodes, p.laneSide = grow(p.laneCodes, l.rows*width), grow(p.laneSide, l.rows*words)
	stride := w.Type.RowBytes(w.Cols)
	unpack(&p.codes[0], width, (*byte)(unsafe.Pointer(&p.side[0])), words*4, &w.Data[r*stride+w.Type.RowBytes(k)], stride, rows, depth/block)
	for lane := 0; lane < l.rows; lane += l.lanes {
		l.interleave(&p.laneCodes[lane*4], l.rows*4, &p.codes[lane*width], width, width, l.raise[w.Type])
		l.transposed((*float32)(unsafe.Pointer(&p.laneSide[lane])), l.rows*4, (*byte)(unsafe.Pointer(&p.side[lane*words])), words*4, words)
	}
}

// multiply adds the products of the panel with columns [k, k+depth) of all activation rows.
func (t *integerTiles) multiply(m *product, f *format, s *scratch, k, depth int) {
	codes, side, strideSide, blocks := m.in.integerForm(f, k, depth)
	kernels := t.kernels[m.w.Type]
	scales := (*byte)(unsafe.Pointer(&s.panel.laneSide[0]))
	for i, j := 0, 0; i < m.in.n; {
		if m.in.n-i < t.inputs[j] || kernels[j] == nil {
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
