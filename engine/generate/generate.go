// Package generate continues a prompt token by token, streaming the text as it comes.
//
// It keeps one sequence and no conversation: chat templates, grammars and speculative decoding are not its business.
package generate

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"attnbudget/engine"
)

// Options of a generation.
type Options struct {
	Prompt    string
	Tokens    int  // at most so many new tokens; 0 = until the end token or the context is full
	IgnoreEOS bool // go on past end-of-generation tokens
	Sampling  Sampling
}

// Result is what was generated.
type Result struct {
	Prompt, Tokens []int32 // ids
	Text           string
	PromptTime     time.Duration
	GenerateTime   time.Duration
	Stopped        string // "end token", "token limit" or "context full"
}

// Run processes the prompt and streams the continuation to w. Runes are never split between two writes.
func Run(ctx context.Context, m *engine.Model, c *engine.Context, o Options, w io.Writer) (Result, error) {
	tok, err := m.Tokenizer()
	if err != nil {
		return Result{}, err
	}
	res := Result{Prompt: tok.Encode(o.Prompt, true, true)}
	if len(res.Prompt) == 0 {
		return res, fmt.Errorf("generate: the prompt is empty and the model has no beginning-of-sequence token: give a prompt")
	}
	if len(res.Prompt) > c.NCtx() {
		return res, fmt.Errorf("generate: the prompt has %d tokens and the context %d: raise -c", len(res.Prompt), c.NCtx())
	}
	start := time.Now()
	logits, err := process(ctx, c, res.Prompt)
	if err != nil {
		return res, err
	}
	res.PromptTime = time.Since(start)
	start = time.Now()
	stream := tok.NewStream()
	s := newSampler(o.Sampling)
	write := func(text string) error {
		res.Text += text
		_, err := io.WriteString(w, text)
		return err
	}
	for {
		for _, id := range tok.Suppressed() {
			logits[id] = float32(math.Inf(-1))
		}
		id := s.next(logits)
		if tok.IsEOG(id) && !o.IgnoreEOS {
			res.Stopped = "end token"
			break
		}
		res.Tokens = append(res.Tokens, id)
		if err := write(stream.Push(id)); err != nil {
			return res, err
		}
		if o.Tokens > 0 && len(res.Tokens) >= o.Tokens {
			res.Stopped = "token limit"
			break
		}
		if len(res.Prompt)+len(res.Tokens) > c.NCtx() {
			res.Stopped = "context full"
			break
		}
		if logits, err = process(ctx, c, []int32{id}); err != nil {
			return res, err
		}
	}
	res.GenerateTime = time.Since(start)
	return res, write(stream.Flush())
}

// process computes tokens after those the context holds and returns the last one's logits.
func process(ctx context.Context, c *engine.Context, tokens []int32) ([]float32, error) {
	if err := c.Decode(ctx, &engine.Batch{Tokens: tokens}); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	return c.Logits(len(tokens) - 1), nil
}
