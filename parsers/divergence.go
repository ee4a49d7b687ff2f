package parsers

import (
	"fmt"
	"math"
	"slices"
)

// The embedded engine's form: a kl_chunk line per chunk with sums over its tokens and the values of every token, then
// upstream's running table and its statistics. Everything printed is recomputed from the chunks.

const divergenceKind = "kl_chunk"

func matchDivergenceChunks(t *text) bool { return t.hasKind(divergenceKind) }

// divergenceChunk is one kl_chunk line. Sums are over its tokens.
type divergenceChunk struct {
	line, tokens, sameTop       int
	nll, nllBase                float64
	kld, kld2, deltaP, dP2, dP4 float64
	klds, deltaPs               []float64
}

func decodeDivergenceChunks(t *text) ([]Measurement, error) {
	a, err := announcedDivergence(t)
	if err != nil {
		return nil, err
	}
	if a.chunks == 0 {
		return nil, truncated(0, `"kl_divergence: computing over ... chunks, n_ctx=..."`, "no such line")
	}
	chunks, err := divergenceChunks(t)
	if err != nil {
		return nil, err
	}
	if err := countChunks(a, len(chunks), chunks[len(chunks)-1].line); err != nil {
		return nil, err
	}
	rows, err := divergenceRows(t)
	if err != nil {
		return nil, err
	}
	if err := checkDivergenceRows(t, rows, chunks); err != nil {
		return nil, err
	}
	ms := fromDivergenceChunks(chunks)
	if sumUp(chunks).tokens < statisticsFrom {
		return ms, nil
	}
	return ms, checkStatistics(t, ms)
}

func divergenceChunks(t *text) ([]divergenceChunk, error) {
	var out []divergenceChunk
	for _, l := range t.lines {
		if !l.ofKind(divergenceKind) {
			continue
		}
		o, err := newObject(l)
		if err != nil {
			return nil, err
		}
		index := o.int("chunk")
		c := divergenceChunk{
			line: l.n, tokens: o.int("tokens"), sameTop: o.int("same_top"), nll: o.float("nll"), nllBase: o.float("nll_base"),
			kld: o.float("kld"), kld2: o.float("kld2"), deltaP: o.float("p_diff"), dP2: o.float("p_diff2"), dP4: o.float("p_diff4"),
			klds: o.floats("kld_values"), deltaPs: o.floats("p_diff_values"),
		}
		if o.err != nil {
			return nil, o.err
		}
		if want := len(out) + 1; index != want {
			return nil, contradiction(l.n, fmt.Sprintf("chunk %d", want), fmt.Sprintf("chunk %d", index))
		}
		if err := c.check(); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// check compares the sums of a chunk with its values, which are printed in single precision, and with each other.
func (c divergenceChunk) check() error {
	if c.tokens < 1 || c.sameTop > c.tokens || len(c.klds) != c.tokens || len(c.deltaPs) != c.tokens {
		return contradiction(c.line, fmt.Sprintf("values of %d tokens, one or more, and not more of them with the same mode", c.tokens),
			fmt.Sprintf("%d and %d values, %d with the same mode", len(c.klds), len(c.deltaPs), c.sameTop))
	}
	for _, s := range []struct {
		name         string
		sum, squares float64
		values       []float64
	}{{"kld", c.kld, c.kld2, c.klds}, {"p_diff", c.deltaP, c.dP2, c.deltaPs}} {
		var sum, squares, size float64
		for _, v := range s.values {
			sum, squares, size = sum+v, squares+v*v, size+math.Abs(v)
		}
		if math.Abs(sum-s.sum) > 1e-6*size || math.Abs(squares-s.squares) > 1e-6*squares {
			return contradiction(c.line, fmt.Sprintf("%s %v and its squares %v, from the values", s.name, sum, squares), fmt.Sprintf("%v and %v", s.sum, s.squares))
		}
	}
	return nil
}

// sumUp adds chunks up.
func sumUp(chunks []divergenceChunk) divergenceChunk {
	var s divergenceChunk
	for _, c := range chunks {
		s.tokens, s.sameTop, s.nll, s.nllBase = s.tokens+c.tokens, s.sameTop+c.sameTop, s.nll+c.nll, s.nllBase+c.nllBase
		s.kld, s.kld2, s.deltaP, s.dP2, s.dP4 = s.kld+c.kld, s.kld2+c.kld2, s.deltaP+c.deltaP, s.dP2+c.dP2, s.dP4+c.dP4
	}
	return s
}

// row is the line of the running table after these chunks.
func (c divergenceChunk) row() divergenceRow {
	n := float64(c.tokens)
	return divergenceRow{
		ppl: math.Exp(c.nll / n), logRatio: (c.nll - c.nllBase) / n, kld: c.kld / n,
		rms: 100 * math.Sqrt(c.dP2/n), sameTop: 100 * float64(c.sameTop) / n,
	}
}

// checkDivergenceRows compares the running table with the chunks.
func checkDivergenceRows(t *text, rows []divergenceRow, chunks []divergenceChunk) error {
	if len(rows) < len(chunks) {
		return truncated(len(t.lines), fmt.Sprintf("%d table rows, one a chunk", len(chunks)), fmt.Sprint(len(rows)))
	}
	if len(rows) > len(chunks) {
		return contradiction(rows[len(chunks)].line, fmt.Sprintf("%d table rows, one a chunk", len(chunks)), fmt.Sprint(len(rows)))
	}
	var s divergenceChunk
	for i, r := range rows {
		s = sumUp([]divergenceChunk{s, chunks[i]})
		want := s.row()
		if !agrees(r.ppl, want.ppl, 4) || !agrees(r.logRatio, want.logRatio, 5) || !agrees(r.kld, want.kld, 5) ||
			!agrees(r.rms, want.rms, 3) || !agrees(r.sameTop, want.sameTop, 3) {
			return contradiction(r.line, fmt.Sprintf("%.4f %.5f %.5f %.3f %.3f, from the chunks", want.ppl, want.logRatio, want.kld, want.rms, want.sameTop),
				fmt.Sprint(r.ppl, r.logRatio, r.kld, r.rms, r.sameTop))
		}
	}
	return nil
}

// fromDivergenceChunks is everything that a unit measures, in the order of divergenceMetrics.
func fromDivergenceChunks(chunks []divergenceChunk) []Measurement {
	s := sumUp(chunks)
	var klds []float32
	var kld, top, deltaP, squares []Chunk
	for i, c := range chunks {
		for _, v := range c.klds {
			klds = append(klds, float32(v))
		}
		of := func(sum, sum2 float64) Chunk { return Chunk{Index: i + 1, Tokens: c.tokens, Sum: sum, Sum2: &sum2} }
		kld, deltaP, squares = append(kld, of(c.kld, c.kld2)), append(deltaP, of(c.deltaP, c.dP2)), append(squares, of(c.dP2, c.dP4))
		top = append(top, of(float64(c.sameTop), float64(c.sameTop)))
	}
	slices.Sort(klds)
	n := float64(s.tokens)
	rms := math.Sqrt(s.dP2 / n)
	ms := []Measurement{
		{Metric: MeanKLD, Unit: UnitNats, Value: s.kld / n, Chunks: kld, StdErr: errorOf(s.kld, s.kld2, s.tokens)},
		{Metric: MedianKLD, Unit: UnitNats, Value: float64(percentile(klds, 0.5))},
		{Metric: P99KLD, Unit: UnitNats, Value: float64(percentile(klds, 0.99))},
		{Metric: MaxKLD, Unit: UnitNats, Value: float64(klds[len(klds)-1])},
		{Metric: SameTop, Unit: UnitFraction, Value: float64(s.sameTop) / n, Chunks: top, StdErr: errorOf(float64(s.sameTop), float64(s.sameTop), s.tokens)},
		{Metric: MeanDeltaP, Unit: UnitFraction, Value: s.deltaP / n, Chunks: deltaP, StdErr: errorOf(s.deltaP, s.dP2, s.tokens)},
		{Metric: RMSDeltaP, Unit: UnitFraction, Value: rms, Chunks: squares},
	}
	if e := errorOf(s.dP2, s.dP4, s.tokens); e != nil && rms > 0 {
		ms[6].StdErr = ptr(*e / (2 * rms)) // of a square root
	}
	return ms
}

func errorOf(sum, sum2 float64, n int) *float64 {
	if e, ok := tokenError(sum, sum2, n); ok {
		return &e
	}
	return nil
}

// percentile of ascending values: upstream's, which interpolates between neighbours in single precision.
func percentile(sorted []float32, fraction float32) float32 {
	at := fraction * float32(len(sorted)-1)
	i := int(at)
	at -= float32(i)
	return float32((1-at)*sorted[i]) + float32(at*sorted[min(i+1, len(sorted)-1)])
}
