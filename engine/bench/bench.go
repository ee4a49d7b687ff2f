// Package bench measures throughput the way upstream's llama-bench does: time to process a prompt (pp), time to
// generate tokens one by one (tg), or both (pg), optionally with a context already filled to some depth. Its results
// carry llama-bench's field names and print in its five formats.
//
// Before the first sample of a test the weights are touched, so that all their pages are in memory, and one untimed pass of the
// test's shape is made at depth 0: the whole prompt, then one token if the test generates. It warms caches, clocks and branch
// predictors and lets every buffer grow to its size. The cache of the context is filled to the depth before each sample,
// untimed. A garbage collection runs before each sample and none inside; garbage collections, page faults and the work done inside
// samples are counted and reported, so that whoever doubts a sample can look.
//
// It measures one configuration in one context and knows nothing of comparisons: interleaving, blocks and statistics
// are the business of campaigns.
package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"attnbudget/engine"
	"attnbudget/engine/gguf"
	"attnbudget/engine/meter"
)

// Options is one test: what is processed and with which context.
type Options struct {
	Prompt   int // tokens processed as a prompt; 0 = none
	Generate int // tokens generated one by one; 0 = none
	Depth    int // tokens in the cache before the timed part

	Batch, UBatch int // 0 = the engine's defaults
	TypeK, TypeV  gguf.Type
	Mask          []int              // layers whose attention is dropped
	Surrogates    *engine.Surrogates // stand in for it; nil = nothing does
	Threads       int                // 0 = all cores

	Repetitions int    // timed samples; 0 = 1
	NoWarmup    bool   // skip the untimed first pass
	Trace       string // what prompt and generated tokens are drawn from; equal traces give equal tokens
	DepthTrace  string // the same for the tokens that fill the cache
	State       io.ReadSeeker
	// State, when set, holds a context prefilled to Depth by Prefill with the same options; it is loaded before every
	// sample instead of processing Depth tokens again.

	Progress func(done, total int) // samples finished; may be nil
}

func (o Options) validate() error {
	switch {
	case o.Prompt < 0 || o.Generate < 0 || o.Depth < 0 || o.Repetitions < 0:
		return fmt.Errorf("bench: negative count: prompt %d, generate %d, depth %d, repetitions %d", o.Prompt, o.Generate, o.Depth, o.Repetitions)
	case o.Prompt == 0 && o.Generate == 0:
		return fmt.Errorf("bench: nothing to do: prompt and generate are both 0")
	}
	return nil
}

// Run measures o.Repetitions samples, warmed up as the package comment says unless o.NoWarmup.
func Run(ctx context.Context, m *engine.Model, o Options) (Result, error) {
	if err := o.validate(); err != nil {
		return Result{}, err
	}
	t, err := newTest(m, o)
	if err != nil {
		return Result{}, err
	}
	defer t.c.Close()
	res := newResult(m, t.c, o)
	if err := t.warmup(ctx); err != nil {
		return Result{}, err
	}
	if err := t.samples(ctx, &res); err != nil {
		return Result{}, err
	}
	return res, nil
}

// samples takes all samples.
func (t *test) samples(ctx context.Context, res *Result) error {
	o := t.o
	total := max(o.Repetitions, 1)
	for i := range total {
		if err := t.reachDepth(ctx); err != nil {
			return fmt.Errorf("bench: filling the cache to depth %d: %w", o.Depth, err)
		}
		if err := t.sample(ctx, res); err != nil {
			return fmt.Errorf("bench: sample %d of %d: %w", i+1, total, err)
		}
		if o.Progress != nil {
			o.Progress(i+1, total)
		}
	}
	return nil
}

// Prefill processes o.Depth tokens of o.DepthTrace and writes the context's state, for Options.State of later runs.
func Prefill(ctx context.Context, m *engine.Model, o Options, w io.Writer) error {
	t, err := newTest(m, o)
	if err != nil {
		return err
	}
	defer t.c.Close()
	if err := t.process(ctx, t.fill.prompt(o.Depth)); err != nil {
		return fmt.Errorf("bench: filling the cache to depth %d: %w", o.Depth, err)
	}
	return t.c.SaveState(w)
}

// test is one context with the tokens that go through it.
type test struct {
	m      *engine.Model
	c      *engine.Context
	o      Options
	tokens trace // of the timed part
	fill   trace // of the depth
	meter  *meter.Meter
}

// newTest opens a context with room for exactly what the test needs, as llama-bench does.
func newTest(m *engine.Model, o Options) (*test, error) {
	tokens, err := newTrace(m, o.Trace)
	if err != nil {
		return nil, err
	}
	fill, err := newTrace(m, o.DepthTrace)
	if err != nil {
		return nil, err
	}
	c, err := m.NewContext(engine.ContextOptions{
		NCtx: o.Depth + o.Prompt + o.Generate, NBatch: o.Batch, NUBatch: o.UBatch,
		TypeK: o.TypeK, TypeV: o.TypeV, Mask: o.Mask, Surrogates: o.Surrogates, Threads: o.Threads,
	})
	if err != nil {
		return nil, err
	}
	return &test{m, c, o, tokens, fill, meter.New(m.Info().Layers)}, nil
}

// warmup touches the weights and does the whole prompt once, then one token where there is a generation.
func (t *test) warmup(ctx context.Context) error {
	if t.o.NoWarmup {
		return nil
	}
	t.m.Touch(t.c.Threads())
	if err := t.timed(ctx, t.tokens.prompt(t.o.Prompt), t.tokens.generated(min(t.o.Generate, 1))); err != nil {
		return fmt.Errorf("bench: warm-up: %w", err)
	}
	return nil
}

// reachDepth leaves the cache filled with o.Depth tokens, from the saved state when there is one.
func (t *test) reachDepth(ctx context.Context) error {
	t.c.Clear()
	if t.o.Depth == 0 {
		return nil
	}
	if t.o.State == nil {
		return t.process(ctx, t.fill.prompt(t.o.Depth))
	}
	if _, err := t.o.State.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return t.c.LoadState(t.o.State)
}

// sample takes one sample at the current depth.
func (t *test) sample(ctx context.Context, res *Result) error {
	prompt, generated := t.tokens.prompt(t.o.Prompt), t.tokens.generated(t.o.Generate)
	t.c.Meter(t.meter)
	defer t.c.Meter(nil)
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := usageNow()
	start := time.Now()
	if err := t.timed(ctx, prompt, generated); err != nil {
		return err
	}
	res.SamplesNS = append(res.SamplesNS, time.Since(start).Nanoseconds())
	u := usageNow().since(before)
	res.Collections = append(res.Collections, u.collections)
	res.MinorFaults = append(res.MinorFaults, u.minorFaults)
	res.MajorFaults = append(res.MajorFaults, u.majorFaults)
	res.Work = t.meter.Total()
	return nil
}

// timed computes the prompt at once, then the generation token by token.
func (t *test) timed(ctx context.Context, prompt, generated []int32) error {
	if len(prompt) > 0 {
		if err := t.process(ctx, prompt); err != nil {
			return err
		}
	}
	for i := range generated {
		if err := t.process(ctx, generated[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// process computes tokens after those the context holds; only the last one's logits are computed.
func (t *test) process(ctx context.Context, tokens []int32) error {
	return t.c.Decode(ctx, &engine.Batch{Tokens: tokens})
}
