package eval

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"attnbudget/engine"
	"attnbudget/engine/tokenizer"
)

const stageDivergence = "kl-divergence"

// Divergence is a prepared comparison of a model with the log-probabilities of a base model (Kullback and Leibler 1951,
// base first), over the text in the base's logits file.
type Divergence struct {
	passages
	NBatch int // as upstream prints it
	NSeq   int // as upstream prints it
	Chunks int // to compare

	Warnings []string // for people

	threads int
	name    string
	base    io.ReaderAt
	layout  logitsLayout
}

// DivergenceOptions of a comparison; a zero field takes its default. The context is the base's.
type DivergenceOptions struct {
	NBatch  int // tokens decoded at once; default 2048
	Chunks  int // at most so many; default all
	Threads int // for reading logits; default one per processor
}

// DivergenceChunk is one finished chunk and its JSON line. Sums are over the scored tokens; nll are negative
// log-likelihoods in nats, of the model and of the base; p the model's probability of a token minus the base's.
type DivergenceChunk struct {
	Kind       string    `json:"kind"`  // "kl_chunk"
	Chunk      int       `json:"chunk"` // from 1
	Tokens     int       `json:"tokens"`
	NLL        float64   `json:"nll"`
	NLL2       float64   `json:"nll2"`
	NLLBase    float64   `json:"nll_base"`
	NLLBase2   float64   `json:"nll_base2"`
	NLLProduct float64   `json:"nll_nll_base"`
	KLD        float64   `json:"kld"`
	KLD2       float64   `json:"kld2"`
	DeltaP     float64   `json:"p_diff"`
	DeltaP2    float64   `json:"p_diff2"`
	DeltaP4    float64   `json:"p_diff4"`
	SameTop    int       `json:"same_top"`      // tokens where both have the same mode
	KLDs       []float32 `json:"kld_values"`    // of every token
	DeltaPs    []float32 `json:"p_diff_values"` // of every token
}

const kindDivergence = "kl_chunk"

// NewDivergence reads the header of a logits file of the given size. The error is a *FormatError if it is damaged or of
// another vocabulary.
func NewDivergence(tok *tokenizer.Tokenizer, name string, base io.ReaderAt, size int64, o DivergenceOptions) (*Divergence, error) {
	if o.NBatch < 0 || o.Chunks < 0 {
		return nil, fmt.Errorf("kl-divergence: batch size %d and number of chunks %d must be positive", o.NBatch, o.Chunks)
	}
	if tok.AddEOS() {
		return nil, fmt.Errorf("kl-divergence: %s: the vocabulary ends every text with an EOS token, for which the protocol has no rule", name)
	}
	l, tokens, err := readLogitsHeader(name, base, size)
	if err != nil {
		return nil, err
	}
	if l.vocab != tok.VocabSize() {
		return nil, &FormatError{name, 0, fmt.Sprintf("inconsistent vocabulary: the base model has %d tokens, this one %d", l.vocab, tok.VocabSize())}
	}
	d := &Divergence{threads: o.Threads, name: name, base: base, layout: l, Chunks: l.chunks}
	d.passages = passages{NCtx: l.nCtx, bos: tok.BOS(), addBOS: tok.AddBOS(), tokens: tokens}
	d.NSeq, d.NBatch = d.parallel(defaultInt(o.NBatch, 2048))
	if o.Chunks > d.Chunks {
		d.Warnings = append(d.Warnings, fmt.Sprintf("%s: %d chunks are wanted, it has %d: all are compared", name, o.Chunks, d.Chunks))
	} else if o.Chunks > 0 {
		d.Chunks = o.Chunks
	}
	return d, nil
}

// ContextOptions is base with the size that the comparison needs.
func (d *Divergence) ContextOptions(base engine.ContextOptions) engine.ContextOptions {
	return d.contextOptions(base)
}

// Run compares the chunks that done does not have and calls each for every one when it is finished, in order. The
// result has done in front. The error is a *NotFiniteError if a chunk has no divergence; ctx ends it early.
func (d *Divergence) Run(ctx context.Context, c Context, done []DivergenceChunk, each func(DivergenceChunk) error) ([]DivergenceChunk, error) {
	if err := d.check(done); err != nil {
		return nil, err
	}
	chunks := append(make([]DivergenceChunk, 0, d.Chunks), done...)
	s := scorer{c, d.threads}
	pass := d.pass()
	for start := len(done) / pass * pass; start < d.Chunks; start += pass {
		n := min(pass, d.Chunks-start)
		points, err := d.compare(ctx, s, start, n)
		if err != nil {
			return chunks, fmt.Errorf("kl-divergence: chunk %d: %w", start+1, err)
		}
		for i := start; i < start+n; i++ {
			chunk, err := newDivergenceChunk(i+1, points[:d.scored()])
			if err != nil {
				return chunks, err
			}
			points = points[d.scored():]
			if i < len(done) {
				continue // compared again only because its batch was not complete
			}
			chunks = append(chunks, chunk)
			if err := each(chunk); err != nil {
				return chunks, err
			}
		}
	}
	return chunks, nil
}

// check refuses a checkpoint of another comparison.
func (d *Divergence) check(done []DivergenceChunk) error {
	if len(done) > d.Chunks {
		return &CheckpointError{stageDivergence, fmt.Sprintf("it has %d chunks, the base %d", len(done), d.Chunks)}
	}
	for i, c := range done {
		if c.Chunk != i+1 || c.Tokens != d.scored() || len(c.KLDs) != c.Tokens || len(c.DeltaPs) != c.Tokens {
			return &CheckpointError{stageDivergence, fmt.Sprintf("entry %d is chunk %d with %d tokens", i+1, c.Chunk, c.Tokens)}
		}
	}
	return nil
}

// point is what is found at one scored token.
type point struct {
	nll, nllBase float32
	kld          float64
	sameTop      bool
}

// compare evaluates n chunks from chunk start (from 0) against the base.
func (d *Divergence) compare(ctx context.Context, s scorer, start, n int) ([]point, error) {
	codes := make([]byte, int64(n)*d.layout.chunkBytes())
	if _, err := d.base.ReadAt(codes, d.layout.chunk(start)); err != nil {
		return nil, fmt.Errorf("%s: %w", d.name, err)
	}
	s.context.Clear()
	b, rows, targets := d.batch(start, n)
	points := make([]point, len(rows))
	rowBytes := 2 * codesPerRow(d.layout.vocab)
	err := s.visit(ctx, b, rows, func(i int, logits []float32) {
		points[i] = compareLogits(logits, codes[i*rowBytes:][:rowBytes], targets[i])
	})
	return points, err
}

// compareLogits compares logits with a row of a logits file, in upstream's float32 steps: Σ p·(log p − log q) over the
// entries whose base log-probability is above -16.
func compareLogits(logits []float32, row []byte, token int32) point {
	top, mode := logits[0], 0
	for i, l := range logits {
		if l > top || math.IsNaN(float64(l)) { // a NaN stays, and shows in the sums
			top, mode = l, i
		}
	}
	logSum := logSumExp(logits, top)
	scale := math.Float32frombits(binary.LittleEndian.Uint32(row))
	lowest := math.Float32frombits(binary.LittleEndian.Uint32(row[4:]))
	codes := row[8:]
	base := func(i int) float32 { return scale*float32(binary.LittleEndian.Uint16(codes[2*i:])) + lowest }

	p := point{nll: top + logSum - logits[token], nllBase: -base(int(token))}
	normalizer := top + logSum
	baseMode, baseTop := 0, base(0)
	for i, l := range logits {
		logP := base(i)
		if logP > baseTop {
			baseTop, baseMode = logP, i
		}
		if logP > -codeRange {
			p.kld += float64(float32(math.Exp(float64(logP))) * (logP - l + normalizer))
		}
	}
	p.sameTop = mode == baseMode
	return p
}

// newDivergenceChunk sums up one chunk.
func newDivergenceChunk(no int, points []point) (DivergenceChunk, error) {
	c := DivergenceChunk{Kind: kindDivergence, Chunk: no, Tokens: len(points)}
	for _, p := range points {
		if v, bad := notFinite([]float64{float64(p.nll), float64(p.nllBase), p.kld}); bad {
			return c, &NotFiniteError{stageDivergence, fmt.Sprintf("chunk %d", no), v}
		}
		c.NLL += float64(p.nll)
		c.NLL2 += float64(p.nll * p.nll)
		c.NLLBase += float64(p.nllBase)
		c.NLLBase2 += float64(p.nllBase * p.nllBase)
		c.NLLProduct += float64(p.nll * p.nllBase)
		c.KLD += p.kld
		c.KLD2 += p.kld * p.kld
		deltaP := float32(math.Exp(float64(-p.nll))) - float32(math.Exp(float64(-p.nllBase)))
		square := float64(deltaP * deltaP)
		c.DeltaP += float64(deltaP)
		c.DeltaP2 += square
		c.DeltaP4 += square * square
		if p.sameTop {
			c.SameTop++
		}
		c.KLDs = append(c.KLDs, float32(p.kld))
		c.DeltaPs = append(c.DeltaPs, deltaP)
	}
	return c, nil
}
