package eval

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"attnbudget/engine/kernel/upstream"
)

// A logits file holds the log-probabilities of a base model for every scored token of a text. Both formats have a head, the
// int32 tokens [n_chunk][n_ctx], and then a row per scored token, all little endian.

// LogitsFormat is a format of logits files.
type LogitsFormat int

// The formats.
const (
	LogitsUpstream LogitsFormat = iota // upstream's, in 16-bit steps, which either engine reads
	LogitsFloat32                      // this project's, exact
)

// LogitsFormats are their names.
var LogitsFormats = []string{LogitsUpstream: "upstream", LogitsFloat32: "float32"}

func (f LogitsFormat) String() string { return LogitsFormats[f] }

// ParseLogitsFormat reads a name.
func ParseLogitsFormat(name string) (LogitsFormat, error) {
	for i, n := range LogitsFormats {
		if n == name {
			return LogitsFormat(i), nil
		}
	}
	return 0, fmt.Errorf("logits format %q is not known: it must be %s or %s", name, LogitsUpstream, LogitsFloat32)
}

// headBytes is how long the head is, up to the tokens.
func (f LogitsFormat) headBytes() int64 {
	if f == LogitsFloat32 {
		return exactHeadBytes
	}
	return int64(codedHeadBytes)
}

// rowBytes is how long a row is.
func (f LogitsFormat) rowBytes(vocab int) int {
	if f == LogitsFloat32 {
		return 4 * vocab
	}
	return 2 * codesPerRow(vocab)
}

// encode writes one row and gives the log-probability of token. What the row held before does not matter.
func (f LogitsFormat) encode(row []byte, logits []float32, token int32) float64 {
	if f == LogitsFloat32 {
		return encodeExactly(row, logits, token)
	}
	return encodeCodes(row, logits, token)
}

// compare compares logits with a row. The error is a *rowError.
func (f LogitsFormat) compare(logits []float32, row []byte, token int32) (point, error) {
	if f == LogitsFloat32 {
		return compareExactly(logits, row, token)
	}
	return compareCodes(logits, row, token)
}

// logitsLayout says where things are in a logits file.
type logitsLayout struct {
	format              LogitsFormat
	nCtx, vocab, chunks int
}

// chunkBytes is how long the rows of a chunk are.
func (l logitsLayout) chunkBytes() int64 {
	return int64(passages{NCtx: l.nCtx}.scored()) * int64(l.format.rowBytes(l.vocab))
}

// chunk is the offset of chunk i.
func (l logitsLayout) chunk(i int) int64 {
	return l.format.headBytes() + 4*int64(l.nCtx)*int64(l.chunks) + int64(i)*l.chunkBytes()
}

// check refuses sizes that no file can have, and a file of another size than its head says. The bounds keep all products
// within int64.
func (l logitsLayout) check(size int64) error {
	const most = 1 << 24
	if l.nCtx < 4 || l.nCtx > most || l.vocab < 1 || l.vocab > most || l.chunks < 1 || l.chunks > most {
		return fmt.Errorf("the header says context %d, vocabulary %d, %d chunks: the file is damaged", l.nCtx, l.vocab, l.chunks)
	}
	switch text := l.chunk(0); {
	case size < text:
		return fmt.Errorf("the file is cut off: %d bytes, head and tokens alone need %d", size, text)
	case size < l.chunk(l.chunks):
		return fmt.Errorf("the file is cut off: it holds %d of %d chunks", (size-text)/l.chunkBytes(), l.chunks)
	case size > l.chunk(l.chunks):
		return fmt.Errorf("the file has %d bytes behind its last chunk: it is damaged", size-l.chunk(l.chunks))
	}
	return nil
}

// tokenBytes is tokens as they stand in a logits file.
func tokenBytes(tokens []int32) []byte {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return b
}

// logitsFile is what precedes the rows of a logits file.
type logitsFile struct {
	logitsLayout
	tokens []int32
	sha256 string // of the tokens' bytes
	origin Origin // zero where the format does not tell
}

// readLogitsFile reads and checks what precedes the rows of a logits file of the given size. The error is a *FormatError
// unless reading fails.
func readLogitsFile(name string, r io.ReaderAt, size int64) (logitsFile, error) {
	var f logitsFile
	wrong := func(err error) (logitsFile, error) { return logitsFile{}, &FormatError{name, 0, err.Error()} }
	magic := make([]byte, min(size, int64(len(codedMagic))))
	if _, err := r.ReadAt(magic, 0); err != nil && len(magic) > 0 {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	var parse func(head []byte) (logitsFile, error)
	switch string(magic) {
	case codedMagic:
		f.format, parse = LogitsUpstream, parseCodedHead
	case exactMagic:
		f.format, parse = LogitsFloat32, parseExactHead
	default:
		return wrong(fmt.Errorf("does not look like a file containing log-probabilities: it must begin with %q, as upstream's, or %q", codedMagic, exactMagic))
	}
	if need := f.format.headBytes(); size < need {
		return wrong(fmt.Errorf("the file is cut off: %d bytes, the head alone needs %d", size, need))
	}
	head := make([]byte, f.format.headBytes())
	if _, err := r.ReadAt(head, 0); err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	said, err := parse(head)
	if err == nil {
		err = said.check(size)
	}
	if err != nil {
		return wrong(err)
	}
	raw := make([]byte, 4*said.nCtx*said.chunks)
	if _, err := r.ReadAt(raw, said.format.headBytes()); err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	if err := said.readTokens(raw); err != nil {
		return wrong(err)
	}
	return said, nil
}

// readTokens reads and checks the tokens.
func (f *logitsFile) readTokens(raw []byte) error {
	sum := hexSHA256(raw)
	if f.sha256 != "" && f.sha256 != sum {
		return fmt.Errorf("the tokens' SHA-256 should be %s and is %s: the file is damaged", f.sha256, sum)
	}
	f.sha256 = sum
	f.tokens = make([]int32, len(raw)/4)
	for i := range f.tokens {
		f.tokens[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
		if f.tokens[i] < 0 || int(f.tokens[i]) >= f.vocab {
			return fmt.Errorf("token %d is %d, the vocabulary ends at %d: the file is damaged", i, f.tokens[i], f.vocab-1)
		}
	}
	return nil
}

// rowError is a row that cannot be what a base has written.
type rowError struct{ sum float64 }

func (e *rowError) Error() string {
	return fmt.Sprintf("the probabilities of a token add up to %.6g instead of 1: the file is damaged", e.sum)
}

// rowBuffers lends buffers of a row to the goroutines of scorer.visit.
type rowBuffers struct{ pool sync.Pool }

func newRowBuffers(size int) *rowBuffers {
	return &rowBuffers{sync.Pool{New: func() any { b := make([]byte, size); return &b }}}
}

func (r *rowBuffers) with(f func(row []byte) error) error {
	row := r.pool.Get().(*[]byte)
	defer r.pool.Put(row)
	return f(*row)
}

// LogitsSize is how long the file that RunBase writes is when so many chunks are in it.
func (p *Perplexity) LogitsSize(chunks int) int64 { return p.layout().chunk(chunks) }

// LogitsBytes is the size of the file that RunBase writes.
func (p *Perplexity) LogitsBytes() int64 { return p.LogitsSize(p.Chunks) }

// LogitsID identifies the content of the file that RunBase writes, on one machine: a hash of its format, the text and what
// PerplexityOptions.Origin says.
func (p *Perplexity) LogitsID() string {
	return hexSHA256(append([]byte(p.logits.String()), p.exactHead()...))
}

func (p *Perplexity) layout() logitsLayout { return logitsLayout{p.logits, p.NCtx, p.vocab, p.Chunks} }

// RunBase is Run that also writes the log-probabilities to a logits file, row by row, those of a chunk before its callback;
// done continues in the same file. The caller syncs and closes it.
func (p *Perplexity) RunBase(ctx context.Context, c Context, file io.WriterAt, done []Chunk, each func(Chunk) error) ([]Chunk, error) {
	head := p.codedHead
	switch {
	case p.Stride > 0:
		return nil, fmt.Errorf("perplexity: a logits file has no place for chunks that overlap: leave out the stride or the file")
	case p.logits == LogitsFloat32:
		if err := p.origin.check(); err != nil {
			return nil, fmt.Errorf("perplexity: logits in float32: %w", err)
		}
		head = p.exactHead
	}
	if _, err := file.WriteAt(append(head(), tokenBytes(p.text())...), 0); err != nil {
		return nil, err
	}
	l, s := p.layout(), scorer{c, p.threads}
	rows := newRowBuffers(l.format.rowBytes(l.vocab))
	return p.run(c, done, each, func(start, n int) ([]float64, error) {
		b, places, targets := p.batch(start, n)
		values := make([]float64, len(places))
		err := s.visit(ctx, b, places, func(i int, logits []float32) error {
			return rows.with(func(row []byte) error {
				values[i] = l.format.encode(row, logits, targets[i])
				_, err := file.WriteAt(row, l.chunk(start)+int64(i)*int64(len(row)))
				return err
			})
		})
		return values, err
	})
}

// text is the tokens of the chunks.
func (p *Perplexity) text() []int32 { return p.tokens[:p.Chunks*p.NCtx] }

// sumExp is Σ exp(logit − top): differences and exponentials in float32 as upstream, the sum in float64.
func sumExp(logits []float32, top float32) float64 {
	var sum float64
	for _, l := range logits {
		sum += float64(upstream.ScalarExp(l - top))
	}
	return sum
}
