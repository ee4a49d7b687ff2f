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

// Chunk is something that every token of a text has, such as a negative log-likelihood, summed over the scored tokens of one
// window of the text.
type Chunk struct {
	Tokens int
	Sum    float64
}

// ChunkDifference is the difference of the mean a token of the same chunks under two settings, treated minus base, with
// an interval that takes chunks and not tokens as independent, because tokens of a chunk share a document. With D_k
// the difference summed over chunk k, T_k its tokens and delta = sum D / sum T, the error is that of a ratio
// estimator, sqrt(m/(m-1) sum (D_k - T_k delta)^2) / sum T, which for equal chunks is sd/sqrt(m); the interval uses
// Student's t with m-1 degrees of freedom. Chunks of different numbers of tokens under the two settings are an error.
func ChunkDifference(treated, base []Chunk, level float64) (Interval, error) {
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

// ChunkDifferenceHL is the Hodges-Lehmann estimate of the chunks' differences of the mean a token with the signed-rank
// interval, for few chunks. It weighs all chunks alike.
func ChunkDifferenceHL(treated, base []Chunk, level float64) (Interval, error) {
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
		d = append(d, treated[k].Sum-base[k].Sum)
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

// ChunkMean is the mean a token with an interval over chunks, as ChunkDifference against nothing.
func ChunkMean(chunks []Chunk, level float64) (Interval, error) {
	zero := make([]Chunk, len(chunks))
	for k, c := range chunks {
		zero[k].Tokens = c.Tokens
	}
	i, err := ChunkDifference(chunks, zero, level)
	i.Method = "t over chunks"
	return i, err
}

// PerplexityDifference is exp(mean nll) under treated minus under base, with an interval over chunks by the delta method.
func PerplexityDifference(treated, base []Chunk, level float64) (Interval, error) {
	return deltaDifference(treated, base, level, func(mean float64) (value, slope float64) { return math.Exp(mean), math.Exp(mean) })
}

// RMSDifference is the root of the mean square under treated minus under base, for chunks of squares, with an interval
// over chunks by the delta method.
func RMSDifference(treated, base []Chunk, level float64) (Interval, error) {
	return deltaDifference(treated, base, level, func(mean float64) (value, slope float64) {
		if mean == 0 {
			return 0, 0 // all squares are 0: there is nothing that could vary
		}
		return math.Sqrt(mean), 0.5 / math.Sqrt(mean)
	})
}

// deltaDifference is f(a) - f(b), a and b the means a token under treated and base: chunk k moves it by
// g_k = (f'(a) (A_k - T_k a) - f'(b) (B_k - T_k b)) / sum T, where A_k and B_k are its sums; the error is
// sqrt(m/(m-1) sum g_k^2). Pairing is kept, because g_k is taken within a chunk.
func deltaDifference(treated, base []Chunk, level float64, f func(mean float64) (value, slope float64)) (Interval, error) {
	const method = "delta method over chunks, t"
	_, total, err := chunkDifferences(treated, base)
	if err != nil {
		return Interval{}, err
	}
	a, b := meanToken(treated, total), meanToken(base, total)
	ft, slopeT := f(a)
	fb, slopeB := f(b)
	m := len(base)
	if m < 2 {
		return unbounded(ft-fb, level, method, m).warn("one chunk: no interval"), nil
	}
	ss := 0.0
	for k := range base {
		t := float64(base[k].Tokens)
		g := (slopeT*(treated[k].Sum-t*a) - slopeB*(base[k].Sum-t*b)) / float64(total)
		ss += g * g
	}
	half := tQuantile(1-(1-level)/2, m-1) * math.Sqrt(float64(m)/float64(m-1)*ss)
	return bounded(ft-fb, ft-fb-half, ft-fb+half, level, method, m), nil
}

func meanToken(chunks []Chunk, total int) float64 {
	sum := 0.0
	for _, c := range chunks {
		sum += c.Sum
	}
	return sum / float64(total)
}

// Exact is a number that no noise touches, as an interval of no width.
func Exact(v float64) Interval { return bounded(v, v, v, 1, "exact", 1) }

// DesignEffect is how many times wider the variance of the mean is over chunks than over tokens taken as
// independent, whose standard error is given. ok is false where either is 0 or there is one chunk.
func DesignEffect(chunks []Chunk, tokenError float64) (ratio float64, ok bool) {
	i, err := ChunkMean(chunks, 0.95)
	if err != nil || !i.Bounded || tokenError <= 0 {
		return 0, false
	}
	se := (i.Hi - i.Est) / tQuantile(0.975, i.N-1)
	return se * se / (tokenError * tokenError), se > 0
}
