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

// deltaWork is the scratch memory of the recurrent layers of one context, and the layer and run in progress.
type deltaWork struct {
	deltaShape
	eps                            float32
	mix, conv, z, beta, alpha, out *rows

	l                *deltaNet
	states           *kvcache.LayerStates
	run              kvcache.Run
	convRow, ruleRow func(worker, i int)
}

func newDeltaWork(p *Pass, m *qwen35) *deltaWork {
	most, s := cap(p.live), m.delta
	w := &deltaWork{
		deltaShape: s, eps: m.config.Eps,
		mix: newRows(most, s.channels()), conv: newRows(most, s.channels()),
		z: newRows(most, s.values()), out: newRows(most, s.values()),
		beta: newRows(most, s.valueHeads), alpha: newRows(most, s.valueHeads),
	}
	w.convRow = func(_, i int) { w.convolve(w.run.From + i) }
	w.ruleRow = func(_, head int) { w.rule(head) }
	return w
}

// forward computes y from h.
func (w *deltaWork) forward(p *Pass, layer int, l *deltaNet) {
	w.l, w.states = l, p.memory.States(layer)
	p.linear(w.mix, &l.mix, p.h)
	p.linear(w.beta, &l.beta, p.h)
	p.linear(w.alpha, &l.alpha, p.h)
	w.conv.reshape(w.mix.n, w.channels())
	w.out.reshape(w.mix.n, w.values())
	for _, run := range p.memory.Runs() {
		if run.From >= w.mix.n {
			break // a variant that is not alive yet
		}
		w.run = run
		w.states.Start(run)
		p.pool.Run(run.To-run.From, w.convRow)
		w.remember()
		p.pool.Run(w.valueHeads, w.ruleRow)
		p.Meter.Add(meter.Recurrence, 2*4*(w.convState()+w.state()), (run.To-run.From)*w.operations())
	}
	p.stored(layer, w.out)
	p.linear(w.z, &l.gate, p.h)
	p.headNorm(w.out, w.dim, l.norm)
	p.activate(w.z, w.out, kernel.SiLUMul)
	p.linear(p.y, &l.out, w.z)
}

// operations are those of one token: the convolution, and for each state a product with k, decay and update, and a product
// with q.
func (s deltaShape) operations() int { return 2*s.width*s.channels() + 7*s.state() }

// input is what the convolution sees at token t of the batch: of tokens before the run, what the state remembers.
func (w *deltaWork) input(t int) []float32 {
	if t >= w.run.From {
		return w.mix.row(t)
	}
	n := w.channels()
	back := w.run.From - t // 1 = the newest remembered
	return w.states.Conv(w.run.Slot)[(w.width-1-back)*n:][:n]
}

// convolve computes the convolved queries, keys and values of token t: SiLU, then unit length for queries and keys.
func (w *deltaWork) convolve(t int) {
	y := w.conv.row(t)
	clear(y)
	for j := range w.width {
		x, weights := w.input(t - (w.width - 1) + j)[:len(y)], w.l.conv[j*len(y):][:len(y)]
		for c := range y {
			y[c] += weights[c] * x[c]
		}
	}
	kernel.SiLU(y, y)
	for qk := y[:2*w.keys()]; len(qk) > 0; qk = qk[w.dim:] {
		unit(qk[:w.dim], w.eps)
	}
}

// unit makes x a vector of length 1: x / √(Σx² + eps).
func unit(x []float32, eps float32) {
	var sum float64
	for _, v := range x {
		sum += float64(v * v)
	}
	kernel.Scale(x, float32(1/math.Sqrt(float64(float32(sum)+eps))))
}

// remember keeps the last inputs of the convolution for the tokens after the run.
func (w *deltaWork) remember() {
	n, state := w.channels(), w.states.Conv(w.run.Slot)
	for i := range w.width - 1 {
		copy(state[i*n:][:n], w.input(w.run.To-(w.width-1)+i))
	}
}

// rule runs one value head over the tokens of the run. With the state S stored as a row a value element:
//
//	S ← e^g S,  d = β (v - S k),  S ← S + d kᵀ,  out = S q / √dim
//
// where g = a softplus(alpha + dt), β = sigmoid(beta). Value head j goes with key head j mod keyHeads.
func (w *deltaWork) rule(head int) {
	state := w.states.State(w.run.Slot)[head*w.dim*w.dim:][:w.dim*w.dim]
	scale := float32(1 / math.Sqrt(float64(w.dim)))
	key := head % w.keyHeads * w.dim
	for t := w.run.From; t < w.run.To; t++ {
		row := w.conv.row(t)
		q, k := row[key:][:w.dim], row[w.keys()+key:][:w.dim]
		v, out := row[2*w.keys()+head*w.dim:][:w.dim], w.out.row(t)[head*w.dim:][:w.dim]
		decay := exp32(w.l.a[head] * softplus(w.alpha.row(t)[head]+w.l.dt[head]))
		beta := 1 / (1 + exp32(-w.beta.row(t)[head]))
		for j := range out {
			out[j] = scale * deltaStep(state[j*w.dim:][:w.dim], q, k, v[j], decay, beta)
		}
	}
}

// deltaStep advances one row of a state and returns its product with q.
func deltaStep(s, q, k []float32, v, decay, beta float32) float32 {
	q, k = q[:len(s)], k[:len(s)]
	var known [4]float32
	for i := 0; i+4 <= len(s); i += 4 {
		known[0] += s[i] * k[i]
		known[1] += s[i+1] * k[i+1]
		known[2] += s[i+2] * k[i+2]
		known[3] += s[i+3] * k[i+3]
	}
	for i := len(s) &^ 3; i < len(s); i++ {
		known[0] += s[i] * k[i]
	}
	d := beta * (v - decay*(known[0]+known[1]+known[2]+known[3]))
	var sum [2]float32
	for i := range s {
		s[i] = decay*s[i] + d*k[i]
		sum[i&1] += s[i] * q[i]
	}
	return sum[0] + sum[1]
}

func exp32(x float32) float32 { return float32(math.Exp(float64(x))) }

// softplus is ln(1 + eˣ), and x where the difference vanishes, as upstream has it.
func softplus(x float32) float32 {
	if x > 20 {
		return x
	}
	return float32(math.Log1p(math.Exp(float64(x))))
}
