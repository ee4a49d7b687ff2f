package eval

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/kernel/kerneltest"
)

// TestResultsDoNotDependOnPackingInTheEngine evaluates the same items alone and side by side, on every architecture:
// shared beginnings, sliding windows and recurrent states must not let one sequence see another. All is float32, since
// rounded activations would hide a leak below their own noise.
func TestResultsDoNotDependOnPackingInTheEngine(t *testing.T) {
	models, err := filepath.Glob("../testdata/conformance/models/*.gguf")
	if err != nil || len(models) == 0 {
		t.Fatal("no conformance models: ", err)
	}
	models = append(models, filepath.Join(builtin, "glossary-5m-f16.gguf"))
	text := builtinInput(t, "evaluation.txt")
	text.Data = text.Data[:6000]
	for _, path := range models {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".gguf"), func(t *testing.T) {
			m, err := engine.Open(path, engine.Options{ExpandF32: true})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			tok, err := m.Tokenizer()
			if err != nil {
				t.Fatal(err)
			}
			allowed := near
			if strings.HasPrefix(m.Info().Arch, "gemma") {
				allowed = 1e-4 // GELU goes through a table of float16, in which a last bit of float32 becomes one of float16
			}
			base := engine.ContextOptions{TypeK: engine.CacheF32, TypeV: engine.CacheF32}
			perplexity := func(nBatch, nUBatch int) []Chunk {
				p, err := NewPerplexity(tok, text, PerplexityOptions{NCtx: 64, NBatch: nBatch, Chunks: 4})
				if err != nil {
					t.Fatal(err)
				}
				o := p.ContextOptions(base)
				o.NUBatch = nUBatch
				got, err := p.Run(t.Context(), newContext(t, m, o), nil, func(Chunk) error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			want := perplexity(64, 64)
			for _, n := range []struct{ batch, ubatch int }{{256, 256}, {128, 48}, {64, 16}} {
				for i, c := range perplexity(n.batch, n.ubatch) {
					if off := math.Abs(c.NLL-want[i].NLL) / float64(c.Tokens); off > allowed {
						t.Errorf("perplexity in batches of %d and %d: chunk %d is off by %.2g nats a token", n.batch, n.ubatch, i+1, off)
					}
				}
			}
			hellaswag := func(sequences int) []HellaSwagItem {
				h, err := NewHellaSwag(tok, builtinInput(t, "gloss-swag.txt"), TaskOptions{Tasks: 6, Sequences: sequences})
				if err != nil {
					t.Fatal(err)
				}
				got, err := h.Run(t.Context(), newContext(t, m, h.ContextOptions(base)), nil, func(HellaSwagItem) error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			alone := hellaswag(4)
			for i, item := range hellaswag(24) {
				for s := range item.Scores {
					if off := math.Abs(item.Scores[s] - alone[i].Scores[s]); off > allowed {
						t.Errorf("hellaswag task %d, ending %d is off by %.2g nats beside others", i+1, s, off)
					}
				}
			}
		})
	}
}

func TestAContinuedRunGivesTheSameFiguresInTheEngine(t *testing.T) {
	for _, kernels := range []string{"auto", "upstream"} {
		t.Run(kernels, func(t *testing.T) {
			kerneltest.Use(t, kernels)
			continuedRuns(t)
		})
	}
}

func continuedRuns(t *testing.T) {
	m, tok := quantisedModel(t, "Q4_K_M")
	none := func(Chunk) error { return nil }
	p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{NCtx: 96, NBatch: 384, Chunks: 7})
	if err != nil {
		t.Fatal(err)
	}
	run := func(done []Chunk) []Chunk {
		got, err := p.Run(t.Context(), newContext(t, m, p.ContextOptions(contextDefaults)), done, none)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := run(nil)
	for n := range want {
		if got := run(want[:n]); !slices.Equal(got, want) {
			t.Errorf("continued after %d chunks: %v, want %v", n, got, want)
		}
	}
	w, err := NewWinogrande(tok, builtinInput(t, "gloss-grande.csv"), TaskOptions{Tasks: 9})
	if err != nil {
		t.Fatal(err)
	}
	runTasks := func(done []WinograndeItem) []WinograndeItem {
		got, err := w.Run(t.Context(), newContext(t, m, w.ContextOptions(contextDefaults)), done, func(WinograndeItem) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	wantTasks := runTasks(nil)
	for n := range wantTasks {
		if got := runTasks(wantTasks[:n]); !slices.Equal(got, wantTasks) {
			t.Errorf("continued after %d tasks: %v, want %v", n, got, wantTasks)
		}
	}
}

// Upstream's defaults give every HellaSwag task a batch of its own and put two Winogrande tasks into one.
func TestTasksArePackedAsUpstreamPacksThem(t *testing.T) {
	groups := func(sequences, n int) []group {
		g := group{prefix: 10}
		for range sequences {
			g.sequences = append(g.sequences, make([]int32, 30))
		}
		return slices.Repeat([]group{g}, n)
	}
	for _, c := range []struct {
		name    string
		t       taskRun
		ends    []int // of the first batches
		options TaskOptions
	}{
		{"hellaswag", taskRun{groups: groups(4, 5), most: 4 * mostTasks}, []int{1, 2, 3, 4, 5}, TaskOptions{}},
		{"winogrande", taskRun{groups: groups(2, 5), most: 2 * mostSentences}, []int{2, 4, 5}, TaskOptions{}},
		{"more sequences", taskRun{groups: groups(4, 5), most: 4 * mostTasks}, []int{2, 4, 5}, TaskOptions{Sequences: 11}},
		{"few cells, in steps of 256", taskRun{groups: groups(4, 9), most: 4 * mostTasks}, []int{5, 9}, TaskOptions{Sequences: 200, NCtx: 2}},
		{"small batches", taskRun{groups: groups(4, 5), most: 4 * mostTasks}, []int{4, 5}, TaskOptions{Sequences: 16, NBatch: 64}},
		{"the most tasks", taskRun{groups: groups(4, 50), most: 4 * mostTasks}, []int{32, 50}, TaskOptions{Sequences: 256}},
	} {
		c.t.options = c.options.withDefaults()
		from := 0
		for _, end := range c.ends {
			if from = c.t.packed(from); from != end {
				t.Errorf("%s: a batch ends at %d, expected %d", c.name, from, end)
			}
		}
	}
}

func TestBatchesAreCutAsUpstreamCutsThem(t *testing.T) {
	m, _ := shippedModel(t)
	for _, c := range []struct {
		nBatch, nUBatch, n int
		cuts               []int
	}{
		{2048, 512, 1100, []int{512, 1024, 1100}},
		{700, 512, 1500, []int{512, 700, 1212, 1400, 1500}},
		{100, 512, 250, []int{100, 200, 250}},
	} {
		s := scorer{context: newContext(t, m, engine.ContextOptions{NCtx: 256, NBatch: c.nBatch, NUBatch: c.nUBatch})}
		var cuts []int
		for _, to := range s.parts(c.n) {
			cuts = append(cuts, to)
		}
		if !slices.Equal(cuts, c.cuts) {
			t.Errorf("%d tokens in batches of %d and %d: cut at %d, expected %d", c.n, c.nBatch, c.nUBatch, cuts, c.cuts)
		}
	}
}
