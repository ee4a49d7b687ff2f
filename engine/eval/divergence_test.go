package eval

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/tokenizer"

	"gonum.org/v1/gonum/stat"
)

func newDivergence(t testing.TB, tok *tokenizer.Tokenizer, base *memoryFile, o DivergenceOptions) *Divergence {
	t.Helper()
	d, err := NewDivergence(tok, "base", base, int64(len(base.b)), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func compared(t testing.TB, d *Divergence, m Context, done []DivergenceChunk) []DivergenceChunk {
	t.Helper()
	chunks, err := d.Run(t.Context(), m, done, func(DivergenceChunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return chunks
}

// halfStep is how far rounding to 16 bits moves a log-probability, half a step of 16 nats in 65535, with what float32 adds.
const halfStep = 16./65535/2 + 1e-5

func TestDivergenceOfAModelFromItselfIsTheRoundingOfTheFormat(t *testing.T) {
	tok := shippedTokenizer(t)
	for format, bound := range map[LogitsFormat]float32{LogitsFloat32: 0, LogitsUpstream: halfStep} {
		f, p, _ := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 8, format)
		d := newDivergence(t, tok, f, DivergenceOptions{})
		if d.NCtx != p.NCtx || d.Chunks != 8 || d.Format != format {
			t.Fatalf("%+v", d)
		}
		chunks := compared(t, d, newHashModel(tok.VocabSize(), 100), nil)
		rounded := false
		for _, c := range chunks {
			for i, v := range c.KLDs {
				// A probability is moved by its own size at most as far as its logarithm.
				if max(v, -v) > bound || max(c.DeltaPs[i], -c.DeltaPs[i]) > bound {
					t.Errorf("%v: chunk %d, token %d: KLD %v, Δp %v, more than %v", format, c.Chunk, i, v, c.DeltaPs[i], bound)
				}
				rounded = rounded || v != 0
			}
			if c.SameTop != c.Tokens || format == LogitsFloat32 && (c.KLD != 0 || c.NLL != c.NLLBase || c.DeltaP2 != 0) {
				t.Errorf("%v: chunk %+v", format, c)
			}
		}
		if rounded != (format == LogitsUpstream) {
			t.Errorf("%v: something was rounded: %v", format, rounded)
		}
		var b bytes.Buffer
		if err := d.Write(&b, chunks); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "NaN") || !strings.Contains(b.String(), "Same top p: 100.000 ± 0.000 %") {
			t.Errorf("%v: output\n%s", format, after(b.String(), "=====\n"))
		}
		if format == LogitsFloat32 && !strings.Contains(b.String(), "Mean    KLD:   0.000000 ±   0.000000") {
			t.Errorf("output\n%s", after(b.String(), "=====\n"))
		}
	}
}

func TestDivergenceIsTheSumOverTheVocabulary(t *testing.T) {
	tok := shippedTokenizer(t)
	for format, bound := range map[LogitsFormat]float64{LogitsFloat32: 2e-6, LogitsUpstream: 2e-3} {
		base := newHashModel(tok.VocabSize(), 512)
		f, p, _ := hashBase(t, tok, base, 3, format)
		other := newHashModel(tok.VocabSize(), 512)
		other.seed = 99
		chunks := compared(t, newDivergence(t, tok, f, DivergenceOptions{}), other, nil)
		history := slices.Clone(p.tokens[32:64])
		history[0] = tok.BOS()
		for k, pos := range []int{16, 30} {
			target := p.tokens[32+pos+1]
			want := 0.0
			for v := range int32(tok.VocabSize()) {
				lp := base.logProbAfter(history[:pos+1], v)
				want += math.Exp(lp) * (lp - other.logProbAfter(history[:pos+1], v))
			}
			i := []int{0, 14}[k]
			if math.Abs(float64(chunks[1].KLDs[i])-want) > bound {
				t.Errorf("%v: position %d: KLD %v, want %v", format, pos, chunks[1].KLDs[i], want)
			}
			deltaP := math.Exp(other.logProbAfter(history[:pos+1], target)) - math.Exp(base.logProbAfter(history[:pos+1], target))
			if math.Abs(float64(chunks[1].DeltaPs[i])-deltaP) > min(bound, 1e-4) {
				t.Errorf("%v: position %d: Δp %v, want %v", format, pos, chunks[1].DeltaPs[i], deltaP)
			}
		}
		// Packing and resuming change nothing.
		part := newHashModel(tok.VocabSize(), 9)
		part.seed = 99
		if again := compared(t, newDivergence(t, tok, f, DivergenceOptions{NBatch: 32}), part, chunks[:1]); !reflect.DeepEqual(again, chunks) {
			t.Errorf("%v: resumed in other batches: %v", format, len(again))
		}
	}
}

func TestErrorsClusteredByChunkAreThoseOfTheChunksMeans(t *testing.T) {
	tok := shippedTokenizer(t)
	f, _, _ := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 8, LogitsFloat32)
	other := newHashModel(tok.VocabSize(), 512)
	other.seed = 7
	d := newDivergence(t, tok, f, DivergenceOptions{})
	chunks := compared(t, d, other, nil)
	var sum, squares float64
	for _, c := range chunks {
		m := c.KLD / float64(c.Tokens)
		sum, squares = sum+m, squares+m*m
	}
	n := float64(len(chunks))
	err := math.Sqrt((squares/n - sum/n*sum/n) / (n - 1))
	var b bytes.Buffer
	if err := d.Write(&b, chunks); err != nil {
		t.Fatal(err)
	}
	var got, gotErr, effect float64
	if _, err := fmt.Sscanf(lineOf(b.String(), "KLD  "), "KLD by chunk: %f ± %f, design effect %f", &got, &gotErr, &effect); err != nil {
		t.Fatalf("%v in %s", err, after(b.String(), "=====\n"))
	}
	var values []float64
	for _, c := range chunks {
		for _, v := range c.KLDs {
			values = append(values, float64(v))
		}
	}
	tokenErr := stat.StdErr(stat.StdDev(values, nil), float64(len(values)))
	if math.Abs(got-sum/n) > 1e-6 || math.Abs(gotErr-err) > 1e-6 || math.Abs(effect-err*err/tokenErr/tokenErr) > 0.02 {
		t.Errorf("%v ± %v, design effect %v; want %v ± %v, %v", got, gotErr, effect, sum/n, err, err*err/tokenErr/tokenErr)
	}
	for _, name := range []string{"ln(PPL(Q)/PPL(base)) by chunk: ", "Δp                   by chunk: ", "RMS Δp               by chunk: ", "Same top p           by chunk: "} {
		if !strings.Contains(b.String(), "\n"+name) {
			t.Errorf("no line %q", name)
		}
	}
}

func TestABaseOfAnotherVocabularyIsRefused(t *testing.T) {
	tok := shippedTokenizer(t)
	for _, vocab := range []int{tok.VocabSize() - 2, tok.VocabSize() + 2} {
		p := &Perplexity{passages: passages{NCtx: 4, tokens: make([]int32, 4)}, Chunks: 1, vocab: vocab}
		b := append(append(p.codedHead(), tokenBytes(p.text())...), make([]byte, p.layout().chunkBytes())...)
		_, err := NewDivergence(tok, "base", &memoryFile{b}, int64(len(b)), DivergenceOptions{})
		checkFormatError(t, fmt.Sprint(vocab), err, 0, "inconsistent vocabulary")
	}
}

func TestSquaresAndProductsAreRoundedToFloat32BeforeTheyAreAdded(t *testing.T) {
	q, b := float32(1.1), float32(1.3)
	c, err := newDivergenceChunk(1, []point{{nll: q, nllBase: b}})
	if err != nil || c.NLL2 != float64(q*q) || c.NLLBase2 != float64(b*b) || c.NLLProduct != float64(q*b) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestUpstreamGivesUpToTenValuesNoError(t *testing.T) {
	for n, want := range map[int]float64{10: 0, 11: math.Sqrt(0.25 / 10)} {
		if got := mean(float64(n)*1.5, float64(n)*2.5, n).err; math.Abs(got-want) > 1e-15 { // half of them 1, half 2
			t.Errorf("%d values of variance 0.25: error %v, want %v", n, got, want)
		}
	}
}

func TestReadChoices(t *testing.T) {
	good := choiceFile(
		ChoiceTask{Question: "Q?", Answers: []string{"yes", "no", "maybe"}, Gold: 1},
		ChoiceTask{Question: "R?", Answers: []string{"a", "b"}, Gold: 0},
	)
	tasks, err := ReadChoices(Input{"f", good})
	if err != nil || len(tasks) != 2 || tasks[0].Gold != 1 || tasks[1].Question != "R?" || tasks[1].Index != 1 {
		t.Fatalf("%+v, %v", tasks, err)
	}
	twoRight := choiceFile(ChoiceTask{Question: "Q", Answers: []string{"a", "b"}, Gold: 0}) // its last 8 bytes are the last label and the number of unused answers
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "no tasks"},
		{"huge number", []byte{255, 255, 255, 255, 0, 0, 0, 0}, "too short even for their offsets"},
		{"cut off", good[:len(good)-5], "task 1, at byte"},
		{"offset outside", append([]byte{1, 0, 0, 0}, 255, 255, 0, 0), "outside"},
		{"no right answer", choiceFile(ChoiceTask{Question: "Q", Answers: []string{"a", "b"}, Gold: 7}), "exactly one answer"},
		{"two right answers", slices.Concat(twoRight[:len(twoRight)-8], []byte{1, 0, 0, 0, 0, 0, 0, 0}), "exactly one answer"},
		{"one answer", choiceFile(ChoiceTask{Question: "Q", Answers: []string{"a"}}), "two answers at least"},
		{"empty answer", choiceFile(ChoiceTask{Question: "Q", Answers: []string{"a", " "}}), "none of them empty"},
		{"duplicate", choiceFile(tasks[0], tasks[1], tasks[0]), "task 2 is the same as task 0"},
	} {
		_, err := ReadChoices(Input{"f", c.b})
		checkFormatError(t, c.name, err, 0, c.want)
	}
}

// choiceFile writes the binary format.
func choiceFile(tasks ...ChoiceTask) []byte {
	put := binary.LittleEndian.AppendUint32
	head := put(nil, uint32(len(tasks)))
	var body []byte
	for _, t := range tasks {
		head = put(head, uint32(4+4*len(tasks)+len(body)))
		for i, s := range append([]string{t.Question}, t.Answers...) {
			body = append(put(body, uint32(len(s))), s...)
			if i == 0 {
				body = put(body, uint32(len(t.Answers)))
			}
		}
		for i := range t.Answers {
			label := uint32(0)
			if i == t.Gold {
				label = 1
			}
			body = put(body, label)
		}
		body = put(body, 0)
	}
	return append(head, body...)
}

// A file may not claim more text than it has: tasks that lie inside one another would be read again and again.
func TestChoicesThatOverlapAreRefused(t *testing.T) {
	put := binary.LittleEndian.AppendUint32
	const n = 1000
	end := 4 + 4*n + 4*n // where every question ends: each begins with the length of what is left
	b := put(nil, n)
	for i := range n {
		b = put(b, uint32(4+4*n+4*i))
	}
	for i := range n {
		b = put(b, uint32(end-(4+4*n+4*i)-4))
	}
	b = append(b, choiceFile(ChoiceTask{Question: "", Answers: []string{"a", "b"}})[12:]...)
	_, err := ReadChoices(Input{"f", b})
	checkFormatError(t, "overlapping", err, 0, "overlaps")
}

func FuzzReadChoices(f *testing.F) {
	f.Add(choiceFile(ChoiceTask{Question: "Q?", Answers: []string{"yes", "no", "maybe"}, Gold: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		tasks, err := ReadChoices(Input{"f", b})
		if (err == nil) != (len(tasks) > 0) {
			t.Fatalf("%d tasks, %v", len(tasks), err)
		}
	})
}

func TestChoiceScoresAreMeansOverAnswers(t *testing.T) {
	tok := shippedTokenizer(t)
	in := Input{"q.bin", choiceFile(
		ChoiceTask{Question: "a large feline of", Answers: []string{"forests", "the seas of Asia", "ice"}, Gold: 0},
		ChoiceTask{Question: "a bird that", Answers: []string{"swims in water", "is made of wood"}, Gold: 0},
	)}
	c, err := NewChoice(tok, in, TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := newHashModel(tok.VocabSize(), 512)
	items, err := c.Run(t.Context(), m, nil, func(ChoiceItem) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, item := range items {
		seqs := c.groups[i].sequences
		prefix := commonPrefix(seqs)
		best := 0
		for s, tokens := range seqs {
			sum := 0.0
			for j := prefix; j < len(tokens); j++ {
				sum += m.logProbAfter(tokens[:j], tokens[j])
			}
			if want := sum / float64(len(tokens)-prefix); math.Abs(float64(item.Scores[s])-want) > near {
				t.Errorf("task %d, answer %d: %v, want %v", i, s, item.Scores[s], want)
			}
			if item.Scores[s] > item.Scores[best] {
				best = s
			}
		}
		if item.Pick != best || (item.Margin > 0) != (item.Pick == item.Gold) {
			t.Errorf("item %+v", item)
		}
	}
}

// baseRun is the evaluation of a base, whose logits it writes to a file.
type baseRun struct {
	*Perplexity
	file *os.File
}

// shippedBase is so many chunks of the evaluation text for the shipped model, whose logits go to a file of the test.
func shippedBase(t *testing.T, chunks int) (*engine.Model, baseRun) {
	t.Helper()
	m, tok := shippedModel(t)
	p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{Chunks: chunks})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "base"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return m, baseRun{p, file}
}

func (b baseRun) Run(ctx context.Context, c Context, done []Chunk, each func(Chunk) error) ([]Chunk, error) {
	return b.RunBase(ctx, c, b.file, done, each)
}

// against is the comparison of a model with the base, once that has been evaluated.
func (b baseRun) against(t *testing.T, tok *tokenizer.Tokenizer) *Divergence {
	t.Helper()
	d, err := NewDivergence(tok, "base", b.file, b.LogitsBytes(), DivergenceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDivergenceAgreesWithUpstream(t *testing.T) {
	if !full() {
		t.Skip("a minute; set ATTNBUDGET_FULL=1")
	}
	const chunks = 40
	m, base := shippedBase(t, chunks)
	got, err := base.Run(t.Context(), newContext(t, m, base.ContextOptions(contextDefaults)), nil, func(Chunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range runningPerplexities(t, "kld-base-F16")[:chunks] {
		if ppl, _, _ := Estimate(got[:i+1]); math.Abs(ppl/want-1) > 5e-4 {
			t.Errorf("base perplexity [%d] is %.4f, upstream's %.4f", i+1, ppl, want)
		}
	}
	for _, format := range []string{"Q8_0", "Q4_K_M", "Q4_0", "Q2_K"} {
		t.Run(format, func(t *testing.T) {
			m, tok := quantisedModel(t, format)
			compareDivergences(t, format, printed(t, base.against(t, tok), m, nil), upstreamLog(t, "kld-"+format))
		})
	}
}
