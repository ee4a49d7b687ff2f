package realmodels

import (
	"errors"
	"math"
	"slices"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/eval"
)

// The measures: what the engine gives where upstream gave something, in the same form. Of each the first n are taken.

// physicalBatch is how many tokens upstream decodes at once.
const physicalBatch = 512

// window is the negative log-likelihood of the first n blocks of the text, in one context.
func (s *subject) window(t *testing.T, in eval.Input, all, n int) []float64 {
	ids := s.tok.Encode(string(in.Data), true, false)[:all]
	c := s.context(t, engine.ContextOptions{NCtx: 2048})
	out := make([]float64, n)
	for start := 0; start < n*windowBlock; start += physicalBatch {
		part := ids[start:min(start+physicalBatch, len(ids))]
		decode(t, c, part, start, 0)
		for j := range part {
			if next := start + j + 1; next < n*windowBlock {
				out[next/windowBlock] -= logProb(c.Logits(j), ids[next])
			}
		}
	}
	return out
}

// decode decodes ids from position start on and asks for the logits from row first on.
func decode(t *testing.T, c *engine.Context, ids []int32, start, first int) {
	t.Helper()
	b := &engine.Batch{Tokens: ids}
	for i := range ids {
		b.Pos = append(b.Pos, int32(start+i))
		b.Seqs = append(b.Seqs, []int32{0})
		b.Logits = append(b.Logits, i >= first)
	}
	if err := c.Decode(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func logProb(logits []float32, token int32) float64 {
	top, sum := slices.Max(logits), 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l - top))
	}
	return float64(logits[token]-top) - math.Log(sum)
}

// choices are the tokens that the engine finds likeliest, each after the prompt and upstream's own choices before it, so
// that one divergence does not hide what follows. They are decoded one by one.
func (s *subject) choices(t *testing.T, want continuation) []int32 {
	c := s.context(t, engine.ContextOptions{NCtx: 512})
	next, start := s.tok.Encode(want.Prompt, true, false), 0
	var out []int32
	for _, token := range want.Tokens {
		decode(t, c, next, start, len(next)-1)
		logits := c.Logits(len(next) - 1)
		out = append(out, int32(slices.Index(logits, slices.Max(logits))))
		start += len(next)
		next = []int32{token}
	}
	return out
}

func (s *subject) chunks(t *testing.T, in eval.Input, n int) []float64 {
	p, err := eval.NewPerplexity(s.tok, in, eval.PerplexityOptions{Chunks: n})
	if err != nil {
		t.Fatal(err)
	}
	chunks, err := p.Run(t.Context(), s.context(t, p.ContextOptions(engine.ContextOptions{})), nil, func(eval.Chunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var out []float64
	for _, c := range chunks {
		out = append(out, c.NLL)
	}
	return out
}

// errEnough ends an evaluation of which the beginning is wanted only.
var errEnough = errors.New("enough")

// first ends an evaluation after n items.
func first[T any](n int) func(T) error {
	return func(T) error {
		if n--; n == 0 {
			return errEnough
		}
		return nil
	}
}

// hellaSwag evaluates the first n of all tasks that are drawn; gold are the right answers.
func (s *subject) hellaSwag(t *testing.T, all, n int) (picks []pick, gold []int) {
	h, err := eval.NewHellaSwag(s.tok, data(t, "hellaswag_val_1000.txt"), eval.TaskOptions{Tasks: all})
	if err != nil {
		t.Fatal(err)
	}
	items, err := h.Run(t.Context(), s.context(t, h.ContextOptions(engine.ContextOptions{})), nil, first[eval.HellaSwagItem](n))
	if err != nil && !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	for _, item := range items {
		picks = append(picks, pick{item.Task, item.Scores[:], item.Pick})
		gold = append(gold, item.Gold)
	}
	return picks, gold
}

func (s *subject) winogrande(t *testing.T, all, n int) (picks []pick, gold []int) {
	w, err := eval.NewWinogrande(s.tok, data(t, "winogrande-debiased-eval.csv"), eval.TaskOptions{Tasks: all})
	if err != nil {
		t.Fatal(err)
	}
	items, err := w.Run(t.Context(), s.context(t, w.ContextOptions(engine.ContextOptions{})), nil, first[eval.WinograndeItem](n))
	if err != nil && !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	for _, item := range items {
		picks = append(picks, pick{item.Task, []float64{float64(item.Scores[0]), float64(item.Scores[1])}, item.Pick})
		gold = append(gold, item.Gold)
	}
	return picks, gold
}
