// Package stat is the statistics of interleaved comparisons and of task accuracy, as pure functions on slices: no
// input is reordered, nothing is drawn at random, nothing is read from outside. What each function assumes and where
// its formula comes from stands with it; docs/statistics.md says which one answers which question.
//
// It will not choose between methods, correct for many comparisons or call a difference important: that is for the
// caller. Plain descriptive numbers (mean, median, standard deviation) come from montanaflynn/stats, quantiles of
// distributions from gonum.
package stat

import (
	"encoding/json"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is an estimate with a confidence interval, or without one where the data do not determine any.
type Interval struct {
	Est      float64
	Lo, Hi   float64 // both equal to Est when Bounded is false
	Bounded  bool    // whether there is an interval
	Level    float64 // nominal coverage, 0.95
	Method   string
	N        int // independent observations: blocks, chunks, tasks
	Warnings []string
}

// Contains tells whether v lies in the interval, ends included. Without an interval nothing is excluded.
func (i Interval) Contains(v float64) bool { return !i.Bounded || i.Lo <= v && v <= i.Hi }

func (i Interval) warn(format string, args ...any) Interval {
	i.Warnings = append(i.Warnings, fmt.Sprintf(format, args...))
	return i
}

// mapped applies a rising function to estimate and ends.
func (i Interval) mapped(f func(float64) float64) Interval {
	i.Est, i.Lo, i.Hi = f(i.Est), f(i.Lo), f(i.Hi)
	return i.representable()
}

// representable takes away an interval whose ends are beyond what a number can be: it excludes next to nothing, and JSON cannot
// write it.
func (i Interval) representable() Interval {
	if width := i.Hi - i.Lo; !math.IsInf(width, 0) && !math.IsNaN(width) {
		return i
	}
	return unbounded(i.Est, i.Level, i.Method, i.N).warn("the interval has no end that could be written")
}

// Exp is the interval of exp(x), for x on a log scale.
func (i Interval) Exp() Interval { return i.mapped(math.Exp) }

// Sqrt is the interval of the root of x; what lies below 0 counts as 0.
func (i Interval) Sqrt() Interval {
	return i.mapped(func(x float64) float64 { return math.Sqrt(max(x, 0)) })
}

// unbounded is an estimate alone.
func unbounded(est, level float64, method string, n int) Interval {
	return Interval{Est: est, Lo: est, Hi: est, Level: level, Method: method, N: n}
}

func bounded(est, lo, hi, level float64, method string, n int) Interval {
	return Interval{Est: est, Lo: lo, Hi: hi, Bounded: true, Level: level, Method: method, N: n}.representable()
}

type intervalJSON struct {
	Est      float64  `json:"est"`
	Lo       *float64 `json:"lo,omitempty"`
	Hi       *float64 `json:"hi,omitempty"`
	Level    float64  `json:"level,omitempty"`
	Method   string   `json:"method"`
	N        int      `json:"n"`
	Warnings []string `json:"warnings,omitempty"`
}

// MarshalJSON leaves out lo, hi and level where there is no interval.
func (i Interval) MarshalJSON() ([]byte, error) {
	j := intervalJSON{Est: i.Est, Method: i.Method, N: i.N, Warnings: i.Warnings}
	if i.Bounded {
		j.Lo, j.Hi, j.Level = &i.Lo, &i.Hi, i.Level
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (i *Interval) UnmarshalJSON(b []byte) error {
	var j intervalJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*i = unbounded(j.Est, j.Level, j.Method, j.N)
	i.Warnings = j.Warnings
	if j.Lo != nil && j.Hi != nil {
		i.Lo, i.Hi, i.Bounded = *j.Lo, *j.Hi, true
	}
	return nil
}

// tQuantile is the p-quantile of Student's t with df degrees of freedom.
func tQuantile(p float64, df int) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(df)}.Quantile(p)
}

// zQuantile is the p-quantile of the standard normal distribution.
func zQuantile(p float64) float64 { return distuv.UnitNormal.Quantile(p) }
