package kernel

import (
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"
	"attnbudget/engine/quant"
)

// inEights tells in which order the elements of a row of w are added: in eight partial sums, or in 32 as upstream does
// where the tiles of its matrix product do not fit.
func inEights(w *Matrix) bool { return w.Cols%8 == 0 && w.Rows%4 == 0 }

// floatPanel computes the outputs of weight rows [from, to) for float weights.
func floatPanel(m *product, s *scratch, from, to int) {
	dot := dot32
	if inEights(m.w) {
		dot = dot8
	}
	rowByRow(m, s, from, to, quant.Dequantize, dot)
}

// rowByRow widens each row once for the batch.
func rowByRow(m *product, s *scratch, from, to int, widen func(t gguf.Type, dst []float32, src []byte), dot func(t gguf.Type, a, b []float32) float32) {
	in, t, cols, rows := m.in, m.w.Type, m.w.Cols, m.w.Rows
	x := in.floats(t)
	s.row = grow(s.row, cols)
	for r := from; r < to; r++ {
		widen(t, s.row, m.w.row(r))
		for i := range in.n {
			m.dst[i*rows+r] = dot(t, s.row, x[i*cols:][:cols])
		}
	}
}

// dot8 is the product of two rows in eight partial sums.
func dot8(_ gguf.Type, a, b []float32) float32 { return upstream.Dot8(a, b) }

// dot32 is the product of two rows of numbers of type t in 32 partial sums.
func dot32(t gguf.Type, a, b []float32) float32 {
	whole := len(a) / 32 * 32
	sums := upstream.Sums32(a[:whole], b[:whole])
	return endDot32(t, &sums, a[whole:], b[whole:])
}

func endDot32(t gguf.Type, sums *[8]float32, a, b []float32) float32 {
	switch t {
	case gguf.F16:
		return upstream.EndDotF16(sums, a, b)
	case gguf.BF16:
		return upstream.EndDotBF16(sums, a, b)
	}
	return upstream.EndDot32(sums, a, b)
}

// quantPanel computes the outputs of weight rows [from, to) for quantised weights: each row is unpacked once for the batch.
func quantPanel(m *product, s *scratch, from, to int) {
	f := formatOf(m.w.Type)
	cols, rows := m.w.Cols, m.w.Rows
	s.codes.resize(cols, f)
	for r := from; r < to; r++ {
		f.unpack(&s.codes, m.w.row(r))
		for i := range m.in.n {
			if f.super {
				x, side := m.in.q8k.row(i, cols)
				m.dst[i*rows+r] = dotSupers(s.codes.codes, s.codes.super, f, x, side)
			} else {
				x, side := m.in.q8.row(i, cols)
				m.dst[i*rows+r] = dotBlocks(s.codes.codes, s.codes.simple, f, x, side)
			}
		}
	}
}

// dotBlocks is the product of a weight row of a simple format with an activation row. The float32 conversions forbid
// fusing, so that every machine gives the same bits.
func dotBlocks(w []int8, scales []blockScale, f *format, x []int8, side []blockSide) float32 {
	var sum float32
	for b, s := range scales {
		sum += float32(float32(s.d*side[b].d) * float32(dotCodes(w[b*32:][:32], x[b*32:][:32])))
		if f.minima {
			sum += float32(s.m * side[b].s)
		}
	}
	return sum
}

// dotSupers is the product of a weight row of a K format with an activation row.
func dotSupers(w []int8, scales []superScale, f *format, x []int8, side []superSide) float32 {
	var sum float32
	for b := range scales {
		s, a := &scales[b], &side[b]
		var whole, low int32
		for j, scale := range s.scales {
			at := b*256 + j*16
			whole += int32(scale) * dotCodes(w[at:][:16], x[at:][:16])
		}
		sum += float32(float32(s.d*a.d) * float32(whole))
		if f.minima {
			sums := a.sums[:]
			if f.run == 32 {
				sums = a.sums32[:]
			}
			for j, v := range sums {
				low += int32(s.mins[j]) * int32(v)
			}
			sum -= float32(float32(s.m*a.d) * float32(low))
		}
	}
	return sum
}

func dotCodes(a, b []int8) int32 {
	b = b[:len(a)]
	var sum int32
	for i, v := range a {
		sum += int32(v) * int32(b[i])
	}
	return sum
}

// isFloat reports whether rows of type t are plain numbers.
func isFloat(t gguf.Type) bool { return t == gguf.F32 || t == gguf.F16 || t == gguf.BF16 }
