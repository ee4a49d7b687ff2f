package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"attnbudget/engine"
	"attnbudget/engine/eval"
)

func (c *child) newPerplexity(m *engine.Model) (*eval.Perplexity, error) {
	in, err := c.input(m)
	if err != nil {
		return nil, err
	}
	cond := c.job.Condition
	return eval.NewPerplexity(in.tokenizer, in.Input, eval.PerplexityOptions{NCtx: cond.Context, NBatch: cond.Batch, Chunks: cond.Chunks, Threads: c.job.Threads})
}

func (c *child) perplexity(ctx context.Context, m *engine.Model) error {
	p, err := c.newPerplexity(m)
	if err != nil {
		return err
	}
	return evaluate(ctx, c, m, evaluation[eval.Chunk]{p.ContextOptions, p.Run, p.Write, p.Chunks, 1})
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
	for _, warning := range q.Warnings {
		fmt.Fprintln(c.stderr, "warning: "+warning)
	}
	return evaluate(ctx, c, m, evaluation[eval.ChoiceItem]{q.ContextOptions, q.Run, q.Write, len(q.Tasks), tasksPerSync})
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
	return evaluate(ctx, c, m, evaluation[eval.HellaSwagItem]{h.ContextOptions, h.Run, h.Write, len(h.Tasks), tasksPerSync})
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
	for _, warning := range w.Warnings {
		fmt.Fprintln(c.stderr, "warning: "+warning)
	}
	return evaluate(ctx, c, m, evaluation[eval.WinograndeItem]{w.ContextOptions, w.Run, w.Write, len(w.Tasks), tasksPerSync})
}

func (c *child) taskOptions() eval.TaskOptions {
	cond := c.job.Condition
	return eval.TaskOptions{Tasks: cond.Tasks, NCtx: cond.Context, NBatch: cond.Batch, Threads: c.job.Threads}
}

// tasksPerSync is after how many finished tasks a checkpoint is synced to disk; a batch of them may take less time than a
// sync.
const tasksPerSync = 25

// evaluation is what the evaluators have in common; an Item is one finished chunk or task.
type evaluation[Item any] struct {
	options func(engine.ContextOptions) engine.ContextOptions
	run     func(context.Context, eval.Context, []Item, func(Item) error) ([]Item, error)
	write   func(io.Writer, []Item) error
	total   int
	perSync int
}

// evaluate runs an evaluation from its checkpoint on and prints it when it is complete.
func evaluate[Item any](ctx context.Context, c *child, m *engine.Model, e evaluation[Item]) error {
	base, err := c.contextOptions()
	if err != nil {
		return err
	}
	ec, err := m.NewContext(e.options(base))
	if err != nil {
		return err
	}
	defer ec.Close()
	items, err := evaluateFrom(ctx, c, ec, e)
	var foreign *eval.CheckpointError
	if errors.As(err, &foreign) {
		fmt.Fprintln(c.stderr, "warning: "+err.Error())
		if err := os.Remove(c.job.Checkpoint); err != nil {
			return err
		}
		items, err = evaluateFrom(ctx, c, ec, e)
	}
	if err != nil {
		return err
	}
	return e.write(c.stdout, items)
}

func evaluateFrom[Item any](ctx context.Context, c *child, ec *engine.Context, e evaluation[Item]) (items []Item, err error) {
	cp, done, err := openCheckpoint[Item](c.job, e.perSync)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cp.close()) }()
	if cp.resumed > 0 {
		c.say.message(message{Resumed: cp.resumed})
	}
	finished := len(done)
	c.say.progress(c.job.Condition.Stage, int64(finished), int64(e.total))
	batches := &batchContext{Context: ec, end: cp.endBatch}
	items, err = e.run(ctx, batches, done, func(item Item) error {
		cp.add(item)
		finished++
		c.say.progress(c.job.Condition.Stage, int64(finished), int64(e.total))
		return batches.err
	})
	if err == nil {
		err = cp.endBatch()
	}
	return items, err
}

// batchContext notices where an evaluator goes on to the next batch: it then clears the context.
type batchContext struct {
	eval.Context
	end func() error
	err error // the first of end
}

func (b *batchContext) Clear() {
	if b.err == nil {
		b.err = b.end()
	}
	b.Context.Clear()
}
