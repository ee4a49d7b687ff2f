package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"attnbudget/engine/gguf"
)

// BenchmarkDecode multiplies one activation row; MB/s are weight bytes.
func BenchmarkDecode(b *testing.B) {
	r := rand.New(rand.NewPCG(31, 32))
	const cols = 2048
	for _, t := range weightTypes {
		// 64 MB of weights, more than the caches hold.
		rows := (64 << 20) / t.RowBytes(cols)
		b.Run(t.String(), func(b *testing.B) { benchmarkProduct(b, r, t, rows, cols, 1) })
	}
}

// BenchmarkPrefill multiplies 512 activation rows.
func BenchmarkPrefill(b *testing.B) {
	r := rand.New(rand.NewPCG(33, 34))
	for _, t := range weightTypes {
		b.Run(t.String(), func(b *testing.B) { benchmarkProduct(b, r, t, 512, 2048, 512) })
	}
}

func benchmarkProduct(b *testing.B, r *rand.Rand, t gguf.Type, rows, cols, n int) {
	p, in := NewPool(0), NewInput()
	defer p.Close()
	few := extremeMatrix(r, t, 64, cols) // repeated: the bytes' values do not matter for speed
	w := &Matrix{Type: t, Rows: rows, Cols: cols, Data: make([]byte, rows*t.RowBytes(cols))}
	for at := 0; at < len(w.Data); {
		at += copy(w.Data[at:], few.Data)
	}
	x, dst := random(r, n*cols), make([]float32, n*rows)
	b.SetBytes(int64(len(w.Data)))
	for b.Loop() {
		in.Set(p, x, n, cols)
		p.MatMul(dst, w, in)
	}
	b.ReportMetric(2*float64(rows*cols*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

// BenchmarkAttend attends from n rows at the given depth.
func BenchmarkAttend(b *testing.B) {
	r := rand.New(rand.NewPCG(35, 36))
	for _, typ := range []gguf.Type{gguf.F16, gguf.Q8_0, gguf.Q4_0} {
		for _, dim := range []int{64, 128} {
			for _, n := range []int{1, 512} {
				c := attentionCase{k: typ, v: typ, n: n, cells: 4096, heads: 16, headsKV: 4, dimK: dim, dimV: dim, visible: causal(4096 - n)}
				b.Run(fmt.Sprintf("%v/%d/%d", typ, dim, n), func(b *testing.B) {
					a, p := c.build(r), NewPool(0)
					defer p.Close()
					b.SetBytes(int64(len(a.K.Data) + len(a.V.Data)))
					for b.Loop() {
						p.Attend(a)
					}
					b.ReportMetric(4*float64(n*c.cells*c.heads*dim)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
