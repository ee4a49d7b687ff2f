package embedded

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"attnbudget/engine"
	"attnbudget/engine/eval"
	"attnbudget/engine/kernel"
	"attnbudget/plan"
)

// divergence compares the arm with the logits of the base.
func (c *child) divergence(ctx context.Context, m *engine.Model) error {
	tok, err := m.Tokenizer()
	if err != nil {
		return err
	}
	base, err := os.Open(c.job.State)
	if err != nil {
		return fmt.Errorf("base logits: %w", err)
	}
	defer base.Close()
	info, err := base.Stat()
	if err != nil {
		return fmt.Errorf("base logits: %w", err)
	}
	cond := c.job.Condition
	d, err := eval.NewDivergence(tok, base.Name(), base, info.Size(), eval.DivergenceOptions{NBatch: cond.Batch, Chunks: cond.Chunks, Threads: c.job.Threads})
	if err != nil {
		return err
	}
	return evaluate(ctx, c, m, plannedEvaluation[eval.DivergenceChunk]{d, d.Chunks, 1, d.Warnings})
}

// baseLogits makes the logits that divergence compares with, by default in upstream's format: they take half the space of
// float32, their rounding is far below what most arms differ by, and the figures are those that upstream would give.
func (c *child) baseLogits(ctx context.Context, m *engine.Model) error {
	format, err := eval.ParseLogitsFormat(cmp.Or(c.job.Condition.LogitsFormat, eval.LogitsUpstream.String()))
	if err != nil {
		return err
	}
	o := c.perplexityOptions()
	o.Logits, o.Origin = format, c.origin()
	p, err := c.newPerplexity(m, o)
	if err != nil {
		return err
	}
	base, err := c.contextOptions(m)
	if err != nil {
		return err
	}
	ec, err := m.NewContext(p.ContextOptions(base))
	if err != nil {
		return err
	}
	defer ec.Close()
	finished := 0
	file := LogitsFile{Path: c.job.State, ID: c.job.Unit.State, Environment: c.job.Environment, Note: c.say.note}
	_, err = file.Make(ctx, p, ec, func(eval.Chunk) error {
		finished++
		c.say.progress("base logits", int64(finished), int64(p.Chunks))
		return nil
	})
	return err
}

// origin is what the base's logits say they are of.
func (c *child) origin() eval.Origin {
	arm := c.job.Arm
	return eval.Origin{
		Model: c.modelSHA256, Mask: plan.CanonicalMask(arm.Mask.Layers), Surrogate: arm.Mask.SurrogateHash,
		TypeK: arm.TypeK, TypeV: arm.TypeV, Engine: engine.ResultVersion(kernel.Name()),
	}
}
