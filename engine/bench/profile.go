package bench

import (
	"context"
	"time"

	"attnbudget/engine"
	"attnbudget/engine/bench/limits"
	"attnbudget/engine/meter"
)

// Profile says where the time of a test went: the result of a Run whose work was timed call by call, which costs some tens of
// nanoseconds a call, and with processor events a system call for each thread.
type Profile struct {
	Result
	Parts   []Part        // what precedes the layers, the layers, what follows them
	Outside time.Duration // of the samples' time, what was not spent in forward passes: placing tokens, masks of visible cells
	Limits  limits.Limits
	NoEvent error // why there are no processor events; nil = there are
}

// Part is the work of one layer.
type Part struct {
	Layer   int    // -1 = before the layers, their number = after them
	Name    string // the layer's role, "embedding" or "output"
	Dropped bool
	Work    meter.Work
}

// RunProfile measures as Run does and attributes the time of the samples to kinds of work and to layers. Limits are those
// the machine showed just before, to compare with.
func RunProfile(ctx context.Context, m *engine.Model, o Options, l limits.Limits) (Profile, error) {
	if err := o.validate(); err != nil {
		return Profile{}, err
	}
	t, err := newTest(m, o)
	if err != nil {
		return Profile{}, err
	}
	defer t.c.Close()
	p := Profile{Result: newResult(m, t.c, o), Limits: l}
	t.meter.Clock = true
	if err := t.warmup(ctx); err != nil {
		return Profile{}, err
	}
	events, err := openHardware() // after the warm-up the process has all its threads
	if p.NoEvent = err; err == nil {
		defer events.Close()
		t.meter.Events = events.read
	}
	if err := t.samples(ctx, &p.Result); err != nil {
		return Profile{}, err
	}
	for _, ns := range p.SamplesNS {
		p.Outside += time.Duration(ns)
	}
	total := p.Work.Total()
	p.Outside -= total.Time
	p.Parts = parts(m, t)
	return p, nil
}

func parts(m *engine.Model, t *test) []Part {
	roles, mask, n := m.Roles(), t.c.Mask(), t.meter.Layers()
	out := []Part{{Layer: -1, Name: "embedding", Work: *t.meter.Layer(-1)}}
	for i := range n {
		out = append(out, Part{Layer: i, Name: roles[i].Describe(i), Dropped: mask.Has(i), Work: *t.meter.Layer(i)})
	}
	return append(out, Part{Layer: n, Name: "output", Work: *t.meter.Layer(n)})
}
