package bench

import (
	"fmt"
	"math"
	"time"

	"attnbudget/engine"
	"attnbudget/engine/meter"

	"github.com/montanaflynn/stats"
)

// Result is one test with its samples: a row of llama-bench's output.
type Result struct {
	ModelFilename string
	ModelType     string // "llama 5M Q4_0", as llama-bench describes a model
	ModelBytes    int64  // of all tensors
	ModelParams   int64
	CPU           string
	BuildCommit   string
	Batch, UBatch int
	Threads       int
	TypeK, TypeV  string
	Prompt        int
	Generate      int
	Depth         int
	Time          time.Time // when the test started
	SamplesNS     []int64
	Collections   []int64    // of garbage, inside each sample
	MinorFaults   []int64    // page faults inside each sample, served from memory
	MajorFaults   []int64    // served from a disk
	Work          meter.Work // done in all samples together
	Mask          string     // canonical
	Surrogate     string     // hash of what stands in for dropped attention; "" = nothing does
	Trace         string
	StateLoaded   int // tokens that came from a saved state
}

func newResult(m *engine.Model, c *engine.Context, o Options) Result {
	info := m.Info()
	r := Result{
		ModelFilename: m.Path(), ModelType: info.Description(), ModelBytes: info.Bytes, ModelParams: info.Params,
		CPU: cpuName(), BuildCommit: buildCommit(),
		Batch: c.NBatch(), UBatch: c.NUBatch(), Threads: c.Threads(),
		TypeK: cacheTypeName(c.TypeK()), TypeV: cacheTypeName(c.TypeV()),
		Prompt: o.Prompt, Generate: o.Generate, Depth: o.Depth,
		Time: time.Now().UTC(), Mask: c.Mask().Canonical(), Trace: o.Trace,
	}
	if o.Surrogates != nil {
		r.Surrogate = o.Surrogates.Hash()
	}
	if o.State != nil {
		r.StateLoaded = o.Depth
	}
	return r
}

// Test is llama-bench's name of the test: "pp512", "tg128", "pp512+tg128", "tg32 @ d4096".
func (r Result) Test() string {
	var name string
	switch {
	case r.Prompt > 0 && r.Generate > 0:
		name = fmt.Sprintf("pp%d+tg%d", r.Prompt, r.Generate)
	case r.Prompt > 0:
		name = fmt.Sprintf("pp%d", r.Prompt)
	default:
		name = fmt.Sprintf("tg%d", r.Generate)
	}
	if r.Depth > 0 {
		name += fmt.Sprintf(" @ d%d", r.Depth)
	}
	return name
}

// SamplesTS are the samples in tokens per second.
func (r Result) SamplesTS() []float64 {
	out := make([]float64, len(r.SamplesNS))
	for i, ns := range r.SamplesNS {
		out[i] = 1e9 * float64(r.Prompt+r.Generate) / float64(max(ns, 1))
	}
	return out
}

// BytesPerToken is what the samples moved for each of their tokens, counted.
func (r Result) BytesPerToken() float64 { return r.perToken(r.Work.Total().Bytes) }

// OperationsPerToken is how many operations the samples did for each of their tokens, counted.
func (r Result) OperationsPerToken() float64 { return r.perToken(r.Work.Total().Operations) }

func (r Result) perToken(n int64) float64 {
	return float64(n) / float64(max(1, len(r.SamplesNS)*(r.Prompt+r.Generate)))
}

// meanSD is the mean and the sample standard deviation (n-1), 0 for a single value as llama-bench has it.
func meanSD(x []float64) (mean, sd float64) {
	mean, err := stats.Mean(x)
	if err != nil {
		return 0, 0
	}
	sd, err = stats.StandardDeviationSample(x)
	if err != nil || math.IsNaN(sd) {
		sd = 0
	}
	return mean, sd
}
