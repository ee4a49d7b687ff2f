package parsers

import (
	"fmt"
	"math"
	"regexp"
)

// llama-perplexity --ppl-output-type 1: a row per chunk with a position, the perplexity so far, the mean nll so far
// with six decimals and its standard error.

var tableRow = regexp.MustCompile(`^\s*(\d+)\s{2}(\S+\.\d{4}|-?nan|-?inf)\s{2}\s*(\S+\.\d{6}|-?nan|-?inf)\s{2}\s*(\S+\.\d{6}|-?nan|-?inf)$`)

func matchPerplexityTable(t *text) bool { return t.matches(tableRow) }

func decodePerplexityTable(t *text) ([]Measurement, error) {
	a, err := announced(t)
	if err != nil {
		return nil, err
	}
	var chunks []Chunk
	var ppl, mean, se, sum, slack float64
	last, tokens := 0, a.scored()
	for _, l := range t.lines {
		m := tableRow.FindStringSubmatch(l.text)
		if m == nil {
			continue
		}
		last = l.n
		for i, dst := range []*float64{&ppl, &mean, &se} {
			if *dst, err = number(l.n, []string{"PPL", "mean nll", "its error"}[i], m[i+2]); err != nil {
				return nil, err
			}
		}
		if exact := math.Exp(mean); math.Abs(ppl-exact) > 0.5e-4+exact*0.6e-6 {
			return nil, contradiction(l.n, fmt.Sprintf("PPL %.4f, exp of the mean nll", exact), m[2])
		}
		n := float64((len(chunks) + 1) * tokens)
		chunks = append(chunks, Chunk{Index: len(chunks) + 1, Tokens: tokens, Sum: n*mean - sum, Rounding: n*0.5e-6 + slack})
		sum, slack = n*mean, n*0.5e-6
	}
	if err := countChunks(a, len(chunks), last); err != nil {
		return nil, err
	}
	final, finalError, l, err := finalEstimate(t)
	if err != nil {
		return nil, err
	}
	if final != ppl {
		return nil, contradiction(l, fmt.Sprintf("PPL %.4f, as after the last chunk", ppl), formatFloat(final))
	}
	if tokens == 0 {
		chunks = nil
	}
	return []Measurement{
		{Metric: NLL, Unit: UnitNats, Value: mean, StdErr: &se, Rounding: 0.5e-6, Chunks: chunks},
		{Metric: PerplexityMetric, Unit: UnitNone, Value: ppl, StdErr: &finalError, Rounding: 0.5e-4},
	}, nil
}
