package kernel

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"attnbudget/engine/kernel/upstream"
)

// recorded returns the lines "name: bits" of a file under upstream/testdata.
func recorded(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open("upstream/testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	values := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, bits, _ := strings.Cut(lines.Text(), ": ")
		values[name] = bits
	}
	return values
}

// made returns n numbers within ±size, made from integers alone so that they are the same for ever.
func made(r *rand.PCG, n int, size float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(int32(r.Uint64()>>32)) * 0x1p-31 * size
	}
	return x
}

// recordedRule is a delta rule that upstream has computed as well. Its state is row by row, [value][key].
type recordedRule struct {
	n, dim                     int
	q, k, v, gate, beta, state []float32
}

var recordedRules = []struct{ n, dim int }{{1, 128}, {3, 128}, {5, 64}, {4, 40}}

func newRecordedRule(n, dim int) *recordedRule {
	r := rand.NewPCG(uint64(n), uint64(dim))
	d := &recordedRule{
		n: n, dim: dim, q: made(r, n*dim, 0.125), k: made(r, n*dim, 0.125), v: made(r, n*dim, 1),
		gate: made(r, n, 0.75), beta: made(r, n, 0.5), state: made(r, dim*dim, 0.5),
	}
	for i := range n {
		d.gate[i] -= 0.75
		d.beta[i] += 0.5
	}
	return d
}

func (d *recordedRule) rule() *DeltaRule {
	rule := &DeltaRule{
		State: make([]float32, d.dim*d.dim), Q: d.q, K: d.k, V: d.v, Out: make([]float32, d.n*d.dim),
		StrideV: d.dim, StrideOut: d.dim, Beta: d.beta, N: d.n, DimK: d.dim, DimV: d.dim, Scale: 1 / float32(math.Sqrt(float64(d.dim))),
	}
	for v := range d.dim {
		state, cols := rule.strip(v / StateStrip)
		for k := range d.dim {
			state[k*cols+v%StateStrip] = d.state[v*d.dim+k]
		}
	}
	for _, g := range d.gate {
		rule.Decay = append(rule.Decay, upstream.ScalarExp(g))
	}
	return rule
}

// The file has the outputs of all tokens by upstream's own GATED_DELTA_NET, compiled for AVX2 (libggml-cpu-haswell): a line for
// each rule, the bits of one float32 after the other in hexadecimal. A C program computed a graph of that one node, with one
// head and one sequence.
func TestDeltaRuleIsUpstreams(t *testing.T) {
	want := recorded(t, "delta.txt")
	for _, k := range available() {
		for _, c := range recordedRules {
			d := newRecordedRule(c.n, c.dim).rule()
			k.delta(*d, 0, d.Strips())
			name := fmt.Sprintf("delta %dx%d", c.n, c.dim)
			if got := inBits(d.Out); got != want[name] {
				t.Errorf("%s, %s:\n got %s\nwant %s", k.name, name, got, want[name])
			}
		}
	}
}

var recordedConvolutions = []struct{ n, taps, channels int }{{5, 4, 19}, {3, 3, 16}, {3, 6, 5}}

func newRecordedConvolution(n, taps, channels int) Convolution {
	r := rand.NewPCG(uint64(n*100+taps), uint64(channels))
	return Convolution{
		X: made(r, (n+taps-1)*channels, 4), Weights: made(r, taps*channels, 1), Dst: make([]float32, n*channels),
		StrideX: channels, StrideWeights: channels, StrideDst: channels, N: n, Taps: taps, Channels: channels,
	}
}

// The results in the file are those of SSM_CONV, token by token.
func TestConvolutionIsUpstreams(t *testing.T) {
	want := recorded(t, "delta.txt")
	for _, k := range available() {
		for _, s := range recordedConvolutions {
			c := newRecordedConvolution(s.n, s.taps, s.channels)
			k.convolve(c)
			name := fmt.Sprintf("convolution %dx%d of %d", s.n, s.channels, s.taps)
			if got := inBits(c.Dst); got != want[name] {
				t.Errorf("%s, %s:\n got %s\nwant %s", k.name, name, got, want[name])
			}
		}
	}
}
