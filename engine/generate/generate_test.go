package generate

import (
	"bytes"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/builtin"
	"attnbudget/engine/gguf"
)

// TestSamplerFilters checks which tokens can be drawn at all, over many seeds.
func TestSamplerFilters(t *testing.T) {
	logits := []float32{1, 4, 2, 3.9, -5}
	for _, c := range []struct {
		name string
		s    Sampling
		want []int32
	}{
		{"greedy takes the largest", Sampling{}, []int32{1}},
		{"top-k 1 is greedy", Sampling{Temperature: 1, TopK: 1}, []int32{1}},
		{"top-k 2 keeps two", Sampling{Temperature: 1, TopK: 2}, []int32{1, 3}},
		{"top-p of a half keeps the largest only", Sampling{Temperature: 1, TopP: 0.4}, []int32{1}},
		{"top-p just above it keeps two", Sampling{Temperature: 1, TopP: 0.6}, []int32{1, 3}},
		{"a low temperature sharpens after the filters", Sampling{Temperature: 0.001, TopK: 3}, []int32{1}},
		{"a high temperature draws everything", Sampling{Temperature: 1000}, []int32{0, 1, 2, 3, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := map[int32]bool{}
			for seed := range uint64(400) {
				c.s.Seed = seed
				seen[newSampler(c.s).next(logits)] = true
			}
			for _, id := range c.want {
				if !seen[id] {
					t.Errorf("token %d was never drawn", id)
				}
				delete(seen, id)
			}
			if len(seen) > 0 {
				t.Errorf("also drawn: %v", seen)
			}
		})
	}
}

func glossary(t *testing.T, nctx int) (*engine.Model, *engine.Context) {
	t.Helper()
	data, err := builtin.Open("glossary-5m")
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.OpenBytes("glossary-5m", data)
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.OpenFile(f, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.NewContext(engine.ContextOptions{NCtx: nctx})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); m.Close() })
	return m, c
}

func TestGreedyContinuesADictionaryEntry(t *testing.T) {
	m, c := glossary(t, 256)
	var out bytes.Buffer
	r, err := Run(t.Context(), m, c, Options{Prompt: "tiger: large feline of", Tokens: 12}, &out)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Tokens) != 12 || r.Stopped != "token limit" {
		t.Errorf("%d tokens, stopped by %q", len(r.Tokens), r.Stopped)
	}
	if r.Text == "" || out.String() != r.Text {
		t.Errorf("streamed %q, result %q", out.String(), r.Text)
	}
	c.Clear()
	again, err := Run(t.Context(), m, c, Options{Prompt: "tiger: large feline of", Tokens: 12}, &bytes.Buffer{})
	if err != nil || again.Text != r.Text {
		t.Errorf("a second run gave %q, %v; want %q", again.Text, err, r.Text)
	}
}

func TestGenerationStopsWhenTheContextIsFull(t *testing.T) {
	m, c := glossary(t, 256)
	r, err := Run(t.Context(), m, c, Options{Prompt: "tiger:", IgnoreEOS: true}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Stopped != "context full" || len(r.Prompt)+len(r.Tokens) != c.NCtx()+1 {
		t.Errorf("stopped by %q with %d + %d tokens in a context of %d", r.Stopped, len(r.Prompt), len(r.Tokens), c.NCtx())
	}
}

func TestAPromptLongerThanTheContextIsRefused(t *testing.T) {
	m, c := glossary(t, 256)
	long := bytes.Repeat([]byte("tiger "), 300)
	if _, err := Run(t.Context(), m, c, Options{Prompt: string(long)}, &bytes.Buffer{}); err == nil {
		t.Error("accepted")
	}
}
