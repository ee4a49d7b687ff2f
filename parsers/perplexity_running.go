package parsers

import (
	"fmt"
	"math"
	"strings"
)

// llama-perplexity's default: "[1]38.8864,[2]31.2897," and a final line. The sums of chunks are recovered from the
// four decimals; Chunk.Rounding says how far off they may be.

func matchPerplexityRunning(t *text) bool {
	return t.any(func(l line) bool { return strings.HasPrefix(l.text, "[1]") })
}

func decodePerplexityRunning(t *text) ([]Measurement, error) {
	a, err := announced(t)
	if err != nil {
		return nil, err
	}
	values, err := running(t)
	if err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return nil, truncated(len(t.lines), "a running perplexity [1]value,", "none")
	}
	last := values[len(values)-1]
	if err := countChunks(a, len(values), last.line); err != nil {
		return nil, err
	}
	ppl, se, l, err := finalEstimate(t)
	if err != nil {
		return nil, err
	}
	if ppl != last.value {
		return nil, contradiction(l, fmt.Sprintf("PPL %.4f, as after the last chunk", last.value), formatFloat(ppl))
	}
	nll := Measurement{
		Metric: NLL, Unit: UnitNats, Value: math.Log(ppl), StdErr: ptr(se / ppl), Rounding: 0.5e-4 / ppl,
		Chunks: recoverChunks(values, a.scored()),
	}
	return []Measurement{nll, {Metric: PerplexityMetric, Unit: UnitNone, Value: ppl, StdErr: &se, Rounding: 0.5e-4}}, nil
}

// recoverChunks takes differences of the running sums k·tokens·ln(ppl). Without a context length there are none.
func recoverChunks(values []runningValue, tokens int) []Chunk {
	if tokens == 0 {
		return nil
	}
	chunks := make([]Chunk, len(values))
	sum, slack := 0.0, 0.0
	for i, v := range values {
		n := float64((i + 1) * tokens)
		s, e := n*math.Log(v.value), n*0.5e-4/v.value
		chunks[i] = Chunk{Index: i + 1, Tokens: tokens, Sum: s - sum, Rounding: e + slack}
		sum, slack = s, e
	}
	return chunks
}
