package eval

import (
	"context"
	"errors"
	"fmt"
	"io"

	"attnbudget/engine"
	"attnbudget/engine/kernel/upstream"
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

	Format       LogitsFormat // of the base's file
	TokensSHA256 string       // of the base's tokens, int32 little endian
	Origin       Origin       // of the base; zero where the format does not tell

	Warnings []string // for people

	threads int
	name    string
	base    io.ReaderAt
	layout  logitsLayout
	rows    *rowBuffers
}

// DivergenceOptions of a comparison; a zero field takes its default. The context is the base's.
type DivergenceOptions struct {
	NBatch  int // tokens decoded at once; default 2048
	Chunks  int // at most so many; default all
	Threads int // for reading logits; default one per processor

	// BaseModel is the fingerprint that the base's model must have; default any. Only a float32 file tells.
	BaseModel string
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
	f, err := readLogitsFile(name, base, size)
	if err != nil {
		return nil, err
	}
	if f.vocab != tok.VocabSize() {
		return nil, &FormatError{name, 0, fmt.Sprintf("inconsistent vocabulary: the base model has %d tokens, this one %d", f.vocab, tok.VocabSize())}
	}
	if err := f.checkModel(o.BaseModel); err != nil {
		return nil, &FormatError{name, 0, err.Error()}
	}
	d := &Divergence{Chunks: f.chunks, Format: f.format, TokensSHA256: f.sha256, Origin: f.origin, threads: o.Threads, name: name, base: base, layout: f.logitsLayout}
	d.rows = newRowBuffers(f.format.rowBytes(f.vocab))
	d.passages = passages{NCtx: f.nCtx, bos: tok.BOS(), addBOS: tok.AddBOS(), tokens: f.tokens}
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
	s.context.Clear()
	b, places, targets := d.batch(start, n)
	points := make([]point, len(places))
	err := s.visit(ctx, b, places, func(i int, logits []float32) error {
		return d.rows.with(func(row []byte) (err error) {
			if _, err := d.base.ReadAt(row, d.layout.chunk(start)+int64(i)*int64(len(row))); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			points[i], err = d.layout.format.compare(logits, row, targets[i])
			var damaged *rowError
			if errors.As(err, &damaged) {
				return &FormatError{d.name, 0, fmt.Sprintf("chunk %d: %v", start+i/d.scored()+1, err)}
			}
			return err
		})
	})
	return points, err
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
		deltaP := upstream.ScalarExp(-p.nll) - upstream.ScalarExp(-p.nllBase)
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
