package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"attnbudget/atomicfile"
	"attnbudget/engine"
	"attnbudget/engine/bench"
	"attnbudget/engine/kvcache"
	"attnbudget/plan"
)

// contextOptions are what arm and condition say about every context.
func (c *child) contextOptions(m *engine.Model) (engine.ContextOptions, error) {
	k, err := engine.ParseCacheType(c.job.Arm.TypeK)
	if err != nil {
		return engine.ContextOptions{}, err
	}
	v, err := engine.ParseCacheType(c.job.Arm.TypeV)
	if err != nil {
		return engine.ContextOptions{}, err
	}
	stand, err := c.surrogates(m)
	return engine.ContextOptions{
		NBatch: c.job.Condition.Batch, NUBatch: c.job.Condition.UBatch, TypeK: k, TypeV: v,
		Mask: c.job.Arm.Mask.Layers, Surrogates: stand, Threads: c.job.Threads,
	}, err
}

// surrogates are what stands in for the attention that the arm drops; nil when nothing does. They are bound to the model that
// the arm's weights were quantised from.
func (c *child) surrogates(m *engine.Model) (*engine.Surrogates, error) {
	mask := c.job.Arm.Mask
	if mask.Surrogate == "" {
		return nil, nil
	}
	s, err := m.OpenSurrogates(mask.Surrogate, c.job.Model.Fingerprint)
	if err != nil {
		return nil, &UnavailableError{err}
	}
	if s.Hash() != mask.SurrogateHash {
		return nil, &UnavailableError{fmt.Errorf("%s has changed since the plan was made: its tensors had the hash %s and have %s; load the campaign again", mask.Surrogate, mask.SurrogateHash, s.Hash())}
	}
	return s, nil
}

func (c *child) benchOptions(m *engine.Model) (bench.Options, error) {
	base, err := c.contextOptions(m)
	if err != nil {
		return bench.Options{}, err
	}
	cond := c.job.Condition
	return bench.Options{
		Prompt: cond.Prompt, Generate: cond.Generate, Depth: cond.Depth,
		Batch: base.NBatch, UBatch: base.NUBatch, TypeK: base.TypeK, TypeV: base.TypeV, Mask: base.Mask, Surrogates: base.Surrogates, Threads: base.Threads,
		Repetitions: 1, Trace: c.job.Unit.Key.Trace, DepthTrace: c.job.DepthTrace,
		Progress: func(done, total int) { c.say.progress(cond.Stage, int64(done), int64(total)) },
	}, nil
}

// bench executes one repetition of a throughput or depth unit.
func (c *child) bench(ctx context.Context, m *engine.Model) error {
	o, err := c.benchOptions(m)
	if err != nil {
		return err
	}
	if c.job.State != "" {
		f, err := os.Open(c.job.State)
		if err != nil {
			return fmt.Errorf("prefilled cache: %w", err)
		}
		defer f.Close()
		o.State = f
	}
	r, err := bench.Run(ctx, m, o)
	if err != nil {
		return err
	}
	r.ModelFilename = c.job.Model.Source
	return bench.Write(c.stdout, "jsonl", []bench.Result{r})
}

// prefill makes the cache that depth units load.
func (c *child) prefill(ctx context.Context, m *engine.Model) error {
	o, err := c.benchOptions(m)
	if err != nil {
		return err
	}
	c.say.progress("prefill", 0, int64(o.Depth))
	return atomicfile.Write(c.job.State, func(f *os.File) error { return bench.Prefill(ctx, m, o, f) })
}

// kvLine is the JSON line of the kv stage, docs/format/output.md.
type kvLine struct {
	Kind    string    `json:"kind"`
	NCtx    int       `json:"n_ctx"`
	NSeqMax int       `json:"n_seq_max"`
	Caches  []kvCache `json:"caches"`
	Bytes   int64     `json:"bytes"`
}

type kvCache struct {
	Name   string `json:"name"`
	Cells  int    `json:"cells"`
	Layers []int  `json:"layers"`
	TypeK  string `json:"type_k"`
	TypeV  string `json:"type_v"`
	BytesK int64  `json:"bytes_k"`
	BytesV int64  `json:"bytes_v"`
}

// kv prints what the caches of a context take, as upstream's allocator would log it and exactly.
func (c *child) kv(m *engine.Model) error {
	o, err := c.contextOptions(m)
	if err != nil {
		return err
	}
	o.NCtx, o.NSeqMax = c.job.Condition.Context, 1
	sizes, err := m.CacheSizes(o)
	if err != nil {
		return err
	}
	line := kvLine{Kind: plan.KV, NCtx: o.NCtx, NSeqMax: o.NSeqMax, Caches: []kvCache{}}
	for _, s := range sizes {
		if _, err := fmt.Fprintln(c.stdout, s); err != nil {
			return err
		}
		line.Caches = append(line.Caches, describeCache(s))
		line.Bytes += s.Bytes()
	}
	return json.NewEncoder(c.stdout).Encode(line)
}

func describeCache(s kvcache.Size) kvCache {
	return kvCache{
		Name: s.Name, Cells: s.Cells, Layers: append([]int{}, s.Layers...),
		TypeK: strings.ToLower(s.TypeK.String()), TypeV: strings.ToLower(s.TypeV.String()), BytesK: s.BytesK, BytesV: s.BytesV,
	}
}
