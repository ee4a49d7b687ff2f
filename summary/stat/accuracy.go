package stat

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/combin"
	"gonum.org/v1/gonum/stat/distuv"
)

// Wilson is the share of k in n with Wilson's score interval (Wilson 1927). It panics when k is not in 0..n or n is 0.
func Wilson(k, n int, level float64) Interval {
	if n < 1 || k < 0 || k > n {
		panic(fmt.Sprintf("stat: %d of %d is no share", k, n))
	}
	p, f, z := float64(k)/float64(n), float64(n), zQuantile(1-(1-level)/2)
	centre := (p + z*z/(2*f)) / (1 + z*z/f)
	half := z / (1 + z*z/f) * math.Sqrt(p*(1-p)/f+z*z/(4*f*f))
	lo, hi := max(centre-half, 0), min(centre+half, 1)
	// At the ends of the scale the limit is the share itself; rounding must not move it.
	if k == 0 {
		lo = 0
	}
	if k == n {
		hi = 1
	}
	return bounded(p, lo, hi, level, "Wilson", n)
}

// Paired counts the tasks that two settings answered: Both right, only the treated one (Won), only the base (Lost),
// None.
type Paired struct {
	Both, Won, Lost, None int
}

// N is the number of tasks.
func (c Paired) N() int { return c.Both + c.Won + c.Lost + c.None }

// CountPaired compares two lists of outcomes of the same tasks in the same order; it panics on different lengths.
func CountPaired(treated, base []bool) Paired {
	if len(treated) != len(base) {
		panic(fmt.Sprintf("stat: %d and %d outcomes do not pair", len(treated), len(base)))
	}
	var c Paired
	for i := range base {
		switch {
		case treated[i] && base[i]:
			c.Both++
		case treated[i]:
			c.Won++
		case base[i]:
			c.Lost++
		default:
			c.None++
		}
	}
	return c
}

// Newcombe is the difference of two accuracies on the same tasks, treated minus base, with the square-and-add interval
// from Wilson limits and a correlation term (Newcombe 1998, Statistics in Medicine 17:2635, method 10). It panics
// without tasks.
func Newcombe(c Paired, level float64) Interval {
	n := float64(c.N())
	t := Wilson(c.Both+c.Won, c.N(), level)
	b := Wilson(c.Both+c.Lost, c.N(), level)
	phi := c.phi()
	d := t.Est - b.Est
	below := func(x, y float64) float64 { return math.Sqrt(max(x*x-2*phi*x*y+y*y, 0)) }
	lo := d - below(t.Est-t.Lo, b.Hi-b.Est)
	hi := d + below(t.Hi-t.Est, b.Est-b.Lo)
	return bounded(d, max(lo, -1), min(hi, 1), level, "Newcombe paired", int(n))
}

// phi is the correlation of the two outcomes, its numerator corrected towards 0 where it is positive.
func (c Paired) phi() float64 {
	both, won, lost, none := float64(c.Both), float64(c.Won), float64(c.Lost), float64(c.None)
	margins := (both + won) * (lost + none) * (both + lost) * (won + none)
	if margins == 0 {
		return 0
	}
	num := both*none - won*lost
	if num > 0 {
		num = max(num-float64(c.N())/2, 0)
	}
	return num / math.Sqrt(margins)
}

// McNemar is the two-sided test that won and lost flips are equally likely: the exact p and the mid-p, which keeps the
// level without being as conservative (Fagerland, Lydersen and Laake 2013, BMC Medical Research Methodology 13:91).
// Both are 1 without flips.
func McNemar(won, lost int) (exact, midP float64) {
	n, least := won+lost, min(won, lost)
	if n == 0 {
		return 1, 1
	}
	b := distuv.Binomial{N: float64(n), P: 0.5}
	point := math.Exp(logBinomial(n, least))
	if won == lost {
		return 1, 1 - point/2
	}
	exact = min(1, 2*b.CDF(float64(least)))
	return exact, exact - point
}

// logBinomial is ln of C(n, k)/2^n.
func logBinomial(n, k int) float64 {
	return combin.LogGeneralizedBinomial(float64(n), float64(k)) - float64(n)*math.Ln2
}

// AccuracyRatio is the ratio of two accuracies on the same tasks, treated over base, with the Wald interval on the log
// scale: the variance of its logarithm is (won + lost)/(n_treated n_base), n the numbers answered right (Nam and
// Blackwelder 2002, Statistics in Medicine 21:689). Where one is 0 it is an error.
func AccuracyRatio(c Paired, level float64) (Interval, error) {
	t, b := float64(c.Both+c.Won), float64(c.Both+c.Lost)
	if t == 0 || b == 0 {
		return Interval{}, fmt.Errorf("%v of %d tasks against %v: no ratio", t, c.N(), b)
	}
	half := zQuantile(1-(1-level)/2) * math.Sqrt(float64(c.Won+c.Lost)/(t*b))
	l := math.Log(t / b)
	return bounded(t/b, math.Exp(l-half), math.Exp(l+half), level, "Wald on the log ratio of paired accuracies", c.N()), nil
}
