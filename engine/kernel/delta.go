package kernel

import (
	"fmt"
	"math"

	"attnbudget/engine/kernel/upstream"
)

// StateStrip is the number of value elements of a DeltaRule's state that lie together.
const StateStrip = 32

// DeltaRule advances the state S [DimV][DimK] of one head over N tokens (gated delta rule; Yang, Kautz, Hatamizadeh 2024):
//
//	S ← decay S,  d = beta (v - S k),  S ← S + d kᵀ,  out = Scale S q
//
// The state lies in strips of StateStrip value elements (the last may be narrower), each [DimK][elements of the strip]: all
// sums run down a strip, a vector of value elements at a time, and none across a vector. A strip stays in the first-level
// cache while all tokens go by. That is what the chunked form of the rule is for (matrix products over 64 tokens, and a
// triangular system to solve); at a head size of 128 it needs as many multiplications, 4*128² a token, and was measured to be
// no faster. Here every token is computed in the same order whatever N is, so that a prompt has the same result to the bit
// however it is split.
type DeltaRule struct {
	State              []float32 // DimV*DimK
	Q, K               []float32 // [N][DimK]
	V, Out             []float32 // N rows of DimV elements, which begin StrideV and StrideOut elements apart
	StrideV, StrideOut int
	Decay, Beta        []float32 // [N]; decays are in [0, 1]
	N, DimK, DimV      int
	Scale              float32
}

// Strips returns the number of strips of the state.
func (d *DeltaRule) Strips() int { return (d.DimV + StateStrip - 1) / StateStrip }

// Advance computes strips [from, to): they are independent of the others.
func (d *DeltaRule) Advance(from, to int) {
	n, keys := d.N, d.N*d.DimK
	if n == 0 || from >= to {
		return
	}
	last := (n - 1) * max(d.StrideV, d.StrideOut)
	if d.DimK < 1 || to > d.Strips() || len(d.State) < d.DimK*d.DimV || len(d.Q) < keys || len(d.K) < keys || len(d.Decay) < n || len(d.Beta) < n ||
		len(d.V) < (n-1)*d.StrideV+d.DimV || len(d.Out) < (n-1)*d.StrideOut+d.DimV || last < 0 {
		panic(fmt.Sprintf("kernel: delta rule over %d tokens, %dx%d, with a state of %d, %d queries, %d keys, %d values, %d outputs, %d decays",
			n, d.DimV, d.DimK, len(d.State), len(d.Q), len(d.K), len(d.V), len(d.Out), len(d.Decay)))
	}
	active.delta(*d, from, to)
}

// strip returns the state of a strip and the number of its value elements.
func (d *DeltaRule) strip(i int) (state []float32, cols int) {
	cols = min(StateStrip, d.DimV-i*StateStrip)
	return d.State[i*StateStrip*d.DimK:][:cols*d.DimK], cols
}

// delta defines what kernels says of it.
func delta(d DeltaRule, from, to int) {
	for i := from; i < to; i++ {
		state, cols := d.strip(i)
		for t := range d.N {
			q, k := d.Q[t*d.DimK:][:d.DimK], d.K[t*d.DimK:][:d.DimK]
			v, out := d.V[t*d.StrideV+i*StateStrip:][:cols], d.Out[t*d.StrideOut+i*StateStrip:][:cols]
			upstream.DeltaToken(state, q, k, v, out, d.Decay[t], d.Beta[t], d.Scale)
		}
	}
}

// Convolution is a causal convolution of every channel by itself: dst[t][c] = Σ_j weights[j][c] x[t+j][c], j from 0 to
// Taps-1, summed in that order.
type Convolution struct {
	Dst, X, Weights                   []float32 // [N], [N+Taps-1], [Taps] rows of Channels elements
	StrideDst, StrideX, StrideWeights int       // elements from one row to the next
	N, Taps, Channels                 int
}

// Run computes c.
func (c *Convolution) Run() {
	if c.N == 0 || c.Channels == 0 {
		return
	}
	fits := func(x []float32, rows, stride int) bool { return stride >= 0 && len(x) >= (rows-1)*stride+c.Channels }
	if c.Taps < 1 || !fits(c.Dst, c.N, c.StrideDst) || !fits(c.X, c.N+c.Taps-1, c.StrideX) || !fits(c.Weights, c.Taps, c.StrideWeights) {
		panic(fmt.Sprintf("kernel: convolution of %d rows of %d channels with %d taps from %d to %d floats, %d weights",
			c.N, c.Channels, c.Taps, len(c.X), len(c.Dst), len(c.Weights)))
	}
	active.convolve(*c)
}

// convolve defines what kernels says of it.
func convolve(c Convolution) {
	for t := range c.N {
		y := c.Dst[t*c.StrideDst:][:c.Channels]
		for i := range y {
			y[i] = upstream.Taps(c.X[t*c.StrideX+i:], c.StrideX, c.Weights[i:], c.StrideWeights, c.Taps)
		}
	}
}

// Unit makes x a vector of length 1, x / √(Σx² + eps), as a root mean square norm and a scaling, the steps in which upstream
// rounds.
func Unit(x []float32, eps float32) {
	n := float32(len(x))
	RMSNorm(x, x, nil, eps/n)
	Scale(x, 1/float32(math.Sqrt(float64(n))))
}

// Decay is what the gated delta rule forgets by: e^g, g = a softplus(x), for a negative a.
func Decay(a, x float32) float32 { return upstream.ScalarExp(a * upstream.Softplus(x)) }

// Rate is what the gated delta rule learns by: the sigmoid of x.
func Rate(x float32) float32 { return upstream.Sigmoid(x) }
