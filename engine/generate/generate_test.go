package generate

import (
	"bytes"
	"errors"
	"slices"
	"strings"
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
	return glossaryWith(t, nctx, "", 0)
}

// glossaryWith is the model with a value of a metadata key.
func glossaryWith(t *testing.T, nctx int, key string, value any) (*engine.Model, *engine.Context) {
	t.Helper()
	data, err := builtin.Open("glossary-5m")
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.OpenBytes("glossary-5m", data)
	if err != nil {
		t.Fatal(err)
	}
	var entries []gguf.Entry
	for _, k := range f.Keys {
		if v, _ := f.Value(k); k != key {
			entries = append(entries, gguf.Entry{Key: k, Value: v})
		}
	}
	if key != "" {
		entries = append(entries, gguf.Entry{Key: key, Value: gguf.ValueOf(value)})
	}
	if f, err = gguf.NewFile(f.Path, entries, f.Tensors); err != nil {
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

func TestGenerationStopsAtTheEndToken(t *testing.T) {
	o := Options{Prompt: "tiger:", Tokens: 8}
	m, c := glossary(t, 256)
	free, err := Run(t.Context(), m, c, o, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	end := 5
	for slices.Index(free.Tokens, free.Tokens[end]) != end {
		end--
	}
	for _, ignore := range []bool{false, true} {
		m, c := glossaryWith(t, 256, "tokenizer.ggml.eos_token_id", uint32(free.Tokens[end]))
		o.IgnoreEOS = ignore
		r, err := Run(t.Context(), m, c, o, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		stopped, tokens := "end token", free.Tokens[:end]
		if ignore {
			stopped, tokens = "token limit", free.Tokens
		}
		if r.Stopped != stopped || !slices.Equal(r.Tokens, tokens) {
			t.Errorf("end token ignored %v: stopped by %q with %v, want %v", ignore, r.Stopped, r.Tokens, tokens)
		}
	}
}

func TestSuppressedTokensAreNeverChosen(t *testing.T) {
	o := Options{Prompt: "tiger:", Tokens: 8}
	m, c := glossary(t, 256)
	free, err := Run(t.Context(), m, c, o, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	m, c = glossaryWith(t, 256, "tokenizer.ggml.suppress_tokens", []int32{free.Tokens[0], free.Tokens[1]})
	for _, temperature := range []float64{0, 1} {
		o.Sampling.Temperature = temperature
		c.Clear()
		r, err := Run(t.Context(), m, c, o, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Tokens) == 0 || slices.Contains(r.Tokens, free.Tokens[0]) || slices.Contains(r.Tokens, free.Tokens[1]) {
			t.Errorf("temperature %g: %v, of which %v are suppressed", temperature, r.Tokens, free.Tokens[:2])
		}
	}
}

// refusing takes no text.
type refusing struct{}

var errRefused = errors.New("refused")

func (refusing) Write([]byte) (int, error) { return 0, errRefused }

func TestAnErrorOfTheWriterEndsTheGeneration(t *testing.T) {
	m, c := glossary(t, 256)
	if r, err := Run(t.Context(), m, c, Options{Prompt: "tiger:", Tokens: 5}, refusing{}); !errors.Is(err, errRefused) || len(r.Tokens) != 1 {
		t.Errorf("%d tokens, %v", len(r.Tokens), err)
	}
}

func TestAnEmptyPromptNeedsABeginning(t *testing.T) {
	m, c := glossaryWith(t, 256, "tokenizer.ggml.add_bos_token", false)
	if _, err := Run(t.Context(), m, c, Options{}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "give a prompt") {
		t.Errorf("error %v", err)
	}
}

func TestOfEqualLogitsTheLowestIDWins(t *testing.T) {
	logits := make([]float32, 100)
	logits[7], logits[70], logits[99] = 1, 1, 1
	for _, s := range []Sampling{{}, {Temperature: 1, TopK: 1}} {
		if got := newSampler(s).next(logits); got != 7 {
			t.Errorf("%+v: token %d, want 7", s, got)
		}
	}
}

func TestNucleusEndsWhereTheProbabilityIsReached(t *testing.T) {
	if got := len(nucleus([]candidate{{id: 0}, {id: 1}}, 0.5)); got != 1 {
		t.Errorf("half of two equal tokens are %d", got)
	}
}

func TestAPromptLongerThanTheContextIsRefused(t *testing.T) {
	m, c := glossary(t, 256)
	long := bytes.Repeat([]byte("tiger "), 300)
	if _, err := Run(t.Context(), m, c, Options{Prompt: string(long)}, &bytes.Buffer{}); err == nil {
		t.Error("accepted")
	}
}
