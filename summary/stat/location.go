package stat

import (
	"math"
	"slices"

	"github.com/montanaflynn/stats"
	"gonum.org/v1/gonum/stat/distuv"
)

// meanSD returns mean and sample standard deviation of two or more values; sd is 0 for one. Equal values are their own mean:
// summed up and divided they may not be, and what is left over would look like a spread.
func meanSD(x []float64) (mean, sd float64) {
	if slices.Min(x) == slices.Max(x) {
		return x[0], 0
	}
	mean, _ = stats.Mean(x)
	if len(x) > 1 {
		sd, _ = stats.StandardDeviationSample(x)
	}
	return mean, sd
}

func mustHave(x []float64, what string) {
	if len(x) == 0 {
		panic("stat: " + what + " of no values")
	}
}

const tooFew = "one value: no interval"

// Median is the median of x with the distribution-free interval between two order statistics: the number of values
// below the median is Binomial(n, 1/2), so [x_(l), x_(n+1-l)] covers it with 1 - 2 P(B <= l-1). l is the largest that
// keeps the level; at 95 % that needs six values. It panics on an empty slice.
func Median(x []float64, level float64) Interval {
	mustHave(x, "median")
	const method = "median, order statistics"
	n := len(x)
	est, _ := stats.Median(x)
	b := distuv.Binomial{N: float64(n), P: 0.5}
	l := 0
	for l < n/2 && b.CDF(float64(l)) <= (1-level)/2 {
		l++
	}
	if l == 0 {
		return unbounded(est, level, method, n).warn("%d values: none of their order statistics give an interval of %g %%", n, 100*level)
	}
	s := slices.Sorted(slices.Values(x))
	return bounded(est, s[l-1], s[n-l], level, method, n)
}

// MeanT is the mean of x with Student's t interval: mean +- t sd/sqrt(n). It assumes that means of samples of this
// size are nearly normal. It panics on an empty slice.
func MeanT(x []float64, level float64) Interval {
	mustHave(x, "mean")
	const method = "mean, t"
	mean, sd := meanSD(x)
	n := len(x)
	if n < 2 {
		return unbounded(mean, level, method, n).warn(tooFew)
	}
	half := tQuantile(1-(1-level)/2, n-1) * sd / math.Sqrt(float64(n))
	i := bounded(mean, mean-half, mean+half, level, method, n)
	if sd == 0 {
		i = i.warn("all %d values are equal", n)
	}
	return i
}

// HodgesLehmann is the median of the Walsh averages (x_i + x_j)/2, i <= j, with the interval that inverts the exact
// Wilcoxon signed-rank test: the k-th smallest and k-th largest of them, k the largest with P(S+ <= k-1) <= alpha/2
// (Hollander and Wolfe, Nonparametric Statistical Methods, 3.2 and 3.3). It assumes symmetry about the location; at
// 95 % it needs six values. It panics on an empty slice.
func HodgesLehmann(x []float64, level float64) Interval {
	mustHave(x, "pseudomedian")
	const method = "Hodges-Lehmann, signed rank"
	n := len(x)
	w := walsh(x)
	est, _ := stats.Median(w)
	k := signedRankCritical(n, (1-level)/2)
	if k == 0 {
		return unbounded(est, level, method, n).warn("%d values: the signed-rank test cannot reach %g %%", n, 100*level)
	}
	return bounded(est, w[k-1], w[len(w)-k], level, method, n)
}

// walsh returns the n(n+1)/2 Walsh averages, ascending.
func walsh(x []float64) []float64 {
	w := make([]float64, 0, len(x)*(len(x)+1)/2)
	for i, a := range x {
		for _, b := range x[i:] {
			w = append(w, a/2+b/2)
		}
	}
	slices.Sort(w)
	return w
}

// signedRankCritical is the largest k with P(S+ <= k-1) <= tail for n untied values, 0 when there is none.
func signedRankCritical(n int, tail float64) int {
	f := signedRank(n)
	k, cdf := 0, 0.0
	for k < len(f)/2 && cdf+f[k] <= tail {
		cdf += f[k]
		k++
	}
	return k
}

// signedRank is the distribution of the signed-rank statistic S+ under symmetry, f[s] = P(S+ = s), by the recursion
// f_i(s) = (f_{i-1}(s) + f_{i-1}(s-i))/2: the i-th rank is positive or not with equal chance.
func signedRank(n int) []float64 {
	f := make([]float64, n*(n+1)/2+1)
	f[0] = 1
	top := 0
	for i := 1; i <= n; i++ {
		top += i
		for s := top; s >= 0; s-- {
			v := f[s]
			if s >= i {
				v += f[s-i]
			}
			f[s] = v / 2
		}
	}
	return f
}

// Lag1 is the first autocorrelation of x in its order, and whether it exceeds 2/sqrt(n), the band inside which
// independent values stay 95 % of the time. Constant or fewer than three values have none.
func Lag1(x []float64) (r float64, large bool) {
	n := len(x)
	if n < 3 {
		return 0, false
	}
	mean, _ := meanSD(x)
	var num, den float64
	for i, v := range x {
		den += (v - mean) * (v - mean)
		if i > 0 {
			num += (v - mean) * (x[i-1] - mean)
		}
	}
	if den == 0 {
		return 0, false
	}
	r = num / den
	return r, math.Abs(r) > 2/math.Sqrt(float64(n))
}
