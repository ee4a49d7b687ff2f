package stat

import (
	"fmt"
	"math"
)

// LogRatios are ln(treated/base) of pairs. Both slices have one value a pair, in the same order; it panics when their
// lengths differ. A value that is not positive is an error, because it has no logarithm.
func LogRatios(treated, base []float64) ([]float64, error) {
	if len(treated) != len(base) {
		panic(fmt.Sprintf("stat: %d and %d values do not pair", len(treated), len(base)))
	}
	d := make([]float64, len(base))
	for i := range base {
		if !(treated[i] > 0) || !(base[i] > 0) {
			return nil, fmt.Errorf("pair %d: %v and %v have no log ratio", i+1, treated[i], base[i])
		}
		d[i] = math.Log(treated[i]) - math.Log(base[i])
	}
	return d, nil
}

// RatioT is exp of the mean log ratio with Student's t interval: it estimates the geometric-mean ratio. It panics on
// an empty slice, as RatioHL does.
func RatioT(logRatios []float64, level float64) Interval {
	i := MeanT(logRatios, level).Exp()
	i.Method = "paired t on log ratios"
	return i
}

// RatioHL is exp of the Hodges-Lehmann estimate of the log ratios with the exact signed-rank interval.
func RatioHL(logRatios []float64, level float64) Interval {
	i := HodgesLehmann(logRatios, level).Exp()
	i.Method = "Hodges-Lehmann on log ratios, signed rank"
	return i
}

// DetectableRatio is the smallest ratio above 1 that a two-sided paired t test at that level would find with the given
// power, from the spread of the pairs at hand: exp((t_{1-alpha/2} + t_power) sd/sqrt(n)), n-1 degrees of freedom. ok
// is false with fewer than two pairs.
func DetectableRatio(logRatios []float64, level, power float64) (ratio float64, ok bool) {
	n := len(logRatios)
	if n < 2 {
		return 0, false
	}
	_, sd := meanSD(logRatios)
	t := tQuantile(1-(1-level)/2, n-1) + tQuantile(power, n-1)
	return math.Exp(t * sd / math.Sqrt(float64(n))), true
}

// Chunk is the negative log-likelihood of one window of a text, summed over its scored tokens.
type Chunk struct {
	Tokens int
	NLL    float64
}

// NLLDifference is the difference of mean nll a token of the same chunks under two settings, treated minus base, with
// an interval that takes chunks and not tokens as independent, because tokens of a chunk share a document. With D_k
// the difference summed over chunk k, T_k its tokens and delta = sum D / sum T, the error is that of a ratio
// estimator, sqrt(m/(m-1) sum (D_k - T_k delta)^2) / sum T, which for equal chunks is sd/sqrt(m); the interval uses
// Student's t with m-1 degrees of freedom. Chunks of different numbers of tokens under the two settings are an error.
func NLLDifference(treated, base []Chunk, level float64) (Interval, error) {
	const method = "paired t over chunks"
	d, total, err := chunkDifferences(treated, base)
	if err != nil {
		return Interval{}, err
	}
	m := len(d)
	sum := 0.0
	for _, v := range d {
		sum += v
	}
	delta := sum / float64(total)
	if m < 2 {
		return unbounded(delta, level, method, m).warn("one chunk: no interval"), nil
	}
	ss := 0.0
	for k, v := range d {
		r := v - float64(base[k].Tokens)*delta
		ss += r * r
	}
	se := math.Sqrt(float64(m)/float64(m-1)*ss) / float64(total)
	half := tQuantile(1-(1-level)/2, m-1) * se
	i := bounded(delta, delta-half, delta+half, level, method, m)
	if r, large := Lag1(perToken(d, base)); large {
		i = i.warn("neighbouring chunks are correlated (lag 1: %.2f), so the interval is not exact", r)
	}
	return i, nil
}

// NLLDifferenceHL is the Hodges-Lehmann estimate of the chunks' differences of mean nll a token with the signed-rank
// interval, for few chunks. It weighs all chunks alike.
func NLLDifferenceHL(treated, base []Chunk, level float64) (Interval, error) {
	d, _, err := chunkDifferences(treated, base)
	if err != nil {
		return Interval{}, err
	}
	i := HodgesLehmann(perToken(d, base), level)
	i.Method = "Hodges-Lehmann over chunks, signed rank"
	return i, nil
}

func chunkDifferences(treated, base []Chunk) (d []float64, total int, err error) {
	if len(treated) != len(base) || len(base) == 0 {
		return nil, 0, fmt.Errorf("%d and %d chunks do not pair", len(treated), len(base))
	}
	for k := range base {
		if treated[k].Tokens != base[k].Tokens || base[k].Tokens < 1 {
			return nil, 0, fmt.Errorf("chunk %d: %d and %d tokens do not pair", k+1, treated[k].Tokens, base[k].Tokens)
		}
		d = append(d, treated[k].NLL-base[k].NLL)
		total += base[k].Tokens
	}
	return d, total, nil
}

func perToken(sums []float64, chunks []Chunk) []float64 {
	out := make([]float64, len(sums))
	for k, s := range sums {
		out[k] = s / float64(chunks[k].Tokens)
	}
	return out
}

// MeanNLL is the mean nll a token with an interval over chunks, as NLLDifference against nothing.
func MeanNLL(chunks []Chunk, level float64) (Interval, error) {
	zero := make([]Chunk, len(chunks))
	for k, c := range chunks {
		zero[k].Tokens = c.Tokens
	}
	i, err := NLLDifference(chunks, zero, level)
	i.Method = "t over chunks"
	return i, err
}
