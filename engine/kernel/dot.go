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
	in, cols, rows := m.in, m.w.Cols, m.w.Rows
	s.codes.resize(cols, f)
	for r := from; r < to; r++ {
		f.unpack(&s.codes, m.w.row(r))
		for i := range in.n {
			if f.super {
				m.dst[i*rows+r] = dotSupers(&s.codes, f.minima, &in.q8k, i, cols)
			} else {
				m.dst[i*rows+r] = dotBlocks(&s.codes, f.minima, &in.q8, i, cols)
			}
		}
	}
}

// dotBlocks is the product of an unpacked row of a simple format with activation row i. The float32 conversions forbid
// fusing, so that every machine gives the same bits.
func dotBlocks(w *rowCodes, minima bool, q *q8Blocks, i, cols int) float32 {
	nb := cols / 32
	x, d, s := q.codes[i*cols:][:cols], q.d[i*nb:][:nb], q.s[i*nb:][:nb]
	var sum float32
	for b := range nb {
		sum += float32(float32(w.d[b]*d[b]) * float32(dotCodes(w.codes[b*32:][:32], x[b*32:][:32])))
		if minima {
			sum += float32(w.m[b] * s[b])
		}
	}
	return sum
}

// dotSupers is the product of an unpacked row of a K format with activation row i.
func dotSupers(w *rowCodes, minima bool, q *q8Supers, i, cols int) float32 {
	nb := cols / 256
	x, d, sums := q.codes[i*cols:][:cols], q.d[i*nb:][:nb], q.sums[i*cols/16:][:cols/16]
	var sum float32
	for b := range nb {
		var whole, low int32
		for j := b * 16; j < (b+1)*16; j++ {
			whole += int32(w.scales[j]) * dotCodes(w.codes[j*16:][:16], x[j*16:][:16])
		}
		sum += float32(float32(w.d[b]*d[b]) * float32(whole))
		if minima {
			for j := b * 16; j < (b+1)*16; j++ {
				low += int32(w.mins[j]) * int32(sums[j])
			}
			sum -= float32(float32(w.m[b]*d[b]) * float32(low))
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
