package stat

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// TwoSidedP is the p of Student's t test that a mean is zero, from its t interval (MeanT, ChunkDifference): below 1 minus the
// interval's level exactly where that excludes zero. ok is false where there is no interval.
func TwoSidedP(mean Interval) (p float64, ok bool) {
	if !mean.Bounded {
		return 0, false
	}
	half := (mean.Hi - mean.Lo) / 2
	switch {
	case mean.Est == 0:
		return 1, true
	case half == 0:
		return 0, true
	}
	df := mean.N - 1
	t := math.Abs(mean.Est) / half * tQuantile(1-(1-mean.Level)/2, df)
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(df)}.CDF(-t), true
}

// Holm adjusts the p values of one family of comparisons, in their order: those up to alpha may all be called differences
// with a chance of at most alpha that one of them is none, whatever depends on what. The i-th smallest of m, from 0, is
// multiplied by m-i, and none is below a smaller one's (Holm 1979, Scandinavian Journal of Statistics 6:65).
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case p[a] < p[b]:
			return -1
		case p[a] > p[b]:
			return 1
		}
		return 0
	})
	out, floor := make([]float64, len(p)), 0.0
	for rank, i := range order {
		floor = max(floor, min(1, float64(len(p)-rank)*p[i]))
		out[i] = floor
	}
	return out
}
