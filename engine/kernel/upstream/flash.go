package upstream

import "math"

// Running is a softmax over scores that come one after another or a few at a time: the greatest so far, and the sum of
// e^(score - greatest). Whenever the greatest changes, what was summed before is scaled to it.
type Running struct{ Top, Sum float32 }

// Nothing is the softmax of no scores.
var Nothing = Running{Top: float32(math.Inf(-1))}

// Raise takes a score above Top and returns the factor for what was summed before; the weight of the score itself is 1. The
// sum is fused as by GCC 12, with which the conformance data was made; GCC 11, which made upstream's release, does not fuse it.
func (r *Running) Raise(score float32) (old float32) {
	old = ScalarExp(r.Top - score)
	r.Top, r.Sum = score, fma(r.Sum, old, 1)
	return old
}

// AddEach adds the weights of scores that are not above Top, one after the other.
func (r *Running) AddEach(weights []float32) {
	sum := r.Sum
	for _, w := range weights {
		sum += w
	}
	r.Sum = sum
}

// RaiseTo makes a greater score, of those whose weights Add is to add, the greatest.
func (r *Running) RaiseTo(top float32) (old float32) {
	old = ScalarExp(r.Top - top)
	r.Top, r.Sum = top, r.Sum*old
	return old
}

// Add adds a sum of weights.
func (r *Running) Add(weights float64) { r.Sum = float32(float64(r.Sum) + weights) }

// Join adds the scores of another softmax. old and new are the factors for what was summed in r and in the other.
func (r *Running) Join(other Running) (old, new float32) {
	top := max(r.Top, other.Top)
	old, new = ScalarExp(r.Top-top), ScalarExp(other.Top-top)
	r.Top, r.Sum = top, fma(r.Sum, old, other.Sum*new)
	return old, new
}

// Combine computes dst = dst*a + x*b; the first product is fused.
func Combine(dst, x []float32, a, b float32) {
	for i, v := range x {
		dst[i] = fma(dst[i], a, v*b)
	}
}

// MultiplyAdd computes c += a b for one row a [depth] and b [depth][len(c)], its rows stride apart.
func MultiplyAdd(c, a, b []float32, stride int) {
	for k, f := range a {
		AddScaled(c, b[k*stride:][:len(c)], f)
	}
}
