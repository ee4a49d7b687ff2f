package kernel

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
)

// productShape is a product of made-up weights and activations: rows x cols weights with n activation rows. Upstream takes
// different routes by the remainder of rows modulo 8 and by n.
type productShape struct{ rows, blocks, n int }

var productShapes = []productShape{{8, 3, 1}, {8, 3, 11}, {5, 3, 1}, {5, 2, 3}}

// build makes weights and activations from integers alone, so that they are the same for ever. Blocks of activations are of
// different size, one is zero and one has extremes of both signs.
func (s productShape) build(t gguf.Type) (*Matrix, []float32) {
	r := rand.NewPCG(uint64(t), uint64(s.rows*100+s.n))
	cols := s.blocks * t.BlockSize()
	w := &Matrix{Type: t, Rows: s.rows, Cols: cols, Data: make([]byte, s.rows*t.RowBytes(cols))}
	for i := range w.Data {
		w.Data[i] = byte(r.Uint64() >> 32)
	}
	for b := 0; b < len(w.Data); b += t.BlockBytes() {
		for _, at := range scaleOffsets(t) { // half precision numbers from 2^-8 to 2^3
			w.Data[b+at+1] = w.Data[b+at+1]&0x83 | byte(7+r.Uint64()>>32%11)<<2
		}
	}
	x := make([]float32, s.n*cols)
	for i := range x {
		x[i] = float32(int32(r.Uint64()>>32)) * float32(math.Exp2(float64(-24-i/64%7)))
	}
	clear(x[len(x)-t.BlockSize():])
	x[3], x[9] = 1000, -1000
	return w, x
}

// The file has the results of upstream's own MUL_MAT, compiled for AVX2 (libggml-cpu-haswell), for
// these weights and activations: a line for each product, the bits of one result after the other in hexadecimal. A C program
// called it on a graph of that one node with one thread, the weights in a buffer of the "repack" type where upstream's model
// loader would put them there (Q4_0, Q4_K, IQ4_NL with a multiple of eight rows), else in an ordinary one.
func TestProductsInUpstreamsOrderAreUpstreams(t *testing.T) {
	want := map[string]string{}
	f, err := os.Open("upstream/testdata/products.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, bits, _ := strings.Cut(lines.Text(), ": ")
		want[name] = bits
	}
	for _, k := range available() {
		k = inUpstreamsOrder(k)
		for _, typ := range weightTypes {
			if isFloat(typ) {
				continue
			}
			for _, s := range productShapes {
				w, x := s.build(typ)
				name := fmt.Sprintf("%v %dx%d %d", typ, w.Rows, w.Cols, s.n)
				if got := inBits(multipliedBy(&k, w, x, s.n)); got != want[name] {
					t.Errorf("%s:\n got %s\nwant %s", name, got, want[name])
				}
			}
		}
	}
}

func inBits(x []float32) string {
	var b strings.Builder
	for _, v := range x {
		fmt.Fprintf(&b, "%08x", math.Float32bits(v))
	}
	return b.String()
}

func TestProductKernelsInUpstreamsOrderAgreeWithGeneric(t *testing.T) {
	g := inUpstreamsOrder(generic())
	vectorKernels(t, func(t *testing.T, k *kernels) {
		ordered := inUpstreamsOrder(*k)
		r := rand.New(rand.NewPCG(61, 62))
		for _, typ := range weightTypes {
			if isFloat(typ) {
				continue
			}
			for _, shape := range [][3]int{{1, 256, 1}, {33, 512, 1}, {8, 768, 2}, {16, 256, 3}, {40, 2304, 4}, {32, 512, 90}, {70, 256, 17}} {
				rows, cols, n := shape[0], shape[1], shape[2]
				for _, w := range []*Matrix{randomMatrix(r, typ, rows, cols), extremeMatrix(r, typ, rows, cols)} {
					x := extremes(r, n*cols)
					same(t, fmt.Sprintf("%v %v", typ, shape), multipliedBy(&ordered, w, x, n), multipliedBy(&g, w, x, n))
				}
			}
		}
	})
}

func TestProductsInUpstreamsOrderAllocateNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(63, 64))
	k := inUpstreamsOrder(best())
	for _, n := range []int{1, 20} {
		for _, typ := range weightTypes {
			p, in := NewPool(1), NewInput()
			p.kernels = &k
			w, x, dst := randomMatrix(r, typ, 40, 512), random(r, n*512), make([]float32, n*40)
			call := func() {
				in.Set(p, x, n, 512)
				p.MatMul(dst, w, in)
			}
			if a := testing.AllocsPerRun(5, call); a != 0 {
				t.Errorf("%v, %d rows: %v allocations per call, want 0", typ, n, a)
			}
			p.Close()
		}
	}
}
