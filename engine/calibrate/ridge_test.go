package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// affine draws positions with y = A h + b + noise, A of the given rank, h correlated and with a mean.
func affine(rng *rand.Rand, n, embd, rank int, noise float64) (h, y []float64) {
	random := func(n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = rng.NormFloat64()
		}
		return out
	}
	u, d, mix, b := random(embd*rank), random(rank*embd), random(embd*embd), random(embd)
	for range n {
		raw, x, v := random(embd), make([]float64, embd), append([]float64{}, b...)
		for i := range embd {
			x[i] = b[embd-1-i]
			for j := range embd {
				x[i] += 0.3 * mix[i*embd+j] * raw[j]
			}
		}
		for k := range rank {
			low := 0.0
			for j := range embd {
				low += d[k*embd+j] * x[j]
			}
			for i := range embd {
				v[i] += u[i*rank+k] * low
			}
		}
		for i := range v {
			v[i] += noise * rng.NormFloat64()
		}
		h, y = append(h, x...), append(y, v...)
	}
	return h, y
}

func collected(h, y []float64, embd int) *moments {
	m := newMoments(embd, true)
	half := len(h) / embd / 2 * embd
	m.add(h[:half], y[:half])
	m.add(h[half:], y[half:])
	return m
}

// errorOf is the sum of squared errors, position by position.
func errorOf(f fit, h, y []float64, embd int) float64 {
	sum := 0.0
	for at := 0; at < len(h); at += embd {
		for i := range embd {
			v := f.b[i]
			if f.d != nil {
				r, _ := f.d.Dims()
				for k := range r {
					for j := range embd {
						v += f.u.At(i, k) * f.d.At(k, j) * h[at+j]
					}
				}
			}
			sum += (y[at+i] - v) * (y[at+i] - v)
		}
	}
	return sum
}

func TestRidgeFindsALinearMapOfItsRank(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const embd, rank = 12, 3
	h, y := affine(rng, 800, embd, rank, 0)
	m := collected(h, y, embd)
	f, err := m.ridge(rank, 1e-9)
	if err != nil {
		t.Fatal(err)
	}
	if share := errorOf(f, h, y, embd) / m.yy; share > 1e-6 {
		t.Errorf("%g of the output is left unexplained", share)
	}
	low, err := m.ridge(rank-1, 1e-9)
	if err != nil {
		t.Fatal(err)
	}
	if share := errorOf(low, h, y, embd) / m.yy; share < 1e-3 {
		t.Errorf("a smaller rank explains all but %g: the rank is not kept to", share)
	}
}

func TestResidualIsTheSumOfSquaredErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	const embd = 8
	h, y := affine(rng, 300, embd, 4, 0.5)
	m := collected(h, y, embd)
	other, theirs := affine(rng, 100, embd, 4, 0.5)
	unseen := collected(other, theirs, embd)
	for _, f := range []fit{m.constant(), must(m.ridge(2, 0.01))(t), must(m.ridge(embd, 1))(t)} {
		for _, on := range []struct {
			m    *moments
			h, y []float64
		}{{m, h, y}, {unseen, other, theirs}} {
			want := errorOf(f, on.h, on.y, embd)
			if got := on.m.residual(f); math.Abs(got-want) > 1e-8*on.m.yy {
				t.Errorf("residual %v, sum of squared errors %v", got, want)
			}
		}
	}
}

func must(f fit, err error) func(*testing.T) fit {
	return func(t *testing.T) fit {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// A ridge fit of full rank minimises squared error plus penalty: every change makes it worse.
func TestRidgeIsAMinimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	const embd, lambda = 6, 0.3
	h, y := affine(rng, 60, embd, 6, 1)
	m := collected(h, y, embd)
	f, err := m.ridge(embd, lambda)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := m.centred()
	trace := 0.0
	for i := range embd {
		trace += s.At(i, i)
	}
	loss := func(f fit) float64 {
		sum := 0.0
		for i := range embd {
			for j := range embd {
				w := 0.0
				for k := range embd {
					w += f.u.At(i, k) * f.d.At(k, j)
				}
				sum += w * w
			}
		}
		return errorOf(f, h, y, embd) + lambda*trace/embd*sum
	}
	best := loss(f)
	for range 50 {
		i, j := rng.IntN(embd), rng.IntN(embd)
		step := 0.01 * rng.NormFloat64()
		old := f.d.At(i, j)
		f.d.Set(i, j, old+step)
		f.b[i] += step
		if l := loss(f); l < best {
			t.Fatalf("a change of %g lowers the loss from %v to %v", step, best, l)
		}
		f.d.Set(i, j, old)
		f.b[i] -= step
	}
}

// Blocks that are added to a model to be trained begin with an output of zero.
func TestABranchThatGivesNothingIsReproducedByNothing(t *testing.T) {
	h, _ := affine(rand.New(rand.NewPCG(1, 1)), 60, 6, 2, 0)
	for _, linear := range []bool{false, true} {
		seen, unseen := newMoments(6, linear), newMoments(6, linear)
		seen.add(h, make([]float64, len(h)))
		unseen.add(h, make([]float64, len(h)))
		f, explained, err := best(seen, unseen, 2)
		if err != nil || explained != 1 {
			t.Errorf("linear %t: %v explained, %v", linear, explained, err)
		}
		for _, v := range f.surrogate().Bias {
			if v != 0 {
				t.Errorf("linear %t: constant %v", linear, v)
			}
		}
	}
}

func TestThePenaltyIsTheOneThatDoesBestOnWhatWasNotSeen(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 3))
		const embd, rank = 10, 2
		h, y := affine(rng, 40, embd, rank, 3)
		seen, unseen := collected(h[:25*embd], y[:25*embd], embd), collected(h[25*embd:], y[25*embd:], embd)
		want := math.Inf(-1)
		for _, l := range ridges {
			f := must(seen.ridge(rank, l))(t)
			want = max(want, 1-unseen.residual(f)/unseen.yy)
		}
		f, got, err := best(seen, unseen, rank)
		if err != nil || got != want {
			t.Errorf("seed %d: %v explained, %v; the best of the penalties explains %v", seed, got, err, want)
		}
		if all := collected(h, y, embd); !slices.ContainsFunc(ridges[:], func(l float64) bool {
			return math.Abs(all.residual(f)/all.residual(must(all.ridge(rank, l))(t))-1) < 1e-9
		}) {
			t.Errorf("seed %d: what is returned is not a fit of all positions", seed)
		}
	}
}

func TestTheFirstPositionOfEverySequenceIsNotFitted(t *testing.T) {
	f := &fitter{c: &calibration{Job: Job{Settings: Settings{NCtx: 4}}}}
	m := newMoments(1, false)
	f.add(m, []int{0, 1, 4, 7}, []float32{1, 10, 100, 1000}, []float32{2, 20, 200, 2000})
	if m.n != 2 || m.h[0] != 1010 || m.y[0] != 2020 {
		t.Errorf("%v positions, sums %v and %v; want those of tokens 1 and 7", m.n, m.h, m.y)
	}
}
