package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"attnbudget/engine/kernel"
	"attnbudget/engine/kvcache"
)

// deltaTokens is a history of one sequence: what the projections give for each token.
type deltaTokens struct{ mix, beta, alpha []float32 }

func (d deltaTokens) from(t int, s deltaShape) deltaTokens {
	return deltaTokens{d.mix[t*s.channels():], d.beta[t*s.valueHeads:], d.alpha[t*s.valueHeads:]}
}

func randomTokens(r *rand.Rand, n int, s deltaShape) deltaTokens {
	draw := func(n int, size float32) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = size * (2*r.Float32() - 1)
			if r.IntN(9) == 0 {
				x[i] *= 20 // gates that shut and open entirely
			}
		}
		return x
	}
	return deltaTokens{draw(n*s.channels(), 1), draw(n*s.valueHeads, 4), draw(n*s.valueHeads, 4)}
}

// deltaLayer makes the scratch memory and the states of one recurrent layer with random weights.
func deltaLayer(t *testing.T, r *rand.Rand, s deltaShape, threads, ubatch, seqs int) (*Pass, *deltaWork) {
	t.Helper()
	memory, err := kvcache.New(kvcache.Layout{
		Attention: []kvcache.Layer{{Index: 1, Heads: 1, DimK: 4, DimV: 4}},
		Recurrent: []kvcache.RecurrentLayer{{Index: 0, Conv: s.convState(), State: s.state()}},
	}, kvcache.Params{Cells: 1024, UBatch: ubatch, Seqs: seqs})
	if err != nil {
		t.Fatal(err)
	}
	pool := kernel.NewPool(threads)
	t.Cleanup(pool.Close)
	p := &Pass{pool: pool, memory: memory, live: make([]int, 0, ubatch)}
	w := newDeltaWork(p, &qwen35{config: &Config{Eps: 1e-6}, delta: s})
	w.l = &deltaNet{conv: make([]float32, s.width*s.channels()), dt: make([]float32, s.valueHeads), a: make([]float32, s.valueHeads)}
	for i := range w.l.conv {
		w.l.conv[i] = r.Float32() - 0.5
	}
	for i := range w.l.a {
		w.l.a[i], w.l.dt[i] = -3*r.Float32(), r.Float32()
	}
	w.states = memory.States(0)
	return p, w
}

// compute runs one batch and returns the output of every token. inputs has what each token's sequence makes of it.
func (w *deltaWork) compute(t *testing.T, p *Pass, pos []int32, seqs []kvcache.SeqSet, inputs []deltaTokens) [][]float32 {
	t.Helper()
	if err := p.memory.Place(pos, seqs); err != nil {
		t.Fatal(err)
	}
	w.mix.reshape(len(pos), w.channels())
	w.beta.reshape(len(pos), w.valueHeads)
	w.alpha.reshape(len(pos), w.valueHeads)
	for i, in := range inputs {
		copy(w.mix.row(i), in.mix)
		copy(w.beta.row(i), in.beta)
		copy(w.alpha.row(i), in.alpha)
	}
	w.advance(p)
	var out [][]float32
	for i := range pos {
		out = append(out, slices.Clone(w.out.row(i)))
	}
	return out
}

// reference computes the layer in float64, token after token, from nothing.
func (w *deltaWork) reference(n int, in deltaTokens) (out [][]float64) {
	states := make([][]float64, w.valueHeads*w.dim) // a row a value element
	for i := range states {
		states[i] = make([]float64, w.dim)
	}
	for t := range n {
		y := w.convolved(t, in)
		row := make([]float64, w.values())
		for head := range w.valueHeads {
			q, k := y[head%w.keyHeads*w.dim:][:w.dim], y[w.keys()+head%w.keyHeads*w.dim:][:w.dim]
			g := float64(w.l.a[head]) * math.Log1p(math.Exp(float64(in.alpha[t*w.valueHeads+head])+float64(w.l.dt[head])))
			beta := 1 / (1 + math.Exp(-float64(in.beta[t*w.valueHeads+head])))
			for v := range w.dim {
				s, known := states[head*w.dim+v], 0.0
				for i := range s {
					s[i] *= math.Exp(g)
					known += s[i] * k[i]
				}
				for i := range s {
					s[i] += beta * (y[2*w.keys()+head*w.dim+v] - known) * k[i]
					row[head*w.dim+v] += s[i] * q[i] / math.Sqrt(float64(w.dim))
				}
			}
		}
		out = append(out, row)
	}
	return out
}

// convolved is what the convolution makes of token t.
func (w *deltaWork) convolved(t int, in deltaTokens) []float64 {
	y := make([]float64, w.channels())
	for c := range y {
		for j := range w.width {
			if at := t - (w.width - 1) + j; at >= 0 {
				y[c] += float64(w.l.conv[j*len(y)+c]) * float64(in.mix[at*len(y)+c])
			}
		}
		y[c] /= 1 + math.Exp(-y[c])
	}
	for qk := y[:2*w.keys()]; len(qk) > 0; qk = qk[w.dim:] {
		sum := float64(w.eps)
		for _, v := range qk[:w.dim] {
			sum += v * v
		}
		for i := range qk[:w.dim] {
			qk[i] /= math.Sqrt(sum)
		}
	}
	return y
}

func checkDelta(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	for i, v := range got {
		if !(math.Abs(float64(v)-want[i]) <= 3e-6) {
			t.Fatalf("%s: output %d is %g, want %g", what, i, v, want[i])
		}
	}
}

var deltaShapes = []deltaShape{
	{dim: 128, keyHeads: 1, valueHeads: 1, width: 4},
	{dim: 64, keyHeads: 2, valueHeads: 4, width: 4},
	{dim: 40, keyHeads: 1, valueHeads: 3, width: 2},
	{dim: 7, keyHeads: 3, valueHeads: 3, width: 6},
}

func TestDeltaNetAgreesWithFloat64HoweverAPromptIsSplit(t *testing.T) {
	for _, s := range deltaShapes {
		r := rand.New(rand.NewPCG(81, 82))
		const n = 70
		tokens := randomTokens(r, n, s)
		var first [][]float32
		for _, sizes := range [][]int{{n}, {1, n - 1}, {n - 1, 1}, {2, 3, 1, 1, 30, n - 37}, slices.Repeat([]int{1}, n)} {
			for _, threads := range []int{1, 6} {
				p, w := deltaLayer(t, rand.New(rand.NewPCG(83, 84)), s, threads, n, 1)
				var out [][]float32
				for _, size := range sizes {
					var pos []int32
					var inputs []deltaTokens
					for range size {
						at := len(out) + len(pos)
						pos, inputs = append(pos, int32(at)), append(inputs, tokens.from(at, s))
					}
					out = append(out, w.compute(t, p, pos, slices.Repeat([]kvcache.SeqSet{kvcache.SetOf(0)}, size), inputs)...)
				}
				what := fmt.Sprintf("%+v, %d threads, split into %v", s, threads, sizes)
				if first == nil {
					first = out
					for i, want := range w.reference(n, tokens) {
						checkDelta(t, fmt.Sprintf("%s, token %d", what, i), out[i], want)
					}
				}
				for i := range out {
					if !slices.Equal(out[i], first[i]) {
						t.Fatalf("%s: token %d is not what it is in one piece", what, i)
					}
				}
			}
		}
	}
}

// Sequences share a beginning, part from one another, and their tokens come mixed.
func TestDeltaNetKeepsSequencesApart(t *testing.T) {
	s := deltaShape{dim: 64, keyHeads: 2, valueHeads: 4, width: 4}
	r := rand.New(rand.NewPCG(85, 86))
	const seqs, shared, own = 3, 5, 9
	p, w := deltaLayer(t, r, s, 2, 64, seqs)
	beginning := randomTokens(r, shared, s)
	var histories []deltaTokens
	for range seqs {
		end := randomTokens(r, own, s)
		histories = append(histories, deltaTokens{
			append(slices.Clone(beginning.mix), end.mix...), append(slices.Clone(beginning.beta), end.beta...),
			append(slices.Clone(beginning.alpha), end.alpha...),
		})
	}
	next := make([]int, seqs)
	for seq := range next {
		next[seq] = shared
	}
	var of [][2]int // sequence and position of every token
	var all []kvcache.SeqSet
	for t := range shared {
		of, all = append(of, [2]int{0, t}), append(all, kvcache.SetOf(0, 1, 2))
	}
	for left := seqs * own; left > 0; {
		seq := r.IntN(seqs)
		if next[seq] < shared+own {
			of, all = append(of, [2]int{seq, next[seq]}), append(all, kvcache.SetOf(int32(seq)))
			next[seq]++
			left--
		}
	}
	var out [][]float32
	for _, cut := range [][2]int{{0, 3}, {3, 12}, {12, 13}, {13, len(of)}} {
		var pos []int32
		var inputs []deltaTokens
		for _, o := range of[cut[0]:cut[1]] {
			pos, inputs = append(pos, int32(o[1])), append(inputs, histories[o[0]].from(o[1], s))
		}
		out = append(out, w.compute(t, p, pos, all[cut[0]:cut[1]], inputs)...)
	}
	for seq := range seqs {
		want := w.reference(shared+own, histories[seq])
		for i, o := range of {
			if o[0] == seq {
				checkDelta(t, fmt.Sprintf("sequence %d, token %d", seq, o[1]), out[i], want[o[1]])
			}
		}
	}
}

func TestDeltaNetAllocatesNothing(t *testing.T) {
	s := deltaShapes[0]
	r := rand.New(rand.NewPCG(87, 88))
	p, w := deltaLayer(t, r, s, 2, 8, 1)
	tokens := randomTokens(r, 8, s)
	w.compute(t, p, []int32{0, 1, 2, 3}, slices.Repeat([]kvcache.SeqSet{kvcache.SetOf(0)}, 4), []deltaTokens{tokens, tokens, tokens, tokens})
	if n := testing.AllocsPerRun(10, func() { w.advance(p) }); n != 0 {
		t.Errorf("%g allocations a batch", n)
	}
}
