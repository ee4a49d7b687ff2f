package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/gguf"
	"attnbudget/engine/tokenizer"
)

// shippedTokenizer needs no engine.
func shippedTokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	f, err := gguf.Open(builtin + "/glossary-5m-f16.gguf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	tok, err := tokenizer.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

const near = 1e-5 // nats: what packing may change

func TestPerplexityScoresTheSecondHalfOfEveryChunk(t *testing.T) {
	tok := shippedTokenizer(t)
	in := builtinInput(t, "evaluation.txt")
	p, err := NewPerplexity(tok, in, PerplexityOptions{NCtx: 32, Chunks: 5})
	if err != nil {
		t.Fatal(err)
	}
	m := newHashModel(tok.VocabSize(), 64)
	got, err := p.Run(t.Context(), m, nil, func(Chunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	tokens := tok.Encode(strings.TrimSuffix(string(in.Data), "\n"), true, false)
	for i, c := range got {
		history := slices.Clone(tokens[32*i : 32*i+32])
		targets := slices.Clone(history)
		history[0] = tok.BOS()
		var nll, nll2 float64
		for pos := 16; pos < 31; pos++ {
			v := -m.logProbAfter(history[:pos+1], targets[pos+1])
			nll += v
			nll2 += v * v
		}
		if c.Chunk != i+1 || c.Tokens != 15 || math.Abs(c.NLL-nll) > near || math.Abs(c.NLL2-nll2) > 10*near {
			t.Errorf("chunk %+v, want %d tokens, nll %v, nll2 %v", c, 15, nll, nll2)
		}
	}
}

func TestPerplexityDoesNotDependOnPackingOrResuming(t *testing.T) {
	tok := shippedTokenizer(t)
	in := builtinInput(t, "evaluation.txt")
	run := func(nBatch, part int, done []Chunk) []Chunk {
		p, err := NewPerplexity(tok, in, PerplexityOptions{NCtx: 48, NBatch: nBatch, Chunks: 7})
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		got, err := p.Run(t.Context(), newHashModel(tok.VocabSize(), part), done, func(c Chunk) error {
			calls++
			if c.Chunk != len(done)+calls {
				t.Errorf("call %d is for chunk %d", calls, c.Chunk)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if calls != 7-len(done) {
			t.Errorf("%d calls for %d chunks", calls, 7-len(done))
		}
		return got
	}
	want := run(48, 48, nil)
	for _, c := range []struct {
		nBatch, part int
		done         []Chunk
	}{{20, 20, nil}, {48, 7, nil}, {192, 64, nil}, {2048, 512, want[:3]}, {96, 96, want[:7]}} {
		if got := run(c.nBatch, c.part, c.done); !slices.Equal(got, want) {
			t.Errorf("batch %d, part %d, %d done: %v, want %v", c.nBatch, c.part, len(c.done), got, want)
		}
	}
}

func TestPerplexityRefusesWhatItCannotEvaluate(t *testing.T) {
	tok := shippedTokenizer(t)
	_, err := NewPerplexity(tok, Input{"short.txt", []byte("tiger")}, PerplexityOptions{NCtx: 2048})
	var short *TooShortError
	if !errors.As(err, &short) || short.Tokens != len(tok.Encode("tiger", true, false)) {
		t.Fatalf("error %v", err)
	}
	for _, s := range []string{
		"you need at least 4096 tokens to evaluate perplexity with a context of 2048",
		fmt.Sprintf("the data file you provided tokenizes to only %d tokens", short.Tokens),
	} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
	text := builtinInput(t, "evaluation.txt")
	for name, o := range map[string]PerplexityOptions{"tiny context": {NCtx: 3}, "negative chunks": {Chunks: -1}, "negative batch": {NBatch: -5}} {
		if _, err := NewPerplexity(tok, text, o); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
	utf16 := append([]byte{0xFF, 0xFE}, bytes.Repeat([]byte{'a', 0}, 5000)...)
	for name, b := range map[string][]byte{"marked": utf16, "unmarked": utf16[2:]} {
		if _, err := NewPerplexity(tok, Input{"x", b}, PerplexityOptions{}); err == nil || !strings.Contains(err.Error(), "UTF-16") {
			t.Errorf("%s UTF-16: error %v", name, err)
		}
	}
}

func TestNotFiniteLogitsNameTheItem(t *testing.T) {
	tok := shippedTokenizer(t)
	var bad *NotFiniteError

	p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{NCtx: 32, Chunks: 4})
	if err != nil {
		t.Fatal(err)
	}
	m := newHashModel(tok.VocabSize(), 512)
	third := p.tokens[2*32+1]
	m.poison = func(h []int32) bool { return len(h) == 20 && h[1] == third }
	got, err := p.Run(t.Context(), m, nil, func(Chunk) error { return nil })
	if !errors.As(err, &bad) || bad.Item != "chunk 3" || !math.IsNaN(bad.Value) || len(got) != 2 {
		t.Errorf("perplexity: error %v with %d chunks", err, len(got))
	}

	h, err := NewHellaSwag(tok, builtinInput(t, "gloss-swag.txt"), TaskOptions{Tasks: 6})
	if err != nil {
		t.Fatal(err)
	}
	fourth := h.groups[3].sequences[2]
	m = newHashModel(tok.VocabSize(), 512)
	m.poison = func(x []int32) bool { return slices.Equal(x, fourth[:len(fourth)-1]) }
	items, err := h.Run(t.Context(), m, nil, func(HellaSwagItem) error { return nil })
	if want := fmt.Sprintf("task 4 (gloss-swag.txt:%d)", h.Tasks[3].Line); !errors.As(err, &bad) || bad.Item != want || len(items) != 3 {
		t.Errorf("hellaswag: error %v with %d tasks, want %s", err, len(items), want)
	}
}

func TestErrorsOfTheContextAndTheCallbackComeThrough(t *testing.T) {
	tok := shippedTokenizer(t)
	p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{NCtx: 32, Chunks: 4})
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	m := newHashModel(tok.VocabSize(), 512)
	m.fail = boom
	if _, err := p.Run(t.Context(), m, nil, func(Chunk) error { return nil }); !errors.Is(err, boom) || !strings.Contains(err.Error(), "chunk 1") {
		t.Errorf("error %v", err)
	}
	m.fail = nil
	got, err := p.Run(t.Context(), m, nil, func(c Chunk) error {
		if c.Chunk == 2 {
			return boom
		}
		return nil
	})
	if !errors.Is(err, boom) || len(got) != 2 {
		t.Errorf("error %v after %d chunks", err, len(got))
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Run(cancelled, m, nil, func(Chunk) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestHellaSwagScoresAreMeansOverEndings(t *testing.T) {
	tok := shippedTokenizer(t)
	h, err := NewHellaSwag(tok, builtinInput(t, "gloss-swag.txt"), TaskOptions{Tasks: 9})
	if err != nil {
		t.Fatal(err)
	}
	m := newHashModel(tok.VocabSize(), 100)
	items, err := h.Run(t.Context(), m, nil, func(HellaSwagItem) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, item := range items {
		task := h.Tasks[i]
		prefix := commonPrefix(h.groups[i].sequences)
		best := 0
		for s, e := range task.Endings {
			tokens := tok.Encode(task.Context+" "+e, true, false)
			sum := 0.0
			for j := prefix; j < len(tokens); j++ {
				sum += m.logProbAfter(tokens[:j], tokens[j])
			}
			want := sum / float64(len(tokens)-prefix)
			if math.Abs(item.Scores[s]-want) > near {
				t.Errorf("task %d, ending %d: %v, want %v", i, s, item.Scores[s], want)
			}
			if item.Scores[s] > item.Scores[best] {
				best = s
			}
		}
		if item.Pick != best || item.N != i+1 || item.Task != task.Index || item.Gold != task.Gold || item.Hash != task.Hash {
			t.Errorf("item %+v of task %+v", item, task)
		}
		if right := item.Margin > 0; right != (item.Pick == item.Gold) {
			t.Errorf("margin %v, pick %d, gold %d", item.Margin, item.Pick, item.Gold)
		}
	}
}

func commonPrefix(sequences [][]int32) int {
	n := 0
	for {
		for _, s := range sequences {
			if n >= len(s) || s[n] != sequences[0][n] {
				return n
			}
		}
		n++
	}
}

func TestTasksDoNotDependOnPackingOrResuming(t *testing.T) {
	tok := shippedTokenizer(t)
	in, grande := builtinInput(t, "gloss-swag.txt"), builtinInput(t, "gloss-grande.csv")
	swag := func(o TaskOptions, part, done int, before []HellaSwagItem) []HellaSwagItem {
		o.Tasks = 12
		h, err := NewHellaSwag(tok, in, o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := h.Run(t.Context(), newHashModel(tok.VocabSize(), part), before[:done], func(HellaSwagItem) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	wino := func(o TaskOptions, part, done int, before []WinograndeItem) []WinograndeItem {
		o.Tasks = 12
		w, err := NewWinogrande(tok, grande, o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.Run(t.Context(), newHashModel(tok.VocabSize(), part), before[:done], func(WinograndeItem) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	wantSwag := swag(TaskOptions{Sequences: 4}, 512, 0, nil)
	wantWino := wino(TaskOptions{Sequences: 4}, 512, 0, nil)
	for _, c := range []struct {
		o          TaskOptions
		part, done int
	}{{TaskOptions{Sequences: 64}, 512, 0}, {TaskOptions{NBatch: 32}, 11, 0}, {TaskOptions{NCtx: 64}, 512, 5}, {TaskOptions{}, 512, 12}} {
		if got := swag(c.o, c.part, c.done, wantSwag); !slices.Equal(got, wantSwag) {
			t.Errorf("hellaswag %+v: %v", c, got)
		}
		if got := wino(c.o, c.part, c.done, wantWino); !slices.Equal(got, wantWino) {
			t.Errorf("winogrande %+v: %v", c, got)
		}
	}
}

func TestForeignCheckpointsAreRefused(t *testing.T) {
	tok := shippedTokenizer(t)
	p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{NCtx: 32, Chunks: 2})
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHellaSwag(tok, builtinInput(t, "gloss-swag.txt"), TaskOptions{Tasks: 2})
	if err != nil {
		t.Fatal(err)
	}
	m := newHashModel(tok.VocabSize(), 512)
	base, _, _ := hashBase(t, tok, m, 2, LogitsUpstream)
	d := newDivergence(t, tok, base, DivergenceOptions{})
	for name, err := range map[string]error{
		"too many chunks":  second(p.Run(t.Context(), m, make([]Chunk, 3), nil)),
		"other chunk size": second(p.Run(t.Context(), m, []Chunk{{Chunk: 1, Tokens: 255}}, nil)),
		"wrong order":      second(p.Run(t.Context(), m, []Chunk{{Chunk: 2, Tokens: 15}}, nil)),
		"other task":       second(h.Run(t.Context(), m, []HellaSwagItem{{N: 1, Hash: "0123"}}, nil)),
		"too many tasks":   second(h.Run(t.Context(), m, make([]HellaSwagItem, 3), nil)),
		"no divergences":   second(d.Run(t.Context(), m, []DivergenceChunk{{Chunk: 1, Tokens: d.scored(), DeltaPs: make([]float32, d.scored())}}, nil)),
		"no differences":   second(d.Run(t.Context(), m, []DivergenceChunk{{Chunk: 1, Tokens: d.scored(), KLDs: make([]float32, d.scored())}}, nil)),
	} {
		var c *CheckpointError
		if !errors.As(err, &c) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// winoCSV is a row per way of scoring: the first sentence goes on behind the blank, the second hardly does, the third not
// at all.
const winoCSV = `0,"the tiger, said _ is a large feline of forests in most of Asia",lion,elephant,1
1,a large feline of the forest is a _.,tree,man,2
2,a large feline of the forest is a _,tiger,vegetable,1

`

func TestWinograndeScoresByUpstreamsRuleAndTheCorrectedOne(t *testing.T) {
	tok := shippedTokenizer(t)
	w, err := NewWinogrande(tok, Input{"w.csv", []byte(winoCSV)}, TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := newHashModel(tok.VocabSize(), 512)
	items, err := w.Run(t.Context(), m, nil, func(WinograndeItem) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	skips := 0
	for i, item := range items {
		task := w.Tasks[i]
		seqs := w.groups[i].sequences
		prefix := commonPrefix(seqs)
		skip := len(seqs[0])-prefix > 3 && len(seqs[1])-prefix > 3 && task.After != ""
		if skip {
			skips++
		}
		for s, tokens := range seqs {
			from := prefix
			if skip {
				from = len(tok.Encode(task.Before+task.Choices[s], true, false))
			}
			to := len(tokens)
			if to-from > 1 {
				to--
			}
			corrected, asUpstream := 0.0, 0.0
			for j := from; j < to; j++ {
				v := m.logProbAfter(tokens[:j], tokens[j])
				corrected += v
				if !skip && s == 1 && j == from {
					v = m.logProbAfter(seqs[0], tokens[j]) // the defect
				}
				asUpstream += v
			}
			corrected /= float64(to - from)
			asUpstream /= float64(to - from)
			if math.Abs(float64(item.Corrected[s])-corrected) > near || math.Abs(float64(item.Scores[s])-asUpstream) > near {
				t.Errorf("task %d, sentence %d: scores %v and corrected %v, want %v and %v", i, s, item.Scores[s], item.Corrected[s], asUpstream, corrected)
			}
		}
		if item.Pick != better(item.Scores) || item.CorrectedPick != better(item.Corrected) || item.Gold != task.Answer {
			t.Errorf("item %+v", item)
		}
	}
	if skips != 1 {
		t.Errorf("%d of %d tasks skip the choice: the test must have both kinds", skips, len(items))
	}
}

// "cat" and what follows it give the beginning of the sentence with "cat mat"; upstream scores it from logits of other tasks.
func TestNothingIsScoredBeforeTheSentencesDiffer(t *testing.T) {
	tok := shippedTokenizer(t)
	w, err := NewWinogrande(tok, Input{"w.csv", []byte("0,the _ mat with the rat sat on a hat,cat,cat mat,1\n\n")}, TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first := w.groups[0].prefix
	if short := len(tok.Encode("the cat", true, false)); short >= first {
		t.Fatalf("the sentences differ after %d tokens, the choice ends after %d: the test tests nothing", first, short)
	}
	if got := w.spans[0][0].from; got != first {
		t.Errorf("scored from token %d, the sentences differ from %d on", got, first)
	}
	if _, err := w.Run(t.Context(), newHashModel(tok.VocabSize(), 512), nil, func(WinograndeItem) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestBOSTakesThePlaceOfAChunksFirstTokenWhereTheModelWantsOne(t *testing.T) {
	for addBOS, want := range map[bool]int32{true: 1, false: 15} {
		p := passages{NCtx: 4, bos: 1, addBOS: addBOS, tokens: []int32{11, 12, 13, 14, 15, 16, 17, 18}}
		b, _, targets := p.batch(1, 1)
		if b.Tokens[0] != want || !slices.Equal(b.Tokens[1:], []int32{16, 17, 18}) || !slices.Equal(targets, []int32{18}) || p.tokens[4] != 15 {
			t.Errorf("wanted %t: tokens %v, scored %v", addBOS, b.Tokens, targets)
		}
	}
}

func TestAfterAnErrorNothingMoreIsBegun(t *testing.T) {
	calls, broken := 0, errors.New("broken")
	if err := parallel(1, 100, func(i int) error {
		calls++
		if i == 2 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestAnEndingBlankIsScoredByTheChoiceHoweverLong(t *testing.T) {
	tok := shippedTokenizer(t)
	w, err := NewWinogrande(tok, Input{"w.csv", []byte("0,the tiger is _,a large feline of forests in Asia,a small boat that swims in water,1\n\n")}, TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g := w.groups[0]
	for s, tokens := range g.sequences {
		if len(tokens)-g.prefix <= minTrailing {
			t.Fatalf("choice %d has %d tokens: the test tests nothing", s+1, len(tokens)-g.prefix)
		}
		if want := (span{g.prefix, len(tokens) - 1}); w.spans[0][s] != want {
			t.Errorf("choice %d: tokens %v are scored, want %v", s+1, w.spans[0][s], want)
		}
	}
}

func TestALogProbabilityBelowTheRangeOfFloat32IsStillOne(t *testing.T) {
	for _, a := range []arithmetic{summedDouble, summedSingle, asProbability} {
		if got := a.logProb([]float32{0, -120}, 1); got != -120 {
			t.Errorf("arithmetic %d: %v, want -120", a, got)
		}
	}
}

func TestTiesGoWhereUpstreamLetsThemGo(t *testing.T) {
	groups := []group{{sequences: [][]int32{{1, 2}, {1, 3}, {1, 4}, {1, 5}}, prefix: 1}}
	h := &HellaSwag{Tasks: []HellaSwagTask{{}}, groups: groups}
	if got := h.item(0, continuationScores(groups[0], []float64{-3, -2, -2, -4})).Pick; got != 1 {
		t.Errorf("HellaSwag: ending %d, want the first of equals, 1", got)
	}
	c := &Choice{Tasks: []ChoiceTask{{}}, groups: groups}
	if got := c.item(0, []float64{-3, -2, -2, -4}).Pick; got != 1 {
		t.Errorf("multiple choice: answer %d, want the first of equals, 1", got)
	}
	if got := better([2]float32{-2, -2}); got != 2 {
		t.Errorf("Winogrande: sentence %d, want the second of equals", got)
	}
}

func TestTaskThatDoesNotFitIsRefused(t *testing.T) {
	tok := shippedTokenizer(t)
	in := Input{"long.txt", []byte("a tiger\n0\n" + strings.Repeat("feline ", 40) + "\nb b\nc c\nd d\n")}
	_, err := NewHellaSwag(tok, in, TaskOptions{NCtx: 8})
	var long *TooLongError
	if !errors.As(err, &long) || long.Task != "long.txt:1" || long.Cells != 32 {
		t.Fatalf("error %v", err)
	}
	tasks, err := ReadHellaSwag(in)
	if err != nil {
		t.Fatal(err)
	}
	if place, cells := LongestTask(tok, tasks); place != "long.txt:1" || cells != long.Tokens {
		t.Errorf("LongestTask is %s with %d, want %d", place, cells, long.Tokens)
	}
}

func TestContinuationsWithoutTokensOfTheirOwnAreRefused(t *testing.T) {
	tok := shippedTokenizer(t)
	in := Input{"x.txt", []byte("a tiger\n0\nis big\nis big and red\nis big or so\nis big but\n")}
	if _, err := NewHellaSwag(tok, in, TaskOptions{}); err == nil || !strings.Contains(err.Error(), "x.txt:1: continuation 1") {
		t.Errorf("error %v", err)
	}
}

func TestContextOptionsSizeTheContext(t *testing.T) {
	tok := shippedTokenizer(t)
	text := builtinInput(t, "evaluation.txt")
	for _, c := range []struct {
		o                  PerplexityOptions
		nCtx, nBatch, nSeq int
	}{
		{PerplexityOptions{}, 512, 512, 1},
		{PerplexityOptions{NCtx: 100}, 500, 500, 5},
		{PerplexityOptions{NCtx: 4096}, 4096, 4096, 1},
	} {
		p, err := NewPerplexity(tok, text, c.o)
		if err != nil {
			t.Fatal(err)
		}
		o := p.ContextOptions(engine.ContextOptions{Mask: []int{3}})
		if o.NCtx != c.nCtx || o.NBatch != c.nBatch || o.NSeqMax != c.nSeq || len(o.Mask) != 1 {
			t.Errorf("%+v: %+v", c.o, o)
		}
	}
}

func TestWriteGolden(t *testing.T) {
	tok := shippedTokenizer(t)
	p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{Chunks: 2})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Write(&b, []Chunk{{kindChunk, 1, 255, 933.12, 4013.5}, {kindChunk, 2, 255, 820.25, 3500}}); err != nil {
		t.Fatal(err)
	}
	if err := new(HellaSwag).Write(&b, []HellaSwagItem{{kindHellaSwag, 1, 217, "9c56cc51b374c3ba", [4]float64{-2.51, -3.02, -2.7, -2.66}, 0, 0, 0.15}}); err != nil {
		t.Fatal(err)
	}
	if err := new(Winogrande).Write(&b, []WinograndeItem{{kindWinogrande, 1, 0, "9c56cc51b374c3ba", ruleUpstream, [2]float32{-2.891664, -2.741003}, [2]float32{-2.9, -2.7}, 2, 2, 2}}); err != nil {
		t.Fatal(err)
	}
	const want = `perplexity: calculating perplexity over 2 chunks, n_ctx=512, batch_size=2048, n_seq=4
{"kind":"perplexity_chunk","chunk":1,"tokens":255,"nll":933.12,"nll2":4013.5}
{"kind":"perplexity_chunk","chunk":2,"tokens":255,"nll":820.25,"nll2":3500}
[1]38.8339,[2]31.1240,
Final estimate: PPL = 31.1240 +/- 2.35440
{"kind":"hellaswag_task","n":1,"task":217,"hash":"9c56cc51b374c3ba","scores":[-2.51,-3.02,-2.7,-2.66],"gold":0,"pick":0,"margin":0.15}
task	acc_norm	95% confidence interval
1	100.00000000%	[20.6549%, 100.0000%]
{"kind":"winogrande_task","n":1,"task":0,"hash":"9c56cc51b374c3ba","rule":"upstream","scores":[-2.891664,-2.741003],"corrected":[-2.9,-2.7],"gold":2,"pick":2,"corrected_pick":2}
1	100.0000	 -2.891664   -2.741003  2  2
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFinishedItemsSurviveTheirJSON(t *testing.T) {
	items := []WinograndeItem{{kindWinogrande, 1, 0, "x", ruleCorrected, [2]float32{-2.8916640, -1.0 / 3}, [2]float32{-0.1, -7.25}, 2, 2, 1}}
	b, err := json.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	var back []WinograndeItem
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(items, back) {
		t.Errorf("%v became %v", items, back)
	}
}
