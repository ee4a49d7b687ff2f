package eval

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// A logits file holds the log-probabilities of a base model, for every scored token of a text, in upstream's format (all
// little endian): the eight bytes "_logits_"; int32 n_ctx, n_vocab, n_chunk; int32 tokens [n_chunk][n_ctx]; then per
// scored token uint16 [2·⌈n_vocab/2⌉+4]: float32 scale, float32 lowest log-probability, and a code per vocabulary entry,
// log p = scale·code + lowest. What lies more than 16 below the mode is raised to that.

const (
	logitsMagic  = "_logits_"
	logitsHeader = len(logitsMagic) + 3*4
	codeRange    = 16 // nats below the mode that codes cover
)

// codesPerRow is the number of uint16 of one scored token.
func codesPerRow(vocab int) int { return 2*((vocab+1)/2) + 4 }

// logitsLayout says where things are in a logits file.
type logitsLayout struct{ nCtx, vocab, chunks int }

func (l logitsLayout) chunkBytes() int64 {
	return int64(passages{NCtx: l.nCtx}.scored()) * int64(codesPerRow(l.vocab)) * 2
}

// chunk is the offset of chunk i.
func (l logitsLayout) chunk(i int) int64 {
	return int64(logitsHeader) + 4*int64(l.nCtx)*int64(l.chunks) + int64(i)*l.chunkBytes()
}

// LogitsBytes is the size of the file that RunBase writes.
func (p *Perplexity) LogitsBytes() int64 {
	return logitsLayout{p.NCtx, p.vocab, p.Chunks}.chunk(p.Chunks)
}

// RunBase is Run that also writes the log-probabilities to a logits file, chunk by chunk, each before its callback; a
// checkpoint continues in the same file. The caller syncs and closes it.
func (p *Perplexity) RunBase(ctx context.Context, c Context, file io.WriterAt, done []Chunk, each func(Chunk) error) ([]Chunk, error) {
	if err := p.check(done); err != nil {
		return nil, err
	}
	if p.Stride > 0 {
		return nil, fmt.Errorf("perplexity: upstream's logits file has no place for chunks that overlap: leave out the stride or the file")
	}
	l := logitsLayout{p.NCtx, p.vocab, p.Chunks}
	if _, err := file.WriteAt(p.logitsHeader(), 0); err != nil {
		return nil, err
	}
	chunks := append(make([]Chunk, 0, p.Chunks), done...)
	s := scorer{c, p.threads}
	rowBytes := 2 * codesPerRow(p.vocab)
	for len(chunks) < p.Chunks {
		// One chunk at a time: the codes of several would take a lot of memory with large vocabularies.
		c.Clear()
		b, rows, targets := p.batch(len(chunks), 1)
		codes := make([]byte, l.chunkBytes())
		values := make([]float64, len(rows))
		if err := s.visit(ctx, b, rows, func(i int, logits []float32) {
			values[i] = encodeLogProbs(codes[i*rowBytes:][:rowBytes], logits, targets[i])
		}); err != nil {
			return chunks, fmt.Errorf("perplexity: chunk %d: %w", len(chunks)+1, err)
		}
		chunk, err := newChunk(len(chunks)+1, values)
		if err != nil {
			return chunks, err
		}
		if _, err := file.WriteAt(codes, l.chunk(len(chunks))); err != nil {
			return chunks, err
		}
		if err := p.tell(len(chunks), values); err != nil {
			return chunks, err
		}
		chunks = append(chunks, chunk)
		if err := each(chunk); err != nil {
			return chunks, err
		}
	}
	return chunks, nil
}

func (p *Perplexity) logitsHeader() []byte {
	b := []byte(logitsMagic)
	for _, n := range []int{p.NCtx, p.vocab, p.Chunks} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	for _, t := range p.tokens[:p.Chunks*p.NCtx] {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return b
}

// encodeLogProbs writes one row of a logits file and gives the log-probability of token, in upstream's float32 steps.
func encodeLogProbs(dst []byte, logits []float32, token int32) float64 {
	top, low := logits[0], logits[0]
	for _, l := range logits[1:] {
		top, low = max(top, l), min(low, l)
	}
	low = max(low, top-codeRange)
	logSum := logSumExp(logits, top)
	scale := (top - low) / 65535
	binary.LittleEndian.PutUint32(dst, math.Float32bits(scale))
	binary.LittleEndian.PutUint32(dst[4:], math.Float32bits(low-top-logSum))
	codes := dst[8:]
	if scale > 0 {
		inverse := 1 / scale
		for i, l := range logits {
			var code uint16
			if l > low {
				code = uint16(math.RoundToEven(float64(inverse * (l - low))))
			}
			binary.LittleEndian.PutUint16(codes[2*i:], code)
		}
	}
	return -float64(top + logSum - logits[token])
}

// logSumExp is ln Σ exp(logit − top), summed in float64 and rounded to float32.
func logSumExp(logits []float32, top float32) float32 {
	var sum float64
	for _, l := range logits {
		sum += float64(float32(math.Exp(float64(l - top))))
	}
	return float32(math.Log(sum))
}

// readLogitsHeader reads and checks what precedes the chunks of a logits file of the given size.
func readLogitsHeader(name string, r io.ReaderAt, size int64) (logitsLayout, []int32, error) {
	fail := func(format string, a ...any) (logitsLayout, []int32, error) {
		return logitsLayout{}, nil, &FormatError{name, 0, fmt.Sprintf(format, a...)}
	}
	head := make([]byte, logitsHeader)
	if _, err := r.ReadAt(head, 0); err != nil && size >= int64(logitsHeader) {
		return logitsLayout{}, nil, fmt.Errorf("%s: %w", name, err)
	}
	if size < int64(logitsHeader) || string(head[:len(logitsMagic)]) != logitsMagic {
		return fail("does not look like a file containing log-probabilities: it must begin with %q", logitsMagic)
	}
	var n [3]int
	for i := range n {
		n[i] = int(int32(binary.LittleEndian.Uint32(head[len(logitsMagic)+4*i:])))
	}
	l := logitsLayout{nCtx: n[0], vocab: n[1], chunks: n[2]}
	// The bounds keep the products below within int64.
	const most = 1 << 24
	if l.nCtx < 4 || l.nCtx > most || l.vocab < 1 || l.vocab > most || l.chunks < 1 || l.chunks > most {
		return fail("the header says context %d, vocabulary %d, %d chunks: the file is damaged", l.nCtx, l.vocab, l.chunks)
	}
	if want, sized := l.chunk(0), l.chunkBytes(); size < want {
		return fail("the file is cut off: %d bytes, the tokens alone need %d", size, want)
	} else if whole := (size - want) / sized; whole < int64(l.chunks) {
		return fail("the file is cut off: it holds %d of %d chunks", whole, l.chunks)
	} else if size > l.chunk(l.chunks) {
		return fail("the file has %d bytes behind its last chunk: it is damaged", size-l.chunk(l.chunks))
	}
	raw := make([]byte, 4*l.nCtx*l.chunks)
	if _, err := r.ReadAt(raw, int64(logitsHeader)); err != nil {
		return logitsLayout{}, nil, fmt.Errorf("%s: %w", name, err)
	}
	tokens := make([]int32, len(raw)/4)
	for i := range tokens {
		tokens[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
		if tokens[i] < 0 || int(tokens[i]) >= l.vocab {
			return fail("token %d is %d, the vocabulary ends at %d: the file is damaged", i, tokens[i], l.vocab-1)
		}
	}
	return l, tokens, nil
}
