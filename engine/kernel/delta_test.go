package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// deltaCase is a head with everything of its own size.
type deltaCase struct{ n, dimK, dimV int }

// gates are how decays and learning rates are drawn.
var gates = map[string]func(r *rand.Rand) (decay, beta float32){
	"ordinary": func(r *rand.Rand) (float32, float32) { return exp(-3 * r.Float32() * r.Float32()), r.Float32() },
	"extreme": func(r *rand.Rand) (float32, float32) {
		decays, betas := []float32{0, 1e-38, 1e-30, exp(-20), 0.5, 1, 1 - 0x1p-24}, []float32{0, 1e-30, 0.5, 1 - 0x1p-24, 1}
		return decays[r.IntN(len(decays))], betas[r.IntN(len(betas))]
	},
	"nothing forgotten": func(r *rand.Rand) (float32, float32) { return 1, 1 },
	"nothing learnt":    func(r *rand.Rand) (float32, float32) { return 1 - 0.01*r.Float32(), 0 },
}

// build makes a rule whose keys and queries have length 1, as a DeltaNet's have.
func (c deltaCase) build(r *rand.Rand, gate func(r *rand.Rand) (decay, beta float32)) *DeltaRule {
	d := &DeltaRule{
		N: c.n, DimK: c.dimK, DimV: c.dimV, StrideV: c.dimV + 3, StrideOut: c.dimV + 5, Scale: float32(1 / math.Sqrt(float64(c.dimK))),
		Q: random(r, c.n*c.dimK), K: random(r, c.n*c.dimK), State: random(r, c.dimK*c.dimV),
	}
	d.V, d.Out = random(r, c.n*d.StrideV), make([]float32, c.n*d.StrideOut)
	for i := range c.n {
		Unit(d.Q[i*c.dimK:][:c.dimK], 1e-6)
		Unit(d.K[i*c.dimK:][:c.dimK], 1e-6)
		if i%5 == 4 { // a key again, as repetitive text has it
			copy(d.K[i*c.dimK:][:c.dimK], d.K[(i-1)*c.dimK:])
		}
		decay, beta := gate(r)
		d.Decay, d.Beta = append(d.Decay, decay), append(d.Beta, beta)
	}
	return d
}

// part is tokens [from, to) of d, on the same state.
func (d *DeltaRule) part(from, to int) *DeltaRule {
	p := *d
	p.N = to - from
	p.Q, p.K, p.V, p.Out = d.Q[from*d.DimK:], d.K[from*d.DimK:], d.V[from*d.StrideV:], d.Out[from*d.StrideOut:]
	p.Decay, p.Beta = d.Decay[from:], d.Beta[from:]
	return &p
}

func (d *DeltaRule) copy() *DeltaRule {
	c := *d
	c.State, c.Out = slices.Clone(d.State), slices.Clone(d.Out)
	return &c
}

// matrix is the state as float64 rows [DimV][DimK].
func (d *DeltaRule) matrix() [][]float64 {
	m := make([][]float64, d.DimV)
	for v := range m {
		m[v] = make([]float64, d.DimK)
		state, cols := d.strip(v / StateStrip)
		for k := range m[v] {
			m[v][k] = float64(state[k*cols+v%StateStrip])
		}
	}
	return m
}

func widen64(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func dot64(a, b []float64) float64 {
	var sum float64
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// sequential is the definition of the rule in float64; it returns outputs [N][DimV] and the state after them.
func (d *DeltaRule) sequential() (out, state [][]float64) {
	state = d.matrix()
	for t := range d.N {
		q, k := widen64(d.Q[t*d.DimK:][:d.DimK]), widen64(d.K[t*d.DimK:][:d.DimK])
		row := make([]float64, d.DimV)
		for v, s := range state {
			for i := range s {
				s[i] *= float64(d.Decay[t])
			}
			change := float64(d.Beta[t]) * (float64(d.V[t*d.StrideV+v]) - dot64(s, k))
			for i := range s {
				s[i] += change * k[i]
			}
			row[v] = float64(d.Scale) * dot64(s, q)
		}
		out = append(out, row)
	}
	return out, state
}

// chunked is the chunked form of the rule in float64, all tokens in one chunk: with D[i][j] the product of the decays of tokens
// j+1..i, the changes x solve (I + A) x = beta (v - D[i] S k) for A = strictly lower (beta_i k_i·k_j D[i][j]).
func (d *DeltaRule) chunked() (out, state [][]float64) {
	state = d.matrix()
	key := func(t int) []float64 { return widen64(d.K[t*d.DimK:][:d.DimK]) }
	decay := func(from, to int) float64 { // of tokens from+1..to
		p := 1.0
		for _, g := range d.Decay[from+1 : to+1] {
			p *= float64(g)
		}
		return p
	}
	changes := make([][]float64, d.N)
	for i := range d.N {
		changes[i], out = make([]float64, d.DimV), append(out, make([]float64, d.DimV))
		for v, s := range state {
			known := decay(-1, i) * dot64(s, key(i))
			for j := range i {
				known += dot64(key(i), key(j)) * decay(j, i) * changes[j][v]
			}
			changes[i][v] = float64(d.Beta[i]) * (float64(d.V[i*d.StrideV+v]) - known)
		}
		q := widen64(d.Q[i*d.DimK:][:d.DimK])
		for v, s := range state {
			sum := decay(-1, i) * dot64(s, q)
			for j := range i + 1 {
				sum += dot64(q, key(j)) * decay(j, i) * changes[j][v]
			}
			out[i][v] = float64(d.Scale) * sum
		}
	}
	for v, s := range state {
		for i := range s {
			s[i] *= decay(-1, d.N-1)
			for j := range d.N {
				s[i] += decay(j, d.N-1) * changes[j][v] * float64(d.K[j*d.DimK+i])
			}
		}
	}
	return out, state
}

// check compares d, which has been computed, with float64 results.
func (d *DeltaRule) check(t *testing.T, what string, out, state [][]float64) {
	t.Helper()
	// Keys have length 1 and betas are at most 1, so that a step lengthens no error; every token adds a few roundings of
	// numbers of the size of the state and of the values.
	limit := 3e-7 * float64(d.N+8)
	got := d.matrix()
	for v := range state {
		for k, want := range state[v] {
			if !(math.Abs(got[v][k]-want) <= limit) {
				t.Fatalf("%s: state of value %d, key %d is %g, want %g", what, v, k, got[v][k], want)
			}
		}
		for i := range d.N {
			if x := float64(d.Out[i*d.StrideOut+v]); !(math.Abs(x-out[i][v]) <= limit) {
				t.Fatalf("%s: output %d of token %d is %g, want %g", what, v, i, x, out[i][v])
			}
		}
	}
}

func TestDeltaRuleAgreesWithFloat64(t *testing.T) {
	for _, k := range available() {
		for name, gate := range gates {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(61, 62))
				for _, c := range []deltaCase{{1, 128, 128}, {2, 128, 128}, {70, 128, 128}, {9, 64, 64}, {5, 32, 96}, {7, 33, 64}, {6, 48, 40}, {3, 2, 1}, {4, 1, 31}} {
					d := c.build(r, gate)
					out, state := d.sequential()
					k.delta(*d, 0, d.Strips())
					d.check(t, fmt.Sprint(c), out, state)
				}
			})
		}
	}
}

func TestDeltaRuleAgreesWithItsChunkedForm(t *testing.T) {
	for _, k := range available() {
		for name, gate := range gates {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(63, 64))
				for _, c := range []deltaCase{{16, 32, 64}, {33, 16, 40}} {
					d := c.build(r, gate)
					out, state := d.chunked()
					k.delta(*d, 0, d.Strips())
					d.check(t, fmt.Sprint(c), out, state)
				}
			})
		}
	}
}

// A prompt gives the same bits however it is split, whichever kernels compute it and however strips are shared out.
func TestDeltaRuleDependsOnNoSplit(t *testing.T) {
	var widths []kernels
	for _, k := range available() {
		r := rand.New(rand.NewPCG(65, 66))
		for _, c := range []deltaCase{{67, 128, 128}, {20, 64, 96}, {11, 20, 40}, {9, 96, 70}} {
			d := c.build(r, gates["ordinary"])
			whole := d.copy()
			k.delta(*whole, 0, d.Strips())
			for _, sizes := range [][]int{{1, c.n - 1}, {c.n - 1, 1}, {3, 4, c.n - 7}, slices.Repeat([]int{1}, c.n)} {
				got, at := d.copy(), 0
				for _, n := range sizes {
					for s := range d.Strips() { // strip by strip, last first
						k.delta(*got.part(at, at+n), d.Strips()-1-s, d.Strips()-s)
					}
					at += n
				}
				what := fmt.Sprintf("%s, %v split into %v", k.name, c, sizes)
				same(t, what+": outputs", got.Out, whole.Out)
				same(t, what+": state", got.State, whole.State)
			}
			for i := range widths {
				other := d.copy()
				widths[i].delta(*other, 0, d.Strips())
				same(t, widths[i].name+" and "+k.name, other.Out, whole.Out)
			}
		}
		widths = append(widths, k)
	}
}

func TestDeltaRuleLeavesOtherStripsAlone(t *testing.T) {
	for _, k := range available() {
		d := deltaCase{5, 128, 128}.build(rand.New(rand.NewPCG(67, 68)), gates["ordinary"])
		before := d.copy()
		k.delta(*d, 1, 3)
		size := StateStrip * d.DimK
		same(t, k.name+": state before", d.State[:size], before.State[:size])
		same(t, k.name+": state behind", d.State[3*size:], before.State[3*size:])
		for i := range d.N {
			row := d.Out[i*d.StrideOut:][:d.StrideOut]
			for c, v := range row {
				if inside := c >= StateStrip && c < 3*StateStrip; (v != 0) != inside {
					t.Fatalf("%s: output %d of token %d is %g", k.name, c, i, v)
				}
			}
		}
	}
}

func FuzzDeltaRule(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(128), uint8(128), uint8(0))
	f.Add(uint64(2), uint8(40), uint8(6), uint8(70), uint8(1))
	f.Add(uint64(3), uint8(2), uint8(33), uint8(31), uint8(2))
	f.Fuzz(func(t *testing.T, seed uint64, n, dimK, dimV, gate uint8) {
		if n == 0 || dimK == 0 || dimV == 0 || n > 70 {
			t.Skip()
		}
		names := []string{"ordinary", "extreme", "nothing forgotten", "nothing learnt"}
		c := deltaCase{int(n), int(dimK), int(dimV)}
		d := c.build(rand.New(rand.NewPCG(seed, 1)), gates[names[int(gate)%len(names)]])
		out, state := d.sequential()
		var first *DeltaRule
		for _, k := range available() {
			got := d.copy()
			k.delta(*got, 0, d.Strips())
			got.check(t, k.name, out, state)
			if first == nil {
				first = got
			}
			same(t, k.name+": outputs", got.Out, first.Out)
			same(t, k.name+": state", got.State, first.State)
		}
	})
}

func TestConvolutionAgreesWithFloat64(t *testing.T) {
	for _, k := range available() {
		r := rand.New(rand.NewPCG(69, 70))
		for _, shape := range [][3]int{{1, 4, 128}, {7, 4, 100}, {3, 2, 16}, {2, 1, 5}, {5, 5, 47}} {
			n, taps, channels := shape[0], shape[1], shape[2]
			c := Convolution{N: n, Taps: taps, Channels: channels, StrideX: channels + 1, StrideDst: channels + 2, StrideWeights: channels + 3}
			c.X, c.Weights, c.Dst = random(r, (n+taps)*c.StrideX), random(r, taps*c.StrideWeights), random(r, n*c.StrideDst)
			before := slices.Clone(c.Dst)
			k.convolve(c)
			for t0 := range n {
				for i := range c.StrideDst {
					got, want := float64(c.Dst[t0*c.StrideDst+i]), float64(before[t0*c.StrideDst+i])
					if i < channels {
						want = 0
						for j := range taps {
							want += float64(c.X[(t0+j)*c.StrideX+i]) * float64(c.Weights[j*c.StrideWeights+i])
						}
					}
					if math.Abs(got-want) > 1e-6 {
						t.Fatalf("%s %v: channel %d of row %d is %g, want %g", k.name, shape, i, t0, got, want)
					}
				}
			}
		}
	}
}

func TestUnitHasLengthOne(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 72))
	for _, n := range []int{1, 15, 64, 100, 128} {
		x := random(r, n)
		want := widen64(x)
		length := math.Sqrt(dot64(want, want) + 1e-6)
		Unit(x, 1e-6)
		for i, v := range x {
			if math.Abs(float64(v)-want[i]/length) > 1.2e-7 {
				t.Fatalf("element %d of %d is %g, want %g", i, n, v, want[i]/length)
			}
		}
	}
	zero := make([]float32, 20)
	Unit(zero, 1e-6)
	same(t, "of length 0", zero, make([]float32, 20))
}

func TestDeltaRuleAllocatesNothing(t *testing.T) {
	d := deltaCase{3, 128, 128}.build(rand.New(rand.NewPCG(73, 74)), gates["ordinary"])
	if n := testing.AllocsPerRun(10, func() { d.Advance(0, d.Strips()) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// BenchmarkDeltaRule advances one head after another over as many tokens as a prompt's batch has, where operations count, and
// over one, where bytes do: MB/s are those of the state, read and written.
func BenchmarkDeltaRule(b *testing.B) {
	for _, k := range available() {
		for _, n := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", k.name, n), func(b *testing.B) {
				var heads []*DeltaRule
				for i := range 64 {
					heads = append(heads, deltaCase{n, 128, 128}.build(rand.New(rand.NewPCG(75, uint64(i))), gates["ordinary"]))
				}
				b.SetBytes(2 * 4 * 128 * 128)
				i := 0
				for b.Loop() {
					d := heads[i%len(heads)]
					k.delta(*d, 0, d.Strips())
					i++
				}
				b.ReportMetric(7*128*128*float64(n*b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

func TestRulesAndConvolutionsThatDoNotFitPanic(t *testing.T) {
	r := rand.New(rand.NewPCG(77, 78))
	rule := func(change func(d *DeltaRule)) func() {
		return func() {
			d := deltaCase{3, 32, 40}.build(r, gates["ordinary"])
			d.V, d.Out = d.V[:2*d.StrideV+40], d.Out[:2*d.StrideOut+40]
			change(d)
			d.Advance(0, d.Strips())
		}
	}
	convolution := func(change func(c *Convolution)) func() {
		return func() {
			c := Convolution{N: 3, Taps: 4, Channels: 20, StrideX: 21, StrideDst: 22, StrideWeights: 23}
			c.X, c.Weights, c.Dst = make([]float32, 5*21+20), make([]float32, 3*23+20), make([]float32, 2*22+20)
			change(&c)
			c.Run()
		}
	}
	panics := func(f func()) (did bool) {
		defer func() {
			s, ok := recover().(string)
			did = ok && strings.HasPrefix(s, "kernel: ")
		}()
		f()
		return false
	}
	if panics(rule(func(*DeltaRule) {})) || panics(convolution(func(*Convolution) {})) {
		t.Error("what fits panics")
	}
	for name, f := range map[string]func(){
		"state":    rule(func(d *DeltaRule) { d.State = d.State[1:] }),
		"queries":  rule(func(d *DeltaRule) { d.Q = d.Q[1:] }),
		"keys":     rule(func(d *DeltaRule) { d.K = d.K[1:] }),
		"values":   rule(func(d *DeltaRule) { d.V = d.V[1:] }),
		"outputs":  rule(func(d *DeltaRule) { d.Out = d.Out[1:] }),
		"decays":   rule(func(d *DeltaRule) { d.Decay = d.Decay[1:] }),
		"rates":    rule(func(d *DeltaRule) { d.Beta = d.Beta[1:] }),
		"strips":   func() { d := deltaCase{1, 32, 40}.build(r, gates["ordinary"]); d.Advance(0, 3) },
		"no taps":  convolution(func(c *Convolution) { c.Taps = 0 }),
		"results":  convolution(func(c *Convolution) { c.Dst = c.Dst[1:] }),
		"channels": convolution(func(c *Convolution) { c.X = c.X[1:] }),
		"weights":  convolution(func(c *Convolution) { c.Weights = c.Weights[1:] }),
	} {
		if !panics(f) {
			t.Errorf("%s that do not fit: no panic", name)
		}
	}
}
