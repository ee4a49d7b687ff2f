package parsers

import (
	"fmt"
	"math"
)

// The embedded engine's form: a perplexity_chunk line per chunk with all digits, then what upstream prints. Every
// printed perplexity is recomputed from the chunks.

const chunkKind = "perplexity_chunk"

func matchPerplexityChunks(t *text) bool { return t.hasKind(chunkKind) }

func (t *text) hasKind(kind string) bool {
	return t.any(func(l line) bool { return l.ofKind(kind) })
}

func decodePerplexityChunks(t *text) ([]Measurement, error) {
	a, err := announced(t)
	if err != nil {
		return nil, err
	}
	if a.context == 0 {
		return nil, truncated(0, `"perplexity: calculating perplexity over ... chunks, n_ctx=..."`, "no such line")
	}
	chunks, last, err := readChunks(t)
	if err != nil {
		return nil, err
	}
	if err := countChunks(a, len(chunks), last); err != nil {
		return nil, err
	}
	if err := checkRunning(t, chunks); err != nil {
		return nil, err
	}
	ppl, se, l, err := finalEstimate(t)
	if err != nil {
		return nil, err
	}
	ms := fromChunks(chunks)
	if !agrees(ppl, ms[1].Value, 4) {
		return nil, contradiction(l, fmt.Sprintf("PPL %.4f, computed from the chunks", ms[1].Value), formatFloat(ppl))
	}
	if e := ms[1].StdErr; e != nil && !agrees(se, *e, 5) {
		return nil, contradiction(l, fmt.Sprintf("an error of %.5f, computed from the chunks", *e), formatFloat(se))
	}
	return ms, nil
}

func readChunks(t *text) (chunks []Chunk, last int, err error) {
	for _, l := range t.lines {
		if !l.ofKind(chunkKind) {
			continue
		}
		o, err := newObject(l)
		if err != nil {
			return nil, 0, err
		}
		c := Chunk{Index: o.int("chunk"), Tokens: o.int("tokens"), Sum: o.float("nll"), Sum2: ptr(o.float("nll2"))}
		if o.err != nil {
			return nil, 0, o.err
		}
		if want := len(chunks) + 1; c.Index != want {
			return nil, 0, contradiction(l.n, fmt.Sprintf("chunk %d", want), fmt.Sprintf("chunk %d", c.Index))
		}
		// By Cauchy and Schwarz a sum of squares is at least the square of the sum over the count.
		if n := float64(c.Tokens); c.Tokens == 0 || c.Sum < 0 || *c.Sum2*(1+1e-9) < c.Sum*c.Sum/n {
			return nil, 0, contradiction(l.n, "tokens > 0, nll >= 0 and nll2 >= nll²/tokens", quote(l.text))
		}
		chunks, last = append(chunks, c), l.n
	}
	return chunks, last, nil
}

// checkRunning compares upstream's running line with the chunks.
func checkRunning(t *text, chunks []Chunk) error {
	values, err := running(t)
	if err != nil {
		return err
	}
	if len(values) < len(chunks) {
		return truncated(len(t.lines), fmt.Sprintf("%d running values, one a chunk", len(chunks)), fmt.Sprint(len(values)))
	}
	if len(values) > len(chunks) {
		return contradiction(values[len(chunks)].line, fmt.Sprintf("%d running values, one a chunk", len(chunks)), fmt.Sprint(len(values)))
	}
	nll, n := 0.0, 0
	for i, c := range chunks {
		nll, n = nll+c.Sum, n+c.Tokens
		if ppl := math.Exp(nll / float64(n)); !agrees(values[i].value, ppl, 4) {
			return contradiction(values[i].line, fmt.Sprintf("[%d]%.4f, computed from the chunks", i+1, ppl), formatFloat(values[i].value))
		}
	}
	return nil
}

// fromChunks is nll and perplexity over exact chunks.
func fromChunks(chunks []Chunk) []Measurement {
	var nll, nll2 float64
	n := 0
	for _, c := range chunks {
		nll, nll2, n = nll+c.Sum, nll2+*c.Sum2, n+c.Tokens
	}
	mean := nll / float64(n)
	ppl := math.Exp(mean)
	out := []Measurement{
		{Metric: NLL, Unit: UnitNats, Value: mean, Chunks: chunks},
		{Metric: PerplexityMetric, Unit: UnitNone, Value: ppl},
	}
	if se, ok := tokenError(nll, nll2, n); ok {
		out[0].StdErr, out[1].StdErr = ptr(se), ptr(se*ppl)
	}
	return out
}
