package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestHolmReproducesAWorkedExample(t *testing.T) {
	// Four hypotheses at 0.01, 0.04, 0.03, 0.005: the first and the last are rejected at 5 %, the others are not.
	got := Holm([]float64{0.01, 0.04, 0.03, 0.005})
	for i, want := range []float64{0.03, 0.06, 0.06, 0.02} {
		near(t, "adjusted", got[i], want, 1e-15)
	}
	if Holm(nil) == nil || len(Holm(nil)) != 0 {
		t.Error("no comparisons have no adjusted p")
	}
}

func TestHolmLiesBetweenThePAndBonferroniAndKeepsTheOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		p := make([]float64, 1+r.IntN(12))
		for i := range p {
			p[i] = math.Pow(r.Float64(), 3)
			if i > 0 && r.IntN(4) == 0 {
				p[i] = p[i-1]
			}
		}
		before := slices.Clone(p)
		got := Holm(p)
		if !slices.Equal(p, before) {
			t.Fatal("the input was changed")
		}
		for i := range p {
			if got[i] < p[i] || got[i] > min(1, float64(len(p))*p[i]) {
				t.Fatalf("%v becomes %v", p, got)
			}
			for j := range p {
				if p[i] < p[j] && got[i] > got[j] || p[i] == p[j] && got[i] != got[j] {
					t.Fatalf("%v becomes %v: the order is lost", p, got)
				}
			}
		}
		if least := slices.Min(p); slices.Min(got) != min(1, float64(len(p))*least) {
			t.Fatalf("%v becomes %v: the smallest is multiplied by all", p, got)
		}
		turn := r.Perm(len(p))
		shuffled := make([]float64, len(p))
		for i, j := range turn {
			shuffled[i] = p[j]
		}
		for i, v := range Holm(shuffled) {
			if v != got[turn[i]] {
				t.Fatalf("%v: the result depends on the order", p)
			}
		}
	}
}

func TestHolmKeepsTheFamilywiseLevel(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	const runs, comparisons = 3000, 10
	wrong := 0
	for range runs {
		p := make([]float64, comparisons)
		for i := range p {
			p[i], _ = TwoSidedP(MeanT(normals(r, 6), 0.95))
		}
		if slices.Min(Holm(p)) <= 0.05 {
			wrong++
		}
	}
	share := float64(wrong) / runs
	near(t, "share of families with a false difference", share, 0.049, 4*math.Sqrt(0.05*0.95/runs))
}

func TestTwoSidedPIsThatOfTheInterval(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for n := 2; n < 30; n++ {
		x := normals(r, n)
		for i := range x {
			x[i] += 0.7
		}
		i := MeanT(x, 0.95)
		p, ok := TwoSidedP(i)
		if !ok || p < 0 || p > 1 || (p < 0.05) == i.Contains(0) {
			t.Errorf("n = %d: p = %v, interval [%v, %v]", n, p, i.Lo, i.Hi)
		}
		wide, _ := TwoSidedP(MeanT(x, 0.5))
		near(t, "p from another level", wide, p, 1e-9)
	}
	// Student's t of 2.571 with five degrees of freedom has a tail of 2.5 % on each side.
	p, _ := TwoSidedP(bounded(2.571, 2.571-tQuantile(0.975, 5), 2.571+tQuantile(0.975, 5), 0.95, "", 6))
	near(t, "p of a tabulated t", p, 0.05, 1e-4)
}

func TestTwoSidedPOfTheExtremes(t *testing.T) {
	if _, ok := TwoSidedP(MeanT([]float64{3}, 0.95)); ok {
		t.Error("one value has a p")
	}
	if p, ok := TwoSidedP(MeanT([]float64{0, 0, 0}, 0.95)); !ok || p != 1 {
		t.Errorf("no difference at all: %v", p)
	}
	if p, ok := TwoSidedP(MeanT([]float64{2, 2, 2}, 0.95)); !ok || p != 0 {
		t.Errorf("the same difference every time: %v", p)
	}
}
