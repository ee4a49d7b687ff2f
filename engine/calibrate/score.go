package calibrate

import (
	"context"
	"fmt"
	"math"

	"attnbudget/engine/drop"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Score is what a mask does to one chunk of text, a mean over the chunk's scored tokens.
type Score struct {
	NLL float64 // what it adds to the negative log-likelihood of the undropped model, nats a token
	KL  float64 // Kullback-Leibler divergence of its predictions from the undropped model's, nats a token
}

// Measure scores masks on one chunk.
type Measure func(ctx context.Context, chunk int, masks []drop.Mask) ([]Score, error)

// Metric is the figure a search minimises.
type Metric string

// The metrics. NLL is what the quality budget is about. KL has a standard error several times smaller, because it compares
// whole distributions instead of what they say of one token, so that it tells masks apart on less text; but it counts
// every change of a prediction as harm.
const (
	NLL Metric = "nll"
	KL  Metric = "kl"
)

// ParseMetric reads the name of a metric.
func ParseMetric(s string) (Metric, error) {
	switch m := Metric(s); m {
	case NLL, KL:
		return m, nil
	}
	return "", fmt.Errorf("unknown metric %q: expected nll or kl", s)
}

func (m Metric) of(s Score) float64 {
	if m == KL {
		return s.KL
	}
	return s.NLL
}

func (m Metric) all(scores []Score) []float64 {
	out := make([]float64, len(scores))
	for i, s := range scores {
		out[i] = m.of(s)
	}
	return out
}

// Estimate is a mean over chunks. Chunks, not tokens, are the sample, because the tokens of a chunk are not independent.
type Estimate struct {
	Mean   float64 `json:"mean"`
	SE     float64 `json:"se"` // standard error; 0 of a single chunk, which says nothing of it
	Chunks int     `json:"chunks"`
}

func estimate(x []float64) Estimate {
	switch len(x) {
	case 0:
		return Estimate{}
	case 1:
		return Estimate{Mean: x[0], Chunks: 1}
	}
	mean, sd := stat.MeanStdDev(x, nil)
	return Estimate{Mean: mean, SE: sd / math.Sqrt(float64(len(x))), Chunks: len(x)}
}

// paired is the estimate of the mean of a-b over the chunks they have in common, the first min(len(a), len(b)).
func paired(a, b []float64) Estimate {
	d := make([]float64, min(len(a), len(b)))
	for i := range d {
		d[i] = a[i] - b[i]
	}
	return estimate(d)
}

// above reports whether the mean is positive at one-sided level alpha by Student's t. Without any spread the sign decides.
func (e Estimate) above(alpha float64) bool {
	switch {
	case e.Chunks < 2 || e.Mean <= 0:
		return false
	case e.SE == 0:
		return true
	}
	return e.Mean/e.SE > distuv.StudentsT{Sigma: 1, Nu: float64(e.Chunks - 1)}.Quantile(1-alpha)
}

// tied reports whether the mean cannot be told from zero: its two-sided 95% interval by Student's t holds zero.
func (e Estimate) tied() bool {
	return !e.above(0.025) && !Estimate{Mean: -e.Mean, SE: e.SE, Chunks: e.Chunks}.above(0.025)
}

// Damage is a mask's score over many chunks.
type Damage struct {
	NLL Estimate `json:"nll"`
	KL  Estimate `json:"kl"`
}

func damage(scores []Score) Damage {
	return Damage{NLL: estimate(NLL.all(scores)), KL: estimate(KL.all(scores))}
}
