package eval

import (
	"context"
	"fmt"
	"io"
	"math"

	"attnbudget/engine"
	"attnbudget/engine/tokenizer"
)

const stagePerplexity = "perplexity"

// PerplexityOptions of an evaluation; a zero field takes its default.
type PerplexityOptions struct {
	NCtx    int // tokens of a chunk; default 512
	NBatch  int // as upstream prints it; default 2048. Chunks are decoded 512 tokens at a time
	Chunks  int // at most so many; default all
	Threads int // for reading logits; default one per processor

	// Stride lets chunks overlap; below NCtx, default none. This mode is this project's own: upstream's --ppl-stride has
	// windows of another size than NCtx and puts BOS into a chunk only after it was decoded, so figures are not comparable.
	Stride int
	// Rows prints upstream's line per chunk (--ppl-output-type 1) instead of its running perplexities.
	Rows bool
	// Logits is the format of the file that RunBase writes, and Origin what a file in float32 says about its log-probabilities.
	Logits LogitsFormat
	Origin Origin
	// EachToken gets the scored tokens of a chunk, in order, before the chunk's callback does.
	EachToken func([]ScoredToken) error
}

// ScoredToken is one predicted token and its JSON line.
type ScoredToken struct {
	Kind     string  `json:"kind"`     // "perplexity_token"
	Chunk    int     `json:"chunk"`    // from 1
	Position int     `json:"position"` // in the chunk, from 0
	Token    int32   `json:"token"`
	NLL      float64 `json:"nll"` // nats
}

const kindToken = "perplexity_token"

// Perplexity is a prepared evaluation: the text in chunks of NCtx tokens, of which the second half is predicted token by
// token (Jelinek et al. 1977 for the measure; the protocol is upstream's).
type Perplexity struct {
	passages
	NBatch   int // as upstream prints it
	NSeq     int // as upstream prints it
	Chunks   int // to evaluate
	Warnings []string

	threads   int
	vocab     int
	rows      bool
	logits    LogitsFormat
	origin    Origin
	eachToken func([]ScoredToken) error
}

// Chunk is one finished chunk and its JSON line.
type Chunk struct {
	Kind   string  `json:"kind"`   // "perplexity_chunk"
	Chunk  int     `json:"chunk"`  // from 1
	Tokens int     `json:"tokens"` // scored
	NLL    float64 `json:"nll"`    // sum of negative log-likelihoods, nats
	NLL2   float64 `json:"nll2"`   // sum of their squares
}

const kindChunk = "perplexity_chunk"

// NewPerplexity tokenises the text. The error is a *TooShortError if it has fewer than two contexts.
func NewPerplexity(tok *tokenizer.Tokenizer, in Input, o PerplexityOptions) (*Perplexity, error) {
	p := &Perplexity{NBatch: defaultInt(o.NBatch, 2048), threads: o.Threads, vocab: tok.VocabSize(), rows: o.Rows, logits: o.Logits, origin: o.Origin, eachToken: o.EachToken}
	p.passages = passages{NCtx: defaultInt(o.NCtx, 512), Stride: o.Stride, bos: tok.BOS(), addBOS: tok.AddBOS()}
	switch {
	case p.NCtx < 4:
		return nil, fmt.Errorf("perplexity: a context of %d tokens leaves nothing to predict: it must be at least 4", o.NCtx)
	case p.NBatch < 1 || o.Chunks < 0:
		return nil, fmt.Errorf("perplexity: batch size %d and number of chunks %d must be positive", o.NBatch, o.Chunks)
	case p.Stride < 0 || p.Stride >= p.NCtx:
		return nil, fmt.Errorf("perplexity: a stride of %d leaves no context to predict from: it must be from 1 to %d, the context less one, or 0 for none", p.Stride, p.NCtx-1)
	case tok.AddEOS():
		return nil, fmt.Errorf("perplexity: %s: the vocabulary ends every text with an EOS token, for which the protocol has no rule", in.Name)
	}
	p.NSeq, p.NBatch = p.parallel(p.NBatch)
	text, err := in.passage()
	if err != nil {
		return nil, err
	}
	if err := checkSize(in); err != nil {
		return nil, err
	}
	p.tokens = tok.Encode(text, true, false)
	if len(p.tokens) < 2*p.NCtx {
		return nil, &TooShortError{File: in.Name, NCtx: p.NCtx, Tokens: len(p.tokens)}
	}
	p.Chunks = p.whole()
	p.Warnings = in.passageWarnings()
	if o.Chunks > p.Chunks {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s: %d chunks are wanted, its %d tokens make %d: all are evaluated", in.Name, o.Chunks, len(p.tokens), p.Chunks))
	} else if o.Chunks > 0 {
		p.Chunks = o.Chunks
	}
	return p, nil
}

func defaultInt(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// ContextOptions is base with the size that the evaluation needs.
func (p *Perplexity) ContextOptions(base engine.ContextOptions) engine.ContextOptions {
	return p.contextOptions(base)
}

// Run evaluates the chunks that done does not have and calls each for every one when it is finished, in order. The
// result has done in front. Chunks are always decoded in the same batches, whatever done has, so that a continued run gives
// the very figures of one that was not interrupted. The error is a *NotFiniteError if a chunk has no perplexity; ctx ends
// it early.
func (p *Perplexity) Run(ctx context.Context, c Context, done []Chunk, each func(Chunk) error) ([]Chunk, error) {
	s := scorer{c, p.threads}
	return p.run(c, done, each, func(start, n int) ([]float64, error) {
		b, rows, targets := p.batch(start, n)
		queries := make([]query, len(rows))
		for i, row := range rows {
			queries[i] = query{row: row, token: targets[i]}
		}
		return s.score(ctx, b, queries)
	})
}

// run is Run with what decodes n chunks from chunk start (from 0) and gives the log-probabilities of their scored tokens, chunk
// by chunk.
func (p *Perplexity) run(c Context, done []Chunk, each func(Chunk) error, decode func(start, n int) ([]float64, error)) ([]Chunk, error) {
	if err := p.check(done); err != nil {
		return nil, err
	}
	chunks := append(make([]Chunk, 0, p.Chunks), done...)
	pass := p.pass()
	for start := len(done) / pass * pass; start < p.Chunks; start += pass {
		n := min(pass, p.Chunks-start)
		c.Clear()
		values, err := decode(start, n)
		if err != nil {
			return chunks, fmt.Errorf("perplexity: chunk %d: %w", start+1, err)
		}
		for i := start; i < start+n; i++ {
			logProbs := values[:p.scored()]
			values = values[p.scored():]
			chunk, err := newChunk(i+1, logProbs)
			if err != nil {
				return chunks, err
			}
			if i < len(done) {
				continue // evaluated again only because its batch was not complete
			}
			if err := p.tell(i, logProbs); err != nil {
				return chunks, err
			}
			chunks = append(chunks, chunk)
			if err := each(chunk); err != nil {
				return chunks, err
			}
		}
	}
	return chunks, nil
}

// check refuses a checkpoint of another evaluation.
func (p *Perplexity) check(done []Chunk) error {
	if len(done) > p.Chunks {
		return &CheckpointError{stagePerplexity, fmt.Sprintf("it has %d chunks, the text %d", len(done), p.Chunks)}
	}
	for i, d := range done {
		if d.Chunk != i+1 || d.Tokens != p.scored() {
			return &CheckpointError{stagePerplexity, fmt.Sprintf("entry %d is chunk %d with %d tokens", i+1, d.Chunk, d.Tokens)}
		}
	}
	return nil
}

// tell calls EachToken for chunk i (from 0).
func (p *Perplexity) tell(i int, logProbs []float64) error {
	if p.eachToken == nil {
		return nil
	}
	tokens := p.tokens[i*p.step():][:p.NCtx]
	scored := make([]ScoredToken, len(logProbs))
	for k, v := range logProbs {
		position := p.first() + 1 + k
		scored[k] = ScoredToken{kindToken, i + 1, position, tokens[position], -v}
	}
	return p.eachToken(scored)
}

// newChunk sums up one chunk.
func newChunk(no int, logProbs []float64) (Chunk, error) {
	if v, bad := notFinite(logProbs); bad {
		return Chunk{}, &NotFiniteError{stagePerplexity, fmt.Sprintf("chunk %d", no), v}
	}
	c := Chunk{Kind: kindChunk, Chunk: no, Tokens: len(logProbs)}
	for _, v := range logProbs {
		c.NLL -= v
		c.NLL2 += v * v
	}
	return c, nil
}

// Estimate is the perplexity over chunks and its standard error: exp of the mean m of the negative log-likelihoods, and
// that times √((mean of squares − m²)/(n−1)). ok is false where the variance is not positive.
func Estimate(chunks []Chunk) (ppl, stderr float64, ok bool) {
	m, stderr, ok := meanNLL(chunks)
	return math.Exp(m), stderr * math.Exp(m), ok
}

// meanNLL is the mean of the negative log-likelihoods over chunks and its standard error.
func meanNLL(chunks []Chunk) (mean, stderr float64, ok bool) {
	var n int
	var nll, nll2 float64
	for _, c := range chunks {
		n += c.Tokens
		nll += c.NLL
		nll2 += c.NLL2
	}
	mean = nll / float64(n)
	variance := nll2/float64(n) - mean*mean
	if !(variance > 0) || n < 2 {
		return mean, 0, false
	}
	return mean, math.Sqrt(variance / float64(n-1)), true
}

// Doubts are reasons not to believe the result, for people.
func (p *Perplexity) Doubts(chunks []Chunk) []string {
	ppl, _, _ := Estimate(chunks)
	return beyondVocabulary(ppl, p.vocab)
}

// Write prints the finished chunks as docs/format/output.md says.
func (p *Perplexity) Write(w io.Writer, chunks []Chunk) error {
	o := &printer{w: w}
	if p.Stride > 0 {
		o.printf("perplexity: calculating perplexity over %d overlapping chunks, n_ctx=%d, stride=%d\n", p.Chunks, p.NCtx, p.Stride)
	} else {
		o.printf("perplexity: calculating perplexity over %d chunks, n_ctx=%d, batch_size=%d, n_seq=%d\n", p.Chunks, p.NCtx, p.NBatch, p.NSeq)
	}
	for _, c := range chunks {
		o.json(c)
	}
	if p.rows {
		p.writeRows(o, chunks)
	} else {
		for i := range chunks {
			ppl, _, _ := Estimate(chunks[:i+1])
			o.printf("[%d]%.4f,", i+1, ppl)
		}
		o.printf("\n")
	}
	if ppl, stderr, ok := Estimate(chunks); ok {
		o.printf("Final estimate: PPL = %.4f +/- %.5f\n", ppl, stderr)
	} else {
		o.printf("Unexpected negative standard deviation of log(prob)\n")
	}
	return o.err
}

// writeRows prints a line per chunk: where the chunks that upstream would decode with it begin, in tokens; perplexity,
// mean negative log-likelihood and its standard error, of all chunks so far.
func (p *Perplexity) writeRows(o *printer, chunks []Chunk) {
	for i := range chunks {
		mean, stderr, _ := meanNLL(chunks[:i+1])
		o.printf("%8d  %.4f  %4f  %4f\n", i/p.NSeq*p.NSeq*p.step(), math.Exp(mean), mean, stderr)
	}
}
