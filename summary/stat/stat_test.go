package stat

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

func near(t *testing.T, what string, got, want, slack float64) {
	t.Helper()
	if !(math.Abs(got-want) <= slack) {
		t.Errorf("%s = %v, want %v within %v", what, got, want, slack)
	}
}

func normals(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

func TestSignedRankCriticalValuesArePublished(t *testing.T) {
	// Two-sided 95 %: none below six values, then the values tabulated in docs/statistics.md.
	for n, want := range map[int]int{1: 0, 5: 0, 6: 1, 8: 4, 10: 9, 20: 53, 40: 265} {
		if got := signedRankCritical(n, 0.025); got != want {
			t.Errorf("n = %d: k = %d, want %d", n, got, want)
		}
	}
}

func TestALevelThatTheTestReachesExactlyIsReached(t *testing.T) {
	// Of two values P(S+ = 0) is 1/4.
	if got := signedRankCritical(2, 0.25); got != 1 {
		t.Errorf("k = %d, want 1", got)
	}
	if i := Median([]float64{1, 2}, 0.5); !i.Bounded || i.Lo != 1 || i.Hi != 2 {
		t.Errorf("the median of two values lies between them half of the time: %+v", i)
	}
}

func TestSignedRankDistributionAgreesWithEnumeration(t *testing.T) {
	for n := range 13 {
		want := make([]float64, n*(n+1)/2+1)
		for signs := range 1 << n {
			sum := 0
			for i := range n {
				if signs>>i&1 == 1 {
					sum += i + 1
				}
			}
			want[sum] += math.Ldexp(1, -n)
		}
		if got := signedRank(n); !slices.Equal(got, want) {
			t.Errorf("n = %d: %v, want %v", n, got, want)
		}
	}
}

// The depression scale of Hollander and Wolfe (1973), example 3.1: their pseudomedian of first minus second is 0.46
// and their 96 % interval (level 1 - 20/512) is [0.010, 0.786].
func TestHodgesLehmannReproducesHollanderAndWolfe(t *testing.T) {
	first := []float64{1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30}
	second := []float64{0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29}
	d := make([]float64, len(first))
	for i := range d {
		d[i] = first[i] - second[i]
	}
	i := HodgesLehmann(d, 0.95)
	near(t, "estimate", i.Est, 0.46, 1e-9)
	near(t, "lower", i.Lo, 0.010, 1e-9)
	near(t, "upper", i.Hi, 0.786, 1e-9)
}

func TestHodgesLehmannIntervalIsThatOfTheInvertedTest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for n := 6; n <= 12; n++ {
		x := normals(r, n)
		i := HodgesLehmann(x, 0.95)
		// Just inside an end the exact test accepts, just outside it rejects.
		for _, c := range []struct {
			at     float64
			accept bool
		}{{i.Lo + 1e-9, true}, {i.Lo - 1e-9, false}, {i.Hi - 1e-9, true}, {i.Hi + 1e-9, false}} {
			if p := signedRankP(x, c.at); (p > 0.05) != c.accept {
				t.Errorf("n = %d: p = %v at %v, interval [%v, %v]", n, p, c.at, i.Lo, i.Hi)
			}
		}
	}
}

// signedRankP is the exact two-sided p of location mu by enumeration of signs.
func signedRankP(x []float64, mu float64) float64 {
	d := make([]float64, len(x))
	for i, v := range x {
		d[i] = v - mu
	}
	order := make([]int, len(d))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if math.Abs(d[a]) < math.Abs(d[b]) {
			return -1
		}
		return 1
	})
	s := 0
	for rank, i := range order {
		if d[i] > 0 {
			s += rank + 1
		}
	}
	f := signedRank(len(x))
	low, high := 0.0, 0.0
	for v, p := range f {
		if v <= s {
			low += p
		}
		if v >= s {
			high += p
		}
	}
	return min(1, 2*min(low, high))
}

// Limits published by Newcombe (1998), Statistics in Medicine 17:857, table I, method 3.
func TestWilsonReproducesNewcombe(t *testing.T) {
	for _, c := range []struct {
		k, n   int
		lo, hi float64
	}{{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718}} {
		i := Wilson(c.k, c.n, 0.95)
		near(t, "lower", i.Lo, c.lo, 0.00005)
		near(t, "upper", i.Hi, c.hi, 0.00005)
	}
}

// Airway hyper-responsiveness before and after stem cell transplantation (Bentur et al. 2009), a standard example of
// paired proportions: 1 child both times, 1 only before, 7 only after, 12 never.
func TestNewcombeReproducesAPublishedExample(t *testing.T) {
	i := Newcombe(Paired{Both: 1, Won: 1, Lost: 7, None: 12}, 0.95)
	near(t, "difference", i.Est, -0.286, 0.0005)
	near(t, "lower", i.Lo, -0.507, 0.0005)
	near(t, "upper", i.Hi, -0.026, 0.0005)
}

func TestNewcombeWithoutFlipsHoldsZero(t *testing.T) {
	for both := range 11 {
		i := Newcombe(Paired{Both: both, None: 10 - both}, 0.95)
		if i.Est != 0 || i.Lo > 0 || i.Hi < 0 {
			t.Errorf("%d of 10: %+v", both, i)
		}
	}
}

func TestMcNemarReproducesPublishedValues(t *testing.T) {
	for _, c := range []struct {
		won, lost   int
		exact, midP float64
		slack       float64
	}{{5, 1, 0.219, 0.125, 0.0005}, {12, 4, 0.077, 0.049, 0.0005}, {115, 85, 0.0400, 0.0341, 0.00005}, {0, 0, 1, 1, 0}, {3, 3, 1, 1 - 20.0/128, 1e-12}} {
		for _, flip := range []bool{false, true} {
			won, lost := c.won, c.lost
			if flip {
				won, lost = lost, won
			}
			exact, midP := McNemar(won, lost)
			near(t, "exact", exact, c.exact, c.slack)
			near(t, "mid-p", midP, c.midP, c.slack)
		}
	}
}

func TestMcNemarAgreesWithEnumeration(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for won := range n + 1 {
			least := min(won, n-won)
			point, tail := 0.0, 0.0
			for s := range 1 << n {
				ones := 0
				for i := range n {
					ones += s >> i & 1
				}
				if ones == least {
					point += math.Ldexp(1, -n)
				}
				if ones <= least {
					tail += math.Ldexp(1, -n)
				}
			}
			exact, midP := McNemar(won, n-won)
			wantExact, wantMid := min(1, 2*tail), min(1, 2*tail)-point
			if 2*won == n {
				wantExact, wantMid = 1, 1-point/2
			}
			near(t, "exact", exact, wantExact, 1e-9)
			near(t, "mid-p", midP, wantMid, 1e-9)
		}
	}
}

func TestDetectableRatioReproducesPublishedFactors(t *testing.T) {
	// (t_0.975 + t_0.80)/sqrt(n) for a standard deviation of 1.
	for n, want := range map[int]float64{5: 1.66, 6: 1.42, 8: 1.15, 10: 0.99, 20: 0.66, 30: 0.53} {
		x := standardised(n)
		got, ok := DetectableRatio(x, 0.95, 0.80)
		if !ok {
			t.Fatal("no detectable ratio")
		}
		near(t, "factor", math.Log(got), want, 0.006)
	}
	if _, ok := DetectableRatio([]float64{1}, 0.95, 0.8); ok {
		t.Error("one pair has a spread")
	}
}

// standardised returns n values of mean 0 and sample standard deviation 1.
func standardised(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(i)
	}
	mean, sd := meanSD(x)
	for i := range x {
		x[i] = (x[i] - mean) / sd
	}
	return x
}

func TestMedianIntervalHasItsLevel(t *testing.T) {
	b := func(n int) distuv.Binomial { return distuv.Binomial{N: float64(n), P: 0.5} }
	for n := 1; n <= 60; n++ {
		x := make([]float64, n)
		for i := range x {
			x[n-1-i] = float64(i + 1) // value = its rank
		}
		i := Median(x, 0.95)
		if i.Bounded != (n >= 6) {
			t.Fatalf("n = %d: bounded %v", n, i.Bounded)
		}
		if !i.Bounded {
			continue
		}
		l := i.Lo
		if i.Hi != float64(n)+1-l {
			t.Errorf("n = %d: [%v, %v] is not symmetric", n, i.Lo, i.Hi)
		}
		if cover := 1 - 2*b(n).CDF(l-1); cover < 0.95 {
			t.Errorf("n = %d: covers %v", n, cover)
		}
		if tighter := 1 - 2*b(n).CDF(l); tighter >= 0.95 {
			t.Errorf("n = %d: a tighter interval would cover %v", n, tighter)
		}
	}
}

func TestFewValuesGiveAnEstimateAWarningAndNoNaN(t *testing.T) {
	one := []float64{3}
	nll, err := ChunkDifference([]Chunk{{10, 12}}, []Chunk{{10, 11}}, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	for name, i := range map[string]Interval{
		"median": Median(one, 0.95), "mean": MeanT(one, 0.95), "HL": HodgesLehmann(one, 0.95),
		"ratio": RatioT([]float64{0}, 0.95), "ratio HL": RatioHL([]float64{0, 0.1}, 0.95), "nll": nll,
	} {
		if i.Bounded || len(i.Warnings) == 0 {
			t.Errorf("%s: bounded %v, warnings %q", name, i.Bounded, i.Warnings)
		}
		b, err := json.Marshal(i)
		if err != nil || strings.Contains(string(b), `"lo"`) {
			t.Errorf("%s: %s, %v", name, b, err)
		}
		var back Interval
		if err := json.Unmarshal(b, &back); err != nil || back.Est != i.Est || back.Bounded {
			t.Errorf("%s does not come back: %+v, %v", name, back, err)
		}
	}
}

func TestIntervalsComeBackFromJSON(t *testing.T) {
	want := MeanT([]float64{1, 2, 4}, 0.95)
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Interval
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Est != want.Est || got.Lo != want.Lo || got.Hi != want.Hi || !got.Bounded || got.N != 3 {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestNoFunctionReordersItsInput(t *testing.T) {
	x := []float64{3, 1, 2, 9, 7, 8, 4}
	want := slices.Clone(x)
	Median(x, 0.95)
	MeanT(x, 0.95)
	HodgesLehmann(x, 0.95)
	Lag1(x)
	if !slices.Equal(x, want) {
		t.Errorf("input is now %v", x)
	}
}

func TestRatiosFollowUnits(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	a, b := make([]float64, 9), make([]float64, 9)
	for i := range a {
		a[i], b[i] = math.Exp(r.NormFloat64()/50)*130, math.Exp(r.NormFloat64()/50)*100
	}
	d, err := LogRatios(a, b)
	if err != nil {
		t.Fatal(err)
	}
	inverse, err := LogRatios(b, a)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func([]float64, float64) Interval{"t": RatioT, "HL": RatioHL} {
		i, j := f(d, 0.95), f(inverse, 0.95)
		near(t, name+" estimate", i.Est*j.Est, 1, 1e-12)
		near(t, name+" ends", i.Lo*j.Hi, 1, 1e-12)
		if !(i.Lo < i.Est && i.Est < i.Hi && i.Lo > 1) {
			t.Errorf("%s: %+v", name, i)
		}
	}
	if _, err := LogRatios([]float64{1, 0}, []float64{1, 1}); err == nil {
		t.Error("the log ratio of 0 is no error")
	}
}

// Identical arms must look different in about one comparison of twenty, and a true ratio must be covered in about
// nineteen of twenty.
func TestIntervalsCoverAtTheirLevel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	const runs = 3000
	for _, n := range []int{5, 10, 20} {
		tIn, hlIn := 0, 0
		for range runs {
			d := normals(r, n)
			for i := range d {
				d[i] = 0.05 + 0.02*d[i]
			}
			if RatioT(d, 0.95).Contains(math.Exp(0.05)) {
				tIn++
			}
			if RatioHL(d, 0.95).Contains(math.Exp(0.05)) {
				hlIn++
			}
		}
		// Three standard errors of a share of 0.95 in 3000 are 0.012; the exact test is discrete and may cover more.
		near(t, "t coverage", float64(tIn)/runs, 0.95, 0.013)
		if share := float64(hlIn) / runs; n >= 6 && (share < 0.938 || share > 0.975) {
			t.Errorf("n = %d: signed rank covers %v", n, share)
		}
	}
}

func TestChunkDifferenceOfEqualChunksIsThePairedT(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var a, b []Chunk
	var d []float64
	for range 30 {
		base, diff := 900+50*r.NormFloat64(), 2+r.NormFloat64()
		a, b, d = append(a, Chunk{255, base + diff}), append(b, Chunk{255, base}), append(d, diff/255)
	}
	got, err := ChunkDifference(a, b, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	want := MeanT(d, 0.95)
	near(t, "estimate", got.Est, want.Est, 1e-12)
	near(t, "lower", got.Lo, want.Lo, 1e-12)
	near(t, "upper", got.Hi, want.Hi, 1e-12)
	// Pairing must be worth what the spread of documents costs.
	alone, err := ChunkMean(b, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	if alone.Hi-alone.Lo < 20*(got.Hi-got.Lo) {
		t.Errorf("unpaired width %v, paired %v", alone.Hi-alone.Lo, got.Hi-got.Lo)
	}
}

func TestChunkDifferenceWeighsChunksByTokens(t *testing.T) {
	got, err := ChunkDifference([]Chunk{{100, 110}, {300, 330}}, []Chunk{{100, 100}, {300, 300}}, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "estimate", got.Est, 0.1, 1e-12)
	near(t, "width", got.Hi-got.Lo, 0, 1e-9)
}

func TestUnpairedChunksAreRefused(t *testing.T) {
	for _, c := range [][2][]Chunk{
		{{{10, 1}}, {{10, 1}, {10, 1}}},
		{{{10, 1}}, {{11, 1}}},
		{{}, {}},
		{{{0, 0}}, {{0, 0}}},
	} {
		if i, err := ChunkDifference(c[0], c[1], 0.95); err == nil {
			t.Errorf("%v and %v pair to %+v", c[0], c[1], i)
		}
	}
}

func TestLag1FindsDrift(t *testing.T) {
	if got, large := Lag1([]float64{1, 2, 3, 4, 5}); got != 0.4 || large { // 4 over 10
		t.Errorf("lag 1 of 1 to 5: %v, %v", got, large)
	}
	if got, large := Lag1([]float64{1, -1, 1, -1, 1, -1}); math.Abs(got+5.0/6) > 1e-15 || !large {
		t.Errorf("lag 1 of an alternation: %v, %v", got, large)
	}
	r := rand.New(rand.NewPCG(5, 5))
	x := normals(r, 200)
	if _, large := Lag1(x); large {
		t.Error("independent values look correlated")
	}
	for i := 1; i < len(x); i++ {
		x[i] += 0.9 * x[i-1]
	}
	if got, large := Lag1(x); !large || got < 0.7 {
		t.Errorf("lag 1 of an AR(0.9) series: %v, %v", got, large)
	}
	for _, v := range []float64{2, 0.1} { // ten times 0.1, summed up, is not 1
		constant := slices.Repeat([]float64{v}, 10)
		if got, large := Lag1(constant); got != 0 || large {
			t.Errorf("lag 1 of a constant %v: %v, %v", v, got, large)
		}
		if i := MeanT(constant, 0.95); i.Est != v || i.Lo != v || i.Hi != v || len(i.Warnings) != 1 {
			t.Errorf("mean of a constant %v: %+v", v, i)
		}
	}
}

func TestCountPairedCountsEveryKind(t *testing.T) {
	got := CountPaired([]bool{true, true, false, false, true}, []bool{true, false, true, false, true})
	if want := (Paired{Both: 2, Won: 1, Lost: 1, None: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestPerplexityDifferenceMatchesASmallDisturbance(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	var a, b []Chunk
	for range 40 {
		base := 800 + 10*r.NormFloat64()
		a, b = append(a, Chunk{255, base + 1 + 0.3*r.NormFloat64()}), append(b, Chunk{255, base})
	}
	d, err := PerplexityDifference(a, b, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	nll, err := ChunkDifference(a, b, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	base, err := ChunkMean(b, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	ppl := math.Exp(base.Est)
	near(t, "estimate", d.Est, ppl*(math.Exp(nll.Est)-1), 1e-9)
	// For a disturbance that is alike in all chunks the difference is about ppl times that of the nll; the spread of
	// ppl itself adds little.
	near(t, "width", (d.Hi-d.Lo)/(ppl*(nll.Hi-nll.Lo)), 1, 0.15)
}

func TestAccuracyRatioIsItsOwnInverse(t *testing.T) {
	i, err := AccuracyRatio(Paired{Both: 60, Won: 5, Lost: 10, None: 25}, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	j, err := AccuracyRatio(Paired{Both: 60, Won: 10, Lost: 5, None: 25}, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "estimate", i.Est*j.Est, 1, 1e-12)
	near(t, "ends", i.Lo*j.Hi, 1, 1e-12)
	near(t, "estimate", i.Est, 65.0/70, 1e-12)
	if i, err := AccuracyRatio(Paired{Lost: 3, None: 2}, 0.95); err == nil {
		t.Errorf("0 over 3 is %+v", i)
	}
}

func TestDesignEffectOfIndependentTokensIsNearOne(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var chunks []Chunk
	n, sum, sum2 := 0, 0.0, 0.0
	for range 400 {
		c := Chunk{Tokens: 255}
		for range c.Tokens {
			v := r.ExpFloat64()
			c.Sum += v
			sum, sum2, n = sum+v, sum2+v*v, n+1
		}
		chunks = append(chunks, c)
	}
	mean := sum / float64(n)
	got, ok := DesignEffect(chunks, math.Sqrt((sum2/float64(n)-mean*mean)/float64(n-1)))
	if !ok {
		t.Fatal("no design effect")
	}
	near(t, "design effect", got, 1, 0.2)
}

// Two chunks of 20 and of 170 nats a token: the t interval of their mean reaches to e^1048.
func TestAnIntervalThatNoNumberEndsIsNone(t *testing.T) {
	far, near := []Chunk{{255, 255 * 20}, {255, 255 * 1390}}, []Chunk{{255, 255 * 20}, {255, 255 * 20}}
	mean, err := ChunkMean([]Chunk{{255, 255 * 20}, {255, 255 * 170}}, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	difference, err := PerplexityDifference(far, near, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	for name, i := range map[string]Interval{"exp": mean.Exp(), "difference": difference} {
		if _, err := json.Marshal(i); err != nil || i.Bounded || len(i.Warnings) != 1 || !i.Contains(i.Est) {
			t.Errorf("%s: %+v, %v", name, i, err)
		}
	}
	if !mean.Bounded {
		t.Errorf("on its own scale the interval ends: %+v", mean)
	}
}
