package eval

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/tokenizer"
)

// memoryFile is an io.WriterAt and io.ReaderAt. It is as long as it will be from the beginning: rows are written by several
// goroutines.
type memoryFile struct{ b []byte }

func (m *memoryFile) WriteAt(p []byte, at int64) (int, error) { return copy(m.b[at:], p), nil }

func (m *memoryFile) ReadAt(p []byte, at int64) (int, error) {
	return bytes.NewReader(m.b).ReadAt(p, at)
}

var (
	formats = []LogitsFormat{LogitsUpstream, LogitsFloat32}
	origin  = Origin{Model: strings.Repeat("0f", 32), Mask: "0,3", TypeK: "f16", TypeV: "q8_0", Engine: "1"}
)

// hashBase writes the logits file of a hash model.
func hashBase(t testing.TB, tok *tokenizer.Tokenizer, m *hashModel, chunks int, format LogitsFormat) (*memoryFile, *Perplexity, []Chunk) {
	t.Helper()
	p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{NCtx: 32, Chunks: chunks, Logits: format, Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	f := &memoryFile{make([]byte, p.LogitsBytes())}
	done, err := p.RunBase(t.Context(), m, f, nil, func(Chunk) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return f, p, done
}

func TestBasePerplexityIsThatOfPerplexity(t *testing.T) {
	tok := shippedTokenizer(t)
	// Upstream takes the likelihoods in float32 when it saves them.
	for format, bound := range map[LogitsFormat]float64{LogitsFloat32: 0, LogitsUpstream: 15 * 2e-6} {
		_, p, chunks := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 4, format)
		want, err := p.Run(t.Context(), newHashModel(tok.VocabSize(), 512), nil, func(Chunk) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Abs(chunks[i].NLL-want[i].NLL) > bound {
				t.Errorf("%v: chunk %d: %v, want %v", format, i, chunks[i], want[i])
			}
		}
	}
}

func TestALogitsFileThatIsContinuedIsTheSame(t *testing.T) {
	tok := shippedTokenizer(t)
	for _, format := range formats {
		f, p, chunks := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 20, format) // 16 chunks are decoded at once
		for _, done := range []int{0, 1, 15, 16, 19, 20} {
			again := &memoryFile{make([]byte, len(f.b))}
			copy(again.b[format.headBytes():], f.b[format.headBytes():p.LogitsSize(done)])
			fresh := 0
			got, err := p.RunBase(t.Context(), newHashModel(tok.VocabSize(), 100), again, chunks[:done], func(Chunk) error { fresh++; return nil })
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again.b, f.b) || !reflect.DeepEqual(got, chunks) || fresh != 20-done {
				t.Errorf("%v: continued after %d chunks, %d are new and the file is the same: %v", format, done, fresh, bytes.Equal(again.b, f.b))
			}
		}
	}
}

func TestAnErrorOfTheLogitsFileEndsTheEvaluation(t *testing.T) {
	tok := shippedTokenizer(t)
	for _, format := range formats {
		_, p, _ := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 4, format)
		full := errors.New("no space left")
		chunks, err := p.RunBase(t.Context(), newHashModel(tok.VocabSize(), 512), limitedFile{p.LogitsSize(0), full}, nil, func(Chunk) error { return nil })
		if !errors.Is(err, full) || len(chunks) != 0 {
			t.Errorf("%v: %d chunks, %v", format, len(chunks), err)
		}
	}
}

// limitedFile is a file on a full disk.
type limitedFile struct {
	most int64
	err  error
}

func (f limitedFile) WriteAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > f.most {
		return 0, f.err
	}
	return len(p), nil
}

func TestFloat32LogitsNeedTheModelsFingerprint(t *testing.T) {
	p, err := NewPerplexity(shippedTokenizer(t), builtinInput(t, "evaluation.txt"), PerplexityOptions{Chunks: 1, Logits: LogitsFloat32})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.RunBase(t.Context(), newHashModel(2048, 512), &memoryFile{}, nil, nil); err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
		t.Error(err)
	}
}

func TestCodesKeepLogProbabilities(t *testing.T) {
	logits := newHashModel(301, 1).after([]int32{1, 2, 3})
	logits[7] = -100 // below what codes cover
	row := bytes.Repeat([]byte{0xAB}, LogitsUpstream.rowBytes(301))
	encodeCodes(row, logits, 0)
	scale := math.Float32frombits(binary.LittleEndian.Uint32(row))
	lowest := math.Float32frombits(binary.LittleEndian.Uint32(row[4:]))
	floor := summedDouble.logProb(logits, int32(slices.Index(logits, slices.Max(logits)))) - codeRange
	for i := range logits {
		want := max(summedDouble.logProb(logits, int32(i)), floor)
		got := float64(scale)*float64(binary.LittleEndian.Uint16(row[8+2*i:])) + float64(lowest)
		if math.Abs(got-want) > float64(scale)/2+1e-5 {
			t.Errorf("entry %d: %v, want %v", i, got, want)
		}
	}
	if fill := binary.LittleEndian.Uint16(row[8+2*301:]); fill != 0 {
		t.Errorf("behind the last code is %x", fill)
	}
}

func TestFloat32LogitsAreLogProbabilities(t *testing.T) {
	logits := newHashModel(300, 1).after([]int32{1, 2, 3})
	logits[7], logits[8] = -1000, float32(math.Inf(-1))
	row := make([]byte, LogitsFloat32.rowBytes(300))
	if got, want := encodeExactly(row, logits, 9), summedDouble.logProb(logits, 9); got != want {
		t.Errorf("token: %v, want %v", got, want)
	}
	for i := range logits {
		got := math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
		if want := float32(summedDouble.logProb(logits, int32(i))); got != want {
			t.Errorf("entry %d: %v, want %v", i, got, want)
		}
	}
	if p, err := compareExactly(logits, row, 9); err != nil || p.kld != 0 || !p.sameTop || p.nll != p.nllBase {
		t.Errorf("of a row from itself, with entries of probability 0: %+v, %v", p, err)
	}
}

func TestALogitsFileSaysWhatItIsOf(t *testing.T) {
	tok := shippedTokenizer(t)
	f, p, _ := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 2, LogitsFloat32)
	d := newDivergence(t, tok, f, DivergenceOptions{BaseModel: origin.Model})
	if d.Origin != origin || d.TokensSHA256 != hexSHA256(tokenBytes(p.tokens[:64])) {
		t.Errorf("%+v of tokens %s", d.Origin, d.TokensSHA256)
	}
	coded, _, _ := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 2, LogitsUpstream)
	if of := newDivergence(t, tok, coded, DivergenceOptions{}); of.TokensSHA256 != d.TokensSHA256 || of.Origin != (Origin{}) {
		t.Errorf("upstream's: %+v of tokens %s", of.Origin, of.TokensSHA256)
	}
	for want, file := range map[string]*memoryFile{"with SHA-256 " + origin.Model + ", expected another": f, "does not say which model": coded} {
		_, err := NewDivergence(tok, "base", file, int64(len(file.b)), DivergenceOptions{BaseModel: "another"})
		checkFormatError(t, want, err, 0, want)
	}
}

func TestTheIDOfALogitsFileIsOfAllThatDecidesIt(t *testing.T) {
	tok, in := shippedTokenizer(t), builtinInput(t, "evaluation.txt")
	ids := map[string]PerplexityOptions{}
	otherModel, otherMask := origin, origin
	otherModel.Model, otherMask.Mask = strings.Repeat("1", 64), "0"
	for _, o := range []PerplexityOptions{
		{NCtx: 32, Chunks: 3, Origin: origin}, {NCtx: 32, Chunks: 3, Origin: origin, Logits: LogitsFloat32}, {NCtx: 32, Chunks: 2, Origin: origin},
		{NCtx: 64, Chunks: 3, Origin: origin}, {NCtx: 32, Chunks: 3, Origin: otherModel}, {NCtx: 32, Chunks: 3, Origin: otherMask},
	} {
		p, err := NewPerplexity(tok, in, o)
		if err != nil {
			t.Fatal(err)
		}
		if twin, ok := ids[p.LogitsID()]; ok {
			t.Errorf("%+v has the ID of %+v", o, twin)
		}
		ids[p.LogitsID()] = o
	}
	o := PerplexityOptions{NCtx: 32, Chunks: 3, Origin: origin, Threads: 7, Rows: true}
	in.Data = append(slices.Clone(in.Data[:4000]), "another end"...)
	if p, err := NewPerplexity(tok, in, o); err != nil || ids[p.LogitsID()].NCtx == 0 {
		t.Errorf("what decides nothing makes another ID; %v", err)
	}
}

func TestDamagedLogitsFilesOfUpstreamsFormatAreRefused(t *testing.T) {
	tok := shippedTokenizer(t)
	f, _, _ := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 2, LogitsUpstream)
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
		{"magic alone", f.b[:8], "the head alone needs 20"},
		{"cut off in the tokens", f.b[:40], "head and tokens alone need"},
		{"cut off in a chunk", f.b[:len(f.b)-1], "1 of 2 chunks"},
		{"too long", append(slices.Clone(f.b), 0), "1 bytes behind"},
		{"negative context", edit(8, 1<<31), "damaged"},
		{"huge number of chunks", edit(16, 1<<30), "damaged"},
		{"more chunks than there are", edit(16, 3), "cut off"},
		{"token outside", edit(20, 5000), "vocabulary ends"},
		{"negative token", edit(20, 1<<32-1), "token 0 is -1"},
	} {
		_, err := NewDivergence(tok, "base", &memoryFile{c.b}, int64(len(c.b)), DivergenceOptions{})
		checkFormatError(t, c.name, err, 0, c.want)
	}
	other := edit(12, 2047)
	other = other[:(logitsLayout{LogitsUpstream, 32, 2047, 2}).chunk(2)]
	_, err := NewDivergence(tok, "base", &memoryFile{other}, int64(len(other)), DivergenceOptions{})
	checkFormatError(t, "another vocabulary", err, 0, "the base model has 2047 tokens, this one 2048")
}

func TestDamagedFloat32LogitsFilesAreRefused(t *testing.T) {
	tok := shippedTokenizer(t)
	f, p, _ := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 2, LogitsFloat32)
	tokens := hexSHA256(tokenBytes(p.text()))
	good := exactHeader{exactVersion, 32, tok.VocabSize(), 2, 16, tokens, origin}
	if !bytes.Equal(good.head(), f.b[:exactHeadBytes]) {
		t.Fatalf("the head is %s", f.b[:exactHeadBytes])
	}
	// header gives the file another header, with the right checksum.
	header := func(edit func(h *exactHeader)) []byte {
		h := good
		edit(&h)
		return append(h.head(), f.b[exactHeadBytes:]...)
	}
	text := func(old, new string) []byte {
		b := slices.Clone(f.b)
		copy(b[exactJSON:exactHeadBytes], bytes.Replace(b[exactJSON:exactHeadBytes], []byte(old), []byte(new), 1))
		binary.LittleEndian.PutUint32(b[len(exactMagic):], crc32.ChecksumIEEE(b[exactJSON:exactHeadBytes]))
		return b
	}
	flip := func(at int) []byte {
		b := slices.Clone(f.b)
		b[at] ^= 1
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"other magic", flip(3), "it must begin with"},
		{"magic alone", f.b[:8], "8 bytes, the head alone needs 4096"},
		{"cut off in the head", f.b[:1000], "1000 bytes, the head alone needs 4096"},
		{"cut off in the tokens", f.b[:exactHeadBytes+40], "head and tokens alone need 4352"},
		{"cut off in a chunk", f.b[:len(f.b)-1], "holds 1 of 2 chunks"},
		{"too long", append(slices.Clone(f.b), 0), "1 bytes behind its last chunk"},
		{"checksum", flip(len(exactMagic)), "the header's CRC-32 should be"},
		{"header", flip(exactJSON + 20), "the header's CRC-32 should be"},
		{"fill", flip(exactHeadBytes - 1), "the header's CRC-32 should be"},
		{"no JSON", text("{", "["), "not a JSON object"},
		{"version", header(func(h *exactHeader) { h.Version = 2 }), "version 2, expected 1"},
		{"no version", text(`"version"`, `"versiom"`), "version 0, expected 1"},
		{"unknown field", text(`"n_ctx"`, `"n_cty"`), `"n_cty"`},
		{"number as a text", text(`"n_chunk":2`, `"n_chunk":"2"`), "n_chunk"},
		{"negative context", header(func(h *exactHeader) { h.NCtx, h.First = -32, -16 }), "context -32"},
		{"huge vocabulary", header(func(h *exactHeader) { h.NVocab = 1 << 40 }), "vocabulary 1099511627776"},
		{"no chunks", header(func(h *exactHeader) { h.NChunk = 0 }), "0 chunks"},
		{"more chunks than there are", header(func(h *exactHeader) { h.NChunk = 3 }), "of 3 chunks"},
		{"another context", header(func(h *exactHeader) { h.NCtx, h.First = 64, 32 }), "cut off"},
		{"another vocabulary", header(func(h *exactHeader) { h.NVocab = 2047 }), "bytes behind its last chunk"},
		{"first position", header(func(h *exactHeader) { h.First = 15 }), "first scored position is 15, expected 16"},
		{"hash of the tokens", header(func(h *exactHeader) { h.Tokens = strings.Repeat("0", 64) }), "should be " + strings.Repeat("0", 64) + " and is " + tokens},
		{"a token", flip(exactHeadBytes + 4), "the tokens' SHA-256 should be " + tokens},
		{"no hash of the tokens", header(func(h *exactHeader) { h.Tokens = "" }), "tokens' SHA-256 must have 64"},
		{"no model", header(func(h *exactHeader) { h.Model = "" }), "model's SHA-256 must have 64"},
		{"capital letters in the model", header(func(h *exactHeader) { h.Model = strings.Repeat("AB", 32) }), "model's SHA-256 must have 64"},
	} {
		_, err := NewDivergence(tok, "base", &memoryFile{c.b}, int64(len(c.b)), DivergenceOptions{})
		checkFormatError(t, c.name, err, 0, c.want)
	}
}

func TestADamagedRowIsNoticedWhenItIsCompared(t *testing.T) {
	tok := shippedTokenizer(t)
	for _, format := range formats {
		f, p, _ := hashBase(t, tok, newHashModel(tok.VocabSize(), 512), 3, format)
		for name, damage := range map[string]func(row []byte){
			"zeros":  func(row []byte) { clear(row) },
			"shift":  func(row []byte) { copy(row, row[format.rowBytes(1)-1:]) },
			"random": func(row []byte) { copy(row, bytes.Repeat([]byte{0x7F, 0xC0}, 100)) },
		} {
			b := slices.Clone(f.b)
			damage(b[p.LogitsSize(1)+2*int64(format.rowBytes(tok.VocabSize())):][:format.rowBytes(tok.VocabSize())])
			d := newDivergence(t, tok, &memoryFile{b}, DivergenceOptions{})
			_, err := d.Run(t.Context(), newHashModel(tok.VocabSize(), 512), nil, func(DivergenceChunk) error { return nil })
			checkFormatError(t, format.String()+", "+name, err, 0, "chunk 2: the probabilities of a token add up to")
		}
	}
}

// The text and the row of the seeds of fuzzing.
var (
	seedTokens = []int32{0, 1, 2, 0}
	seedLogits = []float32{1, -2, 30}
)

func FuzzLogitsOfUpstreamsFormat(f *testing.F) {
	file := append([]byte(codedMagic), tokenBytes(append([]int32{4, 3, 1}, seedTokens...))...)
	row := make([]byte, LogitsUpstream.rowBytes(3))
	encodeCodes(row, seedLogits, 0)
	f.Add(slices.Concat(file, row))
	f.Add(slices.Concat(file, row[1:]))
	if n := readAnyLogits(f, slices.Concat(file, row)); n != 1 {
		f.Fatalf("%d rows of the seed are good", n)
	}
	f.Fuzz(func(t *testing.T, b []byte) { readAnyLogits(t, b) })
}

// FuzzFloat32Logits makes the header's checksum and its fill, behind which nothing else would be found.
func FuzzFloat32Logits(f *testing.F) {
	h := exactHeader{exactVersion, 4, 3, 1, 2, hexSHA256(tokenBytes(seedTokens)), origin}
	text, err := json.Marshal(h)
	if err != nil {
		f.Fatal(err)
	}
	row := make([]byte, LogitsFloat32.rowBytes(3))
	encodeExactly(row, seedLogits, 0)
	rest := append(tokenBytes(seedTokens), row...)
	f.Add(text, rest)
	f.Add(text[1:], rest)
	f.Add(text, rest[1:])
	f.Add([]byte(`{"version":1}`), rest)
	if n := readAnyLogits(f, append(h.head(), rest...)); n != 1 {
		f.Fatalf("%d rows of the seed are good", n)
	}
	f.Fuzz(func(t *testing.T, text, rest []byte) {
		head := bytes.Repeat([]byte{' '}, exactHeadBytes)
		copy(head, exactMagic)
		copy(head[exactJSON:], text)
		binary.LittleEndian.PutUint32(head[len(exactMagic):], crc32.ChecksumIEEE(head[exactJSON:]))
		readAnyLogits(t, append(head, rest...))
	})
}

// readAnyLogits reads a file of whatever content and is how many of its rows could be a base's.
func readAnyLogits(t testing.TB, b []byte) (good int) {
	l, err := readLogitsFile("f", &memoryFile{b}, int64(len(b)))
	if err != nil {
		return 0
	}
	if l.chunk(l.chunks) != int64(len(b)) || len(l.tokens) != l.nCtx*l.chunks {
		t.Fatalf("%+v with %d tokens accepted for %d bytes", l, len(l.tokens), len(b))
	}
	logits, size := make([]float32, l.vocab), l.format.rowBytes(l.vocab)
	for rows := b[l.chunk(0):]; len(rows) > 0; rows = rows[size:] {
		p, err := l.format.compare(logits, rows[:size], l.tokens[0])
		if err != nil {
			continue
		}
		good++
		if math.IsNaN(p.kld) || p.kld < -2e-3 { // of probabilities that add up to 1 within 1e-3
			t.Fatalf("KLD %v", p.kld)
		}
	}
	return good
}

func TestTheHeaderOfAFloat32FileCanBeReadByPeople(t *testing.T) {
	head := exactHeader{exactVersion, 512, 2048, 40, 256, strings.Repeat("1", 64), origin}.head()
	var fields map[string]any
	if err := json.Unmarshal(head[exactJSON:], &fields); err != nil || fields["mask"] != "0,3" || fields["n_ctx"] != 512. {
		t.Errorf("%v: %s", err, head)
	}
}
