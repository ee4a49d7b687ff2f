package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"attnbudget/engine/gguf"
)

// BenchmarkDecode multiplies one activation row, with weights in memory and with weights that the second-level cache holds,
// which shows what a kernel would do if memory were no limit. Best is of single products: what counts on a busy machine.
func BenchmarkDecode(b *testing.B) {
	r := rand.New(rand.NewPCG(31, 32))
	const cols = 2048
	for _, k := range available() {
		for _, t := range weightTypes {
			for _, size := range []struct {
				name           string
				bytes, threads int
			}{{"memory", 64 << 20, 0}, {"cache", 256 << 10, 1}} {
				if k.name == "generic" && size.name == "memory" {
					continue // takes long and says nothing more
				}
				rows := size.bytes / t.RowBytes(cols)
				b.Run(fmt.Sprintf("%s/%v/%s", k.name, t, size.name), func(b *testing.B) { benchmarkProduct(b, &k, r, t, rows, cols, 1, size.threads) })
			}
		}
	}
}

// BenchmarkPrefill multiplies 512 activation rows.
func BenchmarkPrefill(b *testing.B) {
	r := rand.New(rand.NewPCG(33, 34))
	for _, t := range weightTypes {
		b.Run(t.String(), func(b *testing.B) { benchmarkProduct(b, &active, r, t, 512, 2048, 512, 0) })
	}
}

func benchmarkProduct(b *testing.B, k *kernels, r *rand.Rand, t gguf.Type, rows, cols, n, threads int) {
	p, in := NewPool(threads), NewInput()
	p.kernels = k
	defer p.Close()
	few := extremeMatrix(r, t, 64, cols) // repeated: the bytes' values do not matter for speed
	w := &Matrix{Type: t, Rows: rows, Cols: cols, Data: make([]byte, rows*t.RowBytes(cols))}
	for at := 0; at < len(w.Data); {
		at += copy(w.Data[at:], few.Data)
	}
	x, dst := random(r, n*cols), make([]float32, n*rows)
	b.SetBytes(int64(len(w.Data)))
	best := time.Hour
	for b.Loop() {
		start := time.Now()
		in.Set(p, x, n, cols)
		p.MatMul(dst, w, in)
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(len(w.Data))/best.Seconds()/1e9, "best-GB/s")
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
