package kernel

import (
	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

// floatPanel computes the outputs of weight rows [from, to) for float weights: each row is widened once for the batch.
func floatPanel(m *product, s *scratch, from, to int) {
	in, cols, rows := m.in, m.w.Cols, m.w.Rows
	x := in.floats(m.w.Type)
	for r := from; r < to; r++ {
		s.row = grow(s.row, cols)
		quant.Dequantize(m.w.Type, s.row, m.w.row(r))
		for i := range in.n {
			m.dst[i*rows+r] = dot(s.row, x[i*cols:][:cols])
		}
	}
}

// lanes is the number of partial sums of a float dot product.
const lanes = 16

// dot is the product of two float rows in the order that doc.go gives; what does not fill sixteen lanes is added last.
func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var sum [lanes]float32
	whole := len(a) / lanes * lanes
	for i := 0; i < whole; i += lanes {
		x, y := (*[lanes]float32)(a[i:]), (*[lanes]float32)(b[i:])
		for l := range lanes {
			sum[l] += x[l] * y[l]
		}
	}
	total := fold(&sum)
	for i := whole; i < len(a); i++ {
		total += a[i] * b[i]
	}
	return total
}

// fold adds sixteen partial sums: upper half to lower half until one is left.
func fold(sum *[lanes]float32) float32 {
	for n := lanes / 2; n > 0; n /= 2 {
		for l := range n {
			sum[l] += sum[l+n]
		}
	}
	return sum[0]
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
