package quant

import "math"

// The searches for the scale (and minimum) of one group of elements. Each tries a row of scales around the obvious one, rounds
// the elements with it, solves the weighted least squares problem for the scale (and minimum) given those codes, and keeps
// the best. Sources: make_qx_quants, make_q3_quants and make_qkx2_quants of ggml-quants.c, without importance weights.

// negligible is the magnitude below which a group counts as all zeros.
const negligible = 1e-15

// fitScale finds the scale d for x ≈ d*q with q in [-half, half-1], each element weighted by its square (Q6_K). It returns the
// codes of the best trial too, as q + half.
func fitScale(x *[16]float32, half int) (scale float32, codes [16]uint8) {
	extreme := largest(x[:])
	if abs(extreme) < negligible {
		return 0, codes
	}
	bestInverse := float32(-half) / extreme
	sumXQ, sumQQ := scaleMoments(x, bestInverse, half)
	if sumQQ != 0 {
		scale = sumXQ / sumQQ
	}
	best := scale * sumXQ
	for step := -9; step <= 9; step++ {
		if step == 0 {
			continue
		}
		inverse := -mulAdd(0.1, float32(step), float32(half)) / extreme
		sumXQ, sumQQ = scaleMoments(x, inverse, half)
		if sumQQ > 0 && sumXQ*sumXQ > best*sumQQ {
			bestInverse = inverse
			scale = sumXQ / sumQQ
			best = scale * sumXQ
		}
	}
	for i, v := range x {
		codes[i] = uint8(clip(nearestProduct(bestInverse, v), -half, half-1) + half)
	}
	return scale, codes
}

// scaleMoments rounds x with the inverse scale and returns the sums of w*x*q and w*q*q, w = x².
func scaleMoments(x *[16]float32, inverse float32, half int) (sumXQ, sumQQ float32) {
	for _, v := range x {
		q := float32(clip(nearestProduct(inverse, v), -half, half-1))
		w := v * v
		sumXQ = mulAdd(w*v, q, sumXQ)
		sumQQ = mulAdd(w*q, q, sumQQ)
	}
	return sumXQ, sumQQ
}

// fitScaleByCode finds the scale for x ≈ d*q with q in [-half, half-1] by moving one code at a time to where it serves the
// weighted fit best, at most five times over the group (Q3_K). It returns the codes too, as q + half.
func fitScaleByCode(x *[16]float32, half int) (scale float32, codes [16]uint8) {
	extreme := largest(x[:])
	if abs(extreme) < negligible {
		return 0, codes
	}
	inverse := float32(-half) / extreme
	var signed [16]int
	var sumXQ, sumQQ float32
	for i, v := range x {
		signed[i] = clip(nearestProduct(inverse, v), -half, half-1)
		q, w := float32(signed[i]), v*v
		sumXQ = mulAdd(w*v, q, sumXQ)
		sumQQ = mulAdd(w*q, q, sumQQ)
	}
	for range 5 {
		changed := false
		for i, v := range x {
			q, w := float32(signed[i]), v*v
			restXQ := mulAdd(-(w * v), q, sumXQ)
			if !(restXQ > 0) {
				continue
			}
			restQQ := mulAdd(-(w * q), q, sumQQ)
			code := clip(nearest(v*restQQ/restXQ), -half, half-1)
			if code == signed[i] {
				continue
			}
			q = float32(code)
			restXQ = mulAdd(w*v, q, restXQ)
			restQQ = mulAdd(w*q, q, restQQ)
			if restQQ > 0 && restXQ*restXQ*sumQQ > sumXQ*sumXQ*restQQ {
				signed[i], sumXQ, sumQQ = code, restXQ, restQQ
				changed = true
			}
		}
		if !changed {
			break
		}
	}
	for i, q := range signed {
		codes[i] = uint8(q + half)
	}
	if sumQQ > 0 {
		scale = sumXQ / sumQQ
	}
	return scale, codes
}

// affineSearch is the row of scales that fitAffine tries: (most + first + i*step) codes over the group's range, i = 0..steps;
// absolute selects the absolute instead of the squared error as the measure of a trial.
type affineSearch struct {
	most        int
	first, step float32
	steps       int
	absolute    bool
}

// fitAffine finds scale and minimum for x ≈ scale*q - minimum with q in [0, most] and minimum ≥ 0, and returns them with the
// codes of the best trial (at most 32).
func fitAffine(x, weights []float32, s affineSearch) (scale, minimum float32, codes [32]uint8) {
	least, most, sumW, sumX := x[0], x[0], weights[0], weights[0]*x[0]
	for i, v := range x[1:] {
		if v < least {
			least = v
		}
		if v > most {
			most = v
		}
		sumW += weights[i+1]
		sumX = mulAdd(weights[i+1], v, sumX)
	}
	least = min(least, 0)
	if most == least {
		return 0, -least, codes
	}
	inverse := float32(s.most) / (most - least)
	scale = 1 / inverse
	for i, v := range x {
		codes[i] = uint8(clip(nearestProduct(inverse, v-least), 0, s.most))
	}
	bestError := s.misfit(x, weights, &codes, scale, least)
	low := least
	var trial [32]uint8
	for i := range s.steps + 1 {
		inverse = (mulAdd(s.step, float32(i), s.first) + float32(s.most)) / (most - low)
		var sumQ, sumQQ, sumXQ float32
		for i, v := range x {
			trial[i] = uint8(clip(nearestProduct(inverse, v-low), 0, s.most))
			q := float32(trial[i])
			wq := float32(weights[i] * q)
			sumQ += wq
			sumQQ = mulAdd(wq, q, sumQQ)
			sumXQ = mulAdd(wq, v, sumXQ)
		}
		determinant := mulAdd(sumW, sumQQ, -float32(sumQ*sumQ))
		if !(determinant > 0) { // also skips what is not a number
			continue
		}
		trialScale := mulAdd(sumW, sumXQ, -float32(sumX*sumQ)) / determinant
		trialLeast := mulAdd(sumQQ, sumX, -float32(sumQ*sumXQ)) / determinant
		if trialLeast > 0 {
			trialLeast = 0
			trialScale = sumXQ / sumQQ
		}
		if e := s.misfit(x, weights, &trial, trialScale, trialLeast); e < bestError {
			codes, bestError, scale, low = trial, e, trialScale, trialLeast
		}
	}
	return scale, -low, codes
}

// misfit is the weighted error of x against scale*codes + least.
func (s *affineSearch) misfit(x, weights []float32, codes *[32]uint8, scale, least float32) (sum float32) {
	for i, v := range x {
		e := mulAdd(scale, float32(codes[i]), least) - v
		if s.absolute {
			e = abs(e)
		} else {
			e *= e
		}
		sum = mulAdd(weights[i], e, sum)
	}
	return sum
}

// mulAdd is a*b + c in two roundings. The conversion keeps the compiler from fusing them on processors where it could.
func mulAdd(a, b, c float32) float32 { return float32(a*b) + c }

// roundingShift is 1.5 * 2^23: added to a float32 below 2^22 it leaves the number rounded to an integer, ties to even, in the
// low bits.
const roundingShift = 12582912

// nearest rounds |v| < 2^22 to the nearest integer, ties to even.
func nearest(v float32) int { return int(math.Float32bits(v+roundingShift)&0x7fffff) - 0x400000 }

// nearestProduct is nearest(a*b).
func nearestProduct(a, b float32) int {
	return int(math.Float32bits(mulAdd(a, b, roundingShift))&0x7fffff) - 0x400000
}

func clip(v, low, high int) int { return max(low, min(high, v)) }
