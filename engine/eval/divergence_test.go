package eval

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/tokenizer"
)

// memoryFile is an io.WriterAt and io.ReaderAt.
type memoryFile struct{ b []byte }

func (m *memoryFile) WriteAt(p []byte, at int64) (int, error) {
	if end := int(at) + len(p); end > len(m.b) {
		m.b = append(m.b, make([]byte, end-len(m.b))...)
	}
	return copy(m.b[at:], p), nil
}

func (m *memoryFile) ReadAt(p []byte, at int64) (int, error) {
	return bytes.NewReader(m.b).ReadAt(p, at)
}

// hashBase writes the logits file of a hash model.
func hashBase(t testing.TB, tok *tokenizer.Tokenizer, m *hashModel, chunks int) (*memoryFile, *Perplexity, []Chunk) {
	t.Helper()
	p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{NCtx: 32, Chunks: chunks})
	if err != nil {
		t.Fatal(err)
	}
	var f memoryFile
	done, err := p.RunBase(t.Context(), m, &f, nil, func(Chunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return &f, p, done
}

func TestBasePerplexityIsThatOfPerplexity(t *testing.T) {
	tok := shippedTokenizer(t)
	f, p, chunks := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 4)
	want, err := p.Run(t.Context(), newHashModel(tok.VocabSize(), 512), nil, func(Chunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		// Upstream takes the likelihoods in float32 when it saves them.
		if math.Abs(chunks[i].NLL-want[i].NLL) > 15*2e-6 {
			t.Errorf("chunk %d: %v, want %v", i, chunks[i], want[i])
		}
	}
	if int64(len(f.b)) != p.LogitsBytes() {
		t.Errorf("%d bytes, announced %d", len(f.b), p.LogitsBytes())
	}
	// Going on from a checkpoint writes the same file.
	again := &memoryFile{slices.Clone(f.b[:len(f.b)/2])}
	done := 0
	for (logitsLayout{p.NCtx, p.vocab, p.Chunks}).chunk(done+1) <= int64(len(again.b)) {
		done++
	}
	if _, err := p.RunBase(t.Context(), newHashModel(tok.VocabSize(), 100), again, chunks[:done], func(Chunk) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if done == 0 || !bytes.Equal(again.b, f.b) {
		t.Errorf("continued after %d chunks, the file differs", done)
	}
}

func TestCodesKeepLogProbabilities(t *testing.T) {
	m := newHashModel(300, 1)
	logits := m.after([]int32{1, 2, 3})
	logits[7] = -100 // below what codes cover
	row := make([]byte, 2*codesPerRow(300))
	encodeLogProbs(row, logits, 0)
	scale := math.Float32frombits(binary.LittleEndian.Uint32(row))
	lowest := math.Float32frombits(binary.LittleEndian.Uint32(row[4:]))
	floor := logProb(logits, int32(slices.Index(logits, slices.Max(logits))), false) - codeRange
	for i := range logits {
		want := max(logProb(logits, int32(i), false), floor)
		got := float64(scale)*float64(binary.LittleEndian.Uint16(row[8+2*i:])) + float64(lowest)
		if math.Abs(got-want) > float64(scale)/2+1e-5 {
			t.Errorf("entry %d: %v, want %v", i, got, want)
		}
	}
}

func TestDivergenceOfAModelFromItselfIsNil(t *testing.T) {
	tok := shippedTokenizer(t)
	f, p, _ := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 8)
	d, err := NewDivergence(tok, "base", f, int64(len(f.b)), DivergenceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if d.NCtx != p.NCtx || d.Chunks != 8 {
		t.Fatalf("%+v", d)
	}
	chunks, err := d.Run(t.Context(), newHashModel(tok.VocabSize(), 512), nil, func(DivergenceChunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chunks {
		if math.Abs(c.KLD) > 1e-3 || c.SameTop != c.Tokens {
			t.Errorf("chunk %d: KLD %v, same top %d of %d", c.Chunk, c.KLD, c.SameTop, c.Tokens)
		}
	}
	var b bytes.Buffer
	if err := d.Write(&b, chunks); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "NaN") || !strings.Contains(b.String(), "Same top p: 100.000 ± 0.000 %") {
		t.Errorf("output\n%s", after(b.String(), "=====\n"))
	}
}

func TestDivergenceIsTheSumOverTheVocabulary(t *testing.T) {
	tok := shippedTokenizer(t)
	base := newHashModel(tok.VocabSize(), 512)
	f, p, _ := hashBase(t, tok, base, 3)
	other := newHashModel(tok.VocabSize(), 512)
	other.seed = 99
	d, err := NewDivergence(tok, "base", f, int64(len(f.b)), DivergenceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	chunks, err := d.Run(t.Context(), other, nil, func(DivergenceChunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
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
		if math.Abs(float64(chunks[1].KLDs[i])-want) > 2e-3 {
			t.Errorf("position %d: KLD %v, want %v", pos, chunks[1].KLDs[i], want)
		}
		deltaP := math.Exp(other.logProbAfter(history[:pos+1], target)) - math.Exp(base.logProbAfter(history[:pos+1], target))
		if math.Abs(float64(chunks[1].DeltaPs[i])-deltaP) > 1e-4 {
			t.Errorf("position %d: Δp %v, want %v", pos, chunks[1].DeltaPs[i], deltaP)
		}
	}
	// Packing and resuming change nothing.
	again, err := NewDivergence(tok, "base", f, int64(len(f.b)), DivergenceOptions{NBatch: 32})
	if err != nil {
		t.Fatal(err)
	}
	part := newHashModel(tok.VocabSize(), 9)
	part.seed = 99
	got, err := again.Run(t.Context(), part, chunks[:1], func(DivergenceChunk) error { return nil })
	if err != nil || !reflect.DeepEqual(got, chunks) {
		t.Errorf("resumed in other batches: %v, error %v", len(got), err)
	}
}

func TestDamagedLogitsFilesAreRefused(t *testing.T) {
	tok := shippedTokenizer(t)
	f, _, _ := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 2)
	edit := func(at int, v uint32) []byte {
		b := slices.Clone(f.b)
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "does not look like"},
		{"other magic", append([]byte("_logitz_"), f.b[8:]...), "does not look like"},
		{"cut off in the tokens", f.b[:40], "the tokens alone need"},
		{"cut off in a chunk", f.b[:len(f.b)-1], "1 of 2 chunks"},
		{"too long", append(slices.Clone(f.b), 0), "1 bytes behind"},
		{"negative context", edit(8, 1<<31), "damaged"},
		{"huge number of chunks", edit(16, 1<<30), "damaged"},
		{"more chunks than there are", edit(16, 3), "cut off"},
		{"token outside", edit(20, 5000), "vocabulary ends"},
	} {
		_, err := NewDivergence(tok, "base", &memoryFile{c.b}, int64(len(c.b)), DivergenceOptions{})
		checkFormatError(t, c.name, err, 0, c.want)
	}
	other := edit(12, 2047)
	other = other[:(logitsLayout{32, 2047, 2}).chunk(2)]
	_, err := NewDivergence(tok, "base", &memoryFile{other}, int64(len(other)), DivergenceOptions{})
	var format *FormatError
	if !errors.As(err, &format) {
		t.Errorf("another vocabulary: error %v", err)
	}
}

func FuzzLogitsHeader(f *testing.F) {
	tok := shippedTokenizer(f)
	base, _, _ := hashBase(f, tok, newHashModel(tok.VocabSize(), 512), 1)
	f.Add(base.b[:200])
	small := []byte(logitsMagic)
	for _, n := range []uint32{4, 1, 1, 0, 0, 0, 0} {
		small = binary.LittleEndian.AppendUint32(small, n)
	}
	f.Add(append(small, make([]byte, 12)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, tokens, err := readLogitsHeader("f", &memoryFile{b}, int64(len(b)))
		if err == nil && (l.chunk(l.chunks) != int64(len(b)) || len(tokens) != l.nCtx*l.chunks) {
			t.Fatalf("%+v with %d tokens accepted for %d bytes", l, len(tokens), len(b))
		}
	})
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
		{"one answer", choiceFile(ChoiceTask{Question: "Q", Answers: []string{"a"}}), "two answers at least"},
		{"empty answer", choiceFile(ChoiceTask{Question: "Q", Answers: []string{"a", ""}}), "none of them empty"},
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

func TestDivergenceAgreesWithUpstream(t *testing.T) {
	formats, chunks := []string{"Q8_0"}, 2
	if full() {
		formats, chunks = []string{"Q8_0", "Q4_K_M", "Q4_0", "Q2_K"}, 40
	}
	m, tok := shippedModel(t)
	p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{Chunks: chunks})
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.Create(filepath.Join(t.TempDir(), "base"))
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	got, err := p.RunBase(t.Context(), newContext(t, m, p.ContextOptions(contextDefaults)), base, nil, func(Chunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range runningPerplexities(t, "kld-base-F16")[:chunks] {
		if ppl, _, _ := Estimate(got[:i+1]); math.Abs(ppl/want-1) > 5e-4 {
			t.Errorf("base perplexity [%d] is %.4f, upstream's %.4f", i+1, ppl, want)
		}
	}
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			m, tok := quantisedModel(t, format)
			d, err := NewDivergence(tok, "base", base, p.LogitsBytes(), DivergenceOptions{})
			if err != nil {
				t.Fatal(err)
			}
			chunks, err := d.Run(t.Context(), newContext(t, m, d.ContextOptions(contextDefaults)), nil, func(DivergenceChunk) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := d.Write(&b, chunks); err != nil {
				t.Fatal(err)
			}
			compareDivergences(t, format, b.String(), upstreamLog(t, "kld-"+format))
		})
	}
}
