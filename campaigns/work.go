package campaigns

import (
	"attnbudget/plan"
)

// work is what a quality stage makes a model evaluate: so many passes of so many tokens.
type work struct {
	passes int64 // chunks or tasks
	length int64 // tokens of one, the longest where they differ
}

type workKey struct{ model, condition string }

// measureInput counts the work of a condition for every model, and notes inputs that are too short or too long for it.
func (c *Campaign) measureInput(cond condition, text []byte) {
	for _, m := range c.models {
		if m == nil {
			continue
		}
		switch cond.Stage {
		case plan.Perplexity:
			c.measureText(m, cond, string(text))
		}
	}
}

// measureText counts chunks. Fewer tokens than two chunks are refused, as upstream does: the figure would say nothing.
func (c *Campaign) measureText(m *model, cond condition, text string) {
	tokens, ok := c.countTokens(m, cond, text)
	if !ok {
		return
	}
	if tokens < 2*cond.Context {
		c.doc.wrong(cond.at.key("text"), "give a longer text or a smaller context",
			"%s has %d tokens for model %q; a context of %d needs at least %d", c.Stages[cond.stage].input(), tokens, m.Name, cond.Context, 2*cond.Context)
		return
	}
	chunks := tokens / cond.Context
	if cond.Chunks > 0 {
		chunks = min(chunks, cond.Chunks)
	}
	c.work[workKey{m.Name, cond.Name}] = work{passes: int64(chunks), length: int64(cond.Context)}
}

func (c *Campaign) countTokens(m *model, cond condition, text string) (int, bool) {
	t, err := m.engine.Tokenizer()
	if err != nil {
		c.doc.wrong(at("models", m.Name), "", "the model's tokenizer cannot be used: %s", c.shorten(err, m.Source))
		return 0, false
	}
	key := workKey{m.Name, cond.Input}
	if n, known := c.tokens[key]; known {
		return n, true
	}
	c.tokens[key] = len(t.Encode(text, true, false))
	return c.tokens[key], true
}
