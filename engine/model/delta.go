package model

import (
	"fmt"
	"math"

	"attnbudget/engine/kernel"
	"attnbudget/engine/kvcache"
	"attnbudget/engine/meter"
)

// deltaShape is the shape of the recurrent layers of a model.
type deltaShape struct {
	dim        int // of a head of queries, keys and values
	keyHeads   int // of queries and keys
	valueHeads int
	width      int // of the convolution
}

func (s deltaShape) keys() int      { return s.keyHeads * s.dim }
func (s deltaShape) values() int    { return s.valueHeads * s.dim }
func (s deltaShape) channels() int  { return 2*s.keys() + s.values() }
func (s deltaShape) convState() int { return (s.width - 1) * s.channels() }
func (s deltaShape) state() int     { return s.valueHeads * s.dim * s.dim }

func readDeltaShape(k *keys) deltaShape {
	s := deltaShape{
		dim:        k.count("ssm.state_size"),
		keyHeads:   k.count("ssm.group_count"),
		valueHeads: k.count("ssm.time_step_rank"),
		width:      k.count("ssm.conv_kernel"),
	}
	inner := k.count("ssm.inner_size")
	if k.err != nil {
		return deltaShape{}
	}
	if inner != s.values() {
		k.fault("ssm.inner_size", fmt.Sprintf("%d, %d heads of %d", s.values(), s.valueHeads, s.dim), fmt.Sprint(inner))
	}
	if s.valueHeads%s.keyHeads != 0 {
		k.fault("ssm.time_step_rank", fmt.Sprintf("a multiple of the %d key heads", s.keyHeads), fmt.Sprint(s.valueHeads))
	}
	if s.width < 2 {
		k.fault("ssm.conv_kernel", "at least 2", fmt.Sprint(s.width))
	}
	return s
}

// deltaNet is one layer of gated DeltaNet (Yang, Kautz, Hatamizadeh 2024): a state matrix a head that forgets by a gate and
// learns by the delta rule.
type deltaNet struct {
	mix         Linear    // to the inputs of the convolution: queries, keys, values
	conv        []float32 // [width][channels], the newest input last
	gate        Linear    // z, of the output
	beta, alpha Linear    // of the learning rate and of the decay, one a value head
	dt, a       []float32 // [value heads]; a is negative
	norm        []float32 // [dim], for each head
	out         Linear
}

func loadDelta(l *loader, c *Config, block string, s deltaShape) *deltaNet {
	d := &deltaNet{
		mix:   l.linear(block+"attn_qkv", c.Embd, s.channels()),
		gate:  l.linear(block+"attn_gate", c.Embd, s.values()),
		beta:  l.linear(block+"ssm_beta", c.Embd, s.valueHeads),
		alpha: l.linear(block+"ssm_alpha", c.Embd, s.valueHeads),
		dt:    l.vector(block+"ssm_dt.bias", s.valueHeads),
		a:     l.vector(block+"ssm_a", s.valueHeads),
		norm:  l.norm(block+"ssm_norm", s.dim),
		out:   l.linear(block+"ssm_out", s.values(), c.Embd),
	}
	d.conv = transpose(l.table(block+"ssm_conv1d.weight", s.width, s.channels()), s.width)
	return d
}

// transpose turns [n][cols] into [cols][n].
func transpose(x []float32, cols int) []float32 {
	n := len(x) / cols
	out := make([]float32, len(x))
	for i, v := range x {
		out[i%cols*n+i/cols] = v
	}
	return out
}

// deltaWork is the scratch memory of the recurrent layers of one context, and the layer and run in progress. What belongs to
// one head lies together: the convolution splits the channels into blocks of a head's size, the heads of the queries first,
// then those of the keys and of the values.
type deltaWork struct {
	deltaShape
	eps                      float32
	most                     int // tokens of a batch
	parts                    int // into which the state of a head is divided among the workers
	mix, z, beta, alpha, out *rows
	conv                     []float32 // [blocks][most][dim]
	window                   []float32 // [blocks][2 (width-1)][dim]: the inputs around the start of a run
	decay, rate              []float32 // [value heads][most]

	l                   *deltaNet
	states              *kvcache.LayerStates
	run                 kvcache.Run
	inputItem, ruleItem func(worker, i int)
}

func newDeltaWork(p *Pass, m *qwen35) *deltaWork {
	most, s := cap(p.live), m.delta
	w := &deltaWork{
		deltaShape: s, eps: m.config.Eps, most: most,
		mix: newRows(most, s.channels()), z: newRows(most, s.values()), out: newRows(most, s.values()),
		beta: newRows(most, s.valueHeads), alpha: newRows(most, s.valueHeads),
		conv: make([]float32, most*s.channels()), window: make([]float32, 2*s.convState()),
		decay: make([]float32, s.valueHeads*most), rate: make([]float32, s.valueHeads*most),
	}
	strips := (&kernel.DeltaRule{DimV: s.dim}).Strips()
	w.parts = max(1, min(strips, 2*p.pool.Threads()/s.valueHeads))
	w.inputItem = func(_, i int) {
		if i < w.blocks() {
			w.convolve(i)
		} else {
			w.gates(i - w.blocks())
		}
	}
	w.ruleItem = func(_, i int) {
		part := i % w.parts
		w.rule(i/w.parts, part*strips/w.parts, (part+1)*strips/w.parts)
	}
	return w
}

// forward computes y from h.
func (w *deltaWork) forward(p *Pass, layer int, l *deltaNet) {
	w.l, w.states = l, p.memory.States(layer)
	p.linear(w.mix, &l.mix, p.h)
	p.linear(w.beta, &l.beta, p.h)
	p.linear(w.alpha, &l.alpha, p.h)
	w.advance(p)
	p.stored(layer, w.out)
	p.linear(w.z, &l.gate, p.h)
	p.headNorm(w.out, w.dim, l.norm)
	p.activate(w.z, w.out, kernel.SiLUMul)
	p.linear(p.y, &l.out, w.z)
}

// advance computes out, and the states after the batch, from mix, beta and alpha.
func (w *deltaWork) advance(p *Pass) {
	w.out.reshape(w.mix.n, w.values())
	for _, run := range p.memory.Runs() {
		if run.From >= w.mix.n {
			break // a variant that is not alive yet
		}
		w.run = run
		w.states.Start(run)
		p.pool.Run(w.blocks()+w.valueHeads, w.inputItem)
		p.pool.Run(w.valueHeads*w.parts, w.ruleItem)
		p.Meter.Add(meter.Recurrence, 2*4*(w.convState()+w.state()), w.tokens()*w.operations())
	}
}

// operations are those of one token: the convolution, and for each state a product with k, decay and update, and a product
// with q.
func (s deltaShape) operations() int { return 2*s.width*s.channels() + 7*s.state() }

// blocks is the number of heads that the convolution computes.
func (s deltaShape) blocks() int { return 2*s.keyHeads + s.valueHeads }

// tokens is the number of tokens of the run.
func (w *deltaWork) tokens() int { return w.run.To - w.run.From }

// block returns what the convolution made of block b for the tokens of the run, [tokens][dim].
func (w *deltaWork) block(b int) []float32 {
	return w.conv[(b*w.most+w.run.From)*w.dim:][:w.tokens()*w.dim]
}

// input is what the convolution sees at token t of the batch: of tokens before the run, what the state remembers.
func (w *deltaWork) input(t int) []float32 {
	if t >= w.run.From {
		return w.mix.row(t)
	}
	n := w.channels()
	back := w.run.From - t // 1 = the newest remembered
	return w.states.Conv(w.run.Slot)[(w.width-1-back)*n:][:n]
}

// convolve computes the convolved queries, keys or values of block b for the run: SiLU, then unit length for queries and
// keys.
func (w *deltaWork) convolve(b int) {
	y, first, past := w.block(b), b*w.dim, w.width-1
	near := min(w.tokens(), past) // tokens that reach back to before the run
	window := w.window[b*2*past*w.dim:][:(past+near)*w.dim]
	for i := range past + near {
		copy(window[i*w.dim:][:w.dim], w.input(w.run.From - past + i)[first:])
	}
	c := kernel.Convolution{
		Dst: y, StrideDst: w.dim, X: window, StrideX: w.dim, Weights: w.l.conv[first:], StrideWeights: w.channels(),
		N: near, Taps: w.width, Channels: w.dim,
	}
	c.Run()
	if far := w.tokens() - near; far > 0 {
		c.N, c.Dst = far, y[near*w.dim:]
		c.X, c.StrideX = w.mix.all()[w.run.From*w.channels()+first:], w.channels()
		c.Run()
	}
	w.remember(first)
	for row := y; len(row) > 0; row = row[w.dim:] {
		x := row[:w.dim]
		kernel.SiLU(x, x)
		if b < 2*w.keyHeads {
			kernel.Unit(x, w.eps)
		}
	}
}

// remember keeps the last inputs of the convolution for the tokens after the run, of a head's channels from first on.
func (w *deltaWork) remember(first int) {
	n, state := w.channels(), w.states.Conv(w.run.Slot)
	for i := range w.width - 1 {
		copy(state[i*n+first:][:w.dim], w.input(w.run.To - (w.width - 1) + i)[first:])
	}
}

// gates computes what a value head forgets and learns at each token of the run: the decay e^g, g = a softplus(alpha + dt),
// and the rate sigmoid(beta).
func (w *deltaWork) gates(head int) {
	at := head*w.most + w.run.From
	decay, rate := w.decay[at:][:w.tokens()], w.rate[at:][:w.tokens()]
	for i := range decay {
		t := w.run.From + i
		decay[i] = kernel.Decay(w.l.a[head], w.alpha.row(t)[head]+w.l.dt[head])
		rate[i] = kernel.Rate(w.beta.row(t)[head])
	}
}

// rule runs strips [from, to) of the state of a value head over the tokens of the run. Value head j goes with key head j mod
// keyHeads.
func (w *deltaWork) rule(head, from, to int) {
	at, n := head*w.most+w.run.From, w.tokens()
	d := kernel.DeltaRule{
		State: w.states.State(w.run.Slot)[head*w.dim*w.dim:][:w.dim*w.dim],
		Q:     w.block(head % w.keyHeads), K: w.block(w.keyHeads + head%w.keyHeads), V: w.block(2*w.keyHeads + head), StrideV: w.dim,
		Out: w.out.all()[w.run.From*w.values()+head*w.dim:], StrideOut: w.values(),
		Decay: w.decay[at:][:n], Beta: w.rate[at:][:n],
		N: n, DimK: w.dim, DimV: w.dim, Scale: 1 / float32(math.Sqrt(float64(w.dim))),
	}
	d.Advance(from, to)
}
