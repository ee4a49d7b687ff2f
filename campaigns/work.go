package campaigns

import (
	"cmp"
	"errors"

	"attnbudget/engine/eval"
	"attnbudget/engine/tokenizer"
	"attnbudget/plan"
)

// work is what a quality stage makes a model evaluate: so many passes of so many tokens.
type work struct {
	passes int64 // chunks or tasks
	length int64 // tokens of one, the mean where they differ
	logits int64 // bytes of a logits file of the text
}

type workKey struct{ model, condition string }

// measureInput prepares the evaluation of a condition for every model, exactly as the unit will: what the evaluator refuses
// is noted now, and the work is counted.
func (c *Campaign) measureInput(cond condition, text []byte) {
	in := eval.Input{Name: c.Stages[cond.stage].input(), Data: text}
	for _, m := range c.models {
		if m == nil || !c.doc.clean(at("models", m.Name)) {
			continue
		}
		tok, err := m.engine.Tokenizer()
		if err != nil {
			c.doc.wrong(at("models", m.Name), "", "the tokenizer of model %q cannot be used: %s", m.Name, c.shorten(err, m.Source))
			continue
		}
		w, warnings, err := measure(tok, in, cond)
		if err != nil {
			c.noteInput(m, cond, err)
			continue
		}
		for _, warning := range warnings {
			c.warn("%s", warning)
		}
		c.work[workKey{m.Name, cond.Name}] = w
	}
}

// measure counts the work of a condition, and hands on what the evaluator warns of.
func measure(tok *tokenizer.Tokenizer, in eval.Input, cond condition) (work, []string, error) {
	switch cond.Stage {
	case plan.HellaSwag:
		h, err := eval.NewHellaSwag(tok, in, taskOptions(cond))
		if err != nil {
			return work{}, nil, err
		}
		return measureTasks(tok, h.Tasks), h.Warnings, nil
	case plan.Winogrande:
		w, err := eval.NewWinogrande(tok, in, taskOptions(cond))
		if err != nil {
			return work{}, nil, err
		}
		return measureTasks(tok, w.Tasks), w.Warnings, nil
	case plan.MultipleChoice:
		q, err := eval.NewChoice(tok, in, taskOptions(cond))
		if err != nil {
			return work{}, nil, err
		}
		return measureTasks(tok, q.Tasks), q.Warnings, nil
	}
	format, err := eval.ParseLogitsFormat(cmp.Or(cond.LogitsFormat, eval.LogitsUpstream.String()))
	if err != nil {
		return work{}, nil, err
	}
	p, err := eval.NewPerplexity(tok, in, eval.PerplexityOptions{NCtx: cond.Context, NBatch: cond.Batch, Chunks: cond.Chunks, Logits: format})
	if err != nil {
		return work{}, nil, err
	}
	return work{passes: int64(p.Chunks), length: int64(cond.Context), logits: p.LogitsBytes()}, p.Warnings, nil
}

func taskOptions(cond condition) eval.TaskOptions {
	return eval.TaskOptions{Tasks: cond.Tasks, NCtx: cond.Context, NBatch: cond.Batch}
}

func measureTasks[T eval.Task](tok *tokenizer.Tokenizer, tasks []T) work {
	total := 0
	for i := range tasks {
		_, cells := eval.LongestTask(tok, tasks[i:i+1])
		total += cells
	}
	return work{passes: int64(len(tasks)), length: int64(total / max(len(tasks), 1))}
}

// noteInput says what an evaluator found wrong with its input. A mistake inside of the file is the same for every model and
// noted once.
func (c *Campaign) noteInput(m *model, cond condition, err error) {
	p := cond.inputPath()
	source := c.Stages[cond.stage].input()
	var short *eval.TooShortError
	var long *eval.TooLongError
	var format *eval.FormatError
	switch {
	case errors.As(err, &short):
		c.doc.wrong(p, "give a longer text or a smaller context", "%s has %d tokens for model %q; a context of %d needs at least %d",
			source, short.Tokens, m.Name, short.NCtx, 2*short.NCtx)
	case errors.As(err, &long):
		c.doc.wrong(cond.at.key("context"), "raise the context, or leave the task out", "the task at %s has %d tokens for model %q; a context of %d gives all its continuations %d",
			long.Task, long.Tokens, m.Name, cond.Context, long.Cells)
	case errors.As(err, &format):
		if c.doc.clean(p) {
			c.doc.wrong(p, "", "%v", format)
		}
	default:
		c.doc.wrong(p, "", "%s cannot be evaluated with model %q: %v", source, m.Name, err)
	}
}
