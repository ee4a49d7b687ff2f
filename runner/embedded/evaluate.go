package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"

	"attnbudget/engine"
	"attnbudget/engine/eval"
)

func (c *child) perplexityOptions() eval.PerplexityOptions {
	cond := c.job.Condition
	return eval.PerplexityOptions{NCtx: cond.Context, NBatch: cond.Batch, Chunks: cond.Chunks, Threads: c.job.Threads}
}

func (c *child) newPerplexity(m *engine.Model, o eval.PerplexityOptions) (*eval.Perplexity, error) {
	in, err := c.input(m)
	if err != nil {
		return nil, err
	}
	return eval.NewPerplexity(in.tokenizer, in.Input, o)
}

func (c *child) perplexity(ctx context.Context, m *engine.Model) error {
	p, err := c.newPerplexity(m, c.perplexityOptions())
	if err != nil {
		return err
	}
	return evaluate(ctx, c, m, plannedEvaluation[eval.Chunk]{p, p.Chunks, 1, p.Warnings})
}

func (c *child) multipleChoice(ctx context.Context, m *engine.Model) error {
	in, err := c.input(m)
	if err != nil {
		return err
	}
	q, err := eval.NewChoice(in.tokenizer, in.Input, c.taskOptions())
	if err != nil {
		return err
	}
	return evaluate(ctx, c, m, plannedEvaluation[eval.ChoiceItem]{q, len(q.Tasks), tasksPerSync, q.Warnings})
}

func (c *child) hellaSwag(ctx context.Context, m *engine.Model) error {
	in, err := c.input(m)
	if err != nil {
		return err
	}
	h, err := eval.NewHellaSwag(in.tokenizer, in.Input, c.taskOptions())
	if err != nil {
		return err
	}
	return evaluate(ctx, c, m, plannedEvaluation[eval.HellaSwagItem]{h, len(h.Tasks), tasksPerSync, h.Warnings})
}

func (c *child) winogrande(ctx context.Context, m *engine.Model) error {
	in, err := c.input(m)
	if err != nil {
		return err
	}
	w, err := eval.NewWinogrande(in.tokenizer, in.Input, c.taskOptions())
	if err != nil {
		return err
	}
	return evaluate(ctx, c, m, plannedEvaluation[eval.WinograndeItem]{w, len(w.Tasks), tasksPerSync, w.Warnings})
}

func (c *child) taskOptions() eval.TaskOptions {
	cond := c.job.Condition
	return eval.TaskOptions{Tasks: cond.Tasks, NCtx: cond.Context, NBatch: cond.Batch, Threads: c.job.Threads}
}

// tasksPerSync is after how many finished tasks a checkpoint is synced to disk; a few of them may take less time than a
// sync.
const tasksPerSync = 25

// plannedEvaluation is an evaluation that is ready to run.
type plannedEvaluation[Item any] struct {
	eval.Evaluation[Item]
	total    int // items
	perSync  int // items
	warnings []string
}

// evaluate runs an evaluation from its checkpoint on and prints it when it is complete.
func evaluate[Item any](ctx context.Context, c *child, m *engine.Model, e plannedEvaluation[Item]) error {
	c.warn(e.warnings)
	base, err := c.contextOptions(m)
	if err != nil {
		return err
	}
	ec, err := m.NewContext(e.ContextOptions(base))
	if err != nil {
		return err
	}
	defer ec.Close()
	items, err := evaluateFrom(ctx, c, ec, e)
	var foreign *eval.CheckpointError
	if errors.As(err, &foreign) {
		c.warn([]string{err.Error()})
		c.say.note("what was finished is not used but evaluated again: " + foreign.Problem)
		if err := os.Remove(c.job.Checkpoint); err != nil {
			return err
		}
		items, err = evaluateFrom(ctx, c, ec, e)
	}
	if err != nil {
		return err
	}
	c.warn(e.Doubts(items))
	return e.Write(c.stdout, items)
}

func (c *child) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintln(c.stderr, "warning: "+w)
	}
}

func evaluateFrom[Item any](ctx context.Context, c *child, ec *engine.Context, e plannedEvaluation[Item]) (items []Item, err error) {
	cp, done, err := openCheckpoint[Item](c.job, e.perSync)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cp.close()) }()
	if cp.dropped != "" {
		c.warn([]string{cp.dropped})
		c.say.note(cp.dropped)
	}
	if cp.resumed > 0 {
		c.say.message(message{Resumed: cp.resumed})
	}
	finished := len(done)
	c.say.progress(c.job.Condition.Stage, int64(finished), int64(e.total))
	return e.Run(ctx, ec, done, func(item Item) error {
		finished++
		c.say.progress(c.job.Condition.Stage, int64(finished), int64(e.total))
		return cp.add(item)
	})
}
