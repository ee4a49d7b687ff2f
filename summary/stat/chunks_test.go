package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestChunkDifferenceHLIsThatOfTheMeansAToken(t *testing.T) {
	a := []Chunk{{10, 25}, {20, 44}, {40, 90}, {5, 9}, {100, 240}, {50, 130}, {8, 30}}
	b := []Chunk{{10, 20}, {20, 40}, {40, 80}, {5, 10}, {100, 200}, {50, 100}, {8, 16}}
	var d []float64
	for k := range a {
		d = append(d, (a[k].Sum-b[k].Sum)/float64(a[k].Tokens))
	}
	got, err := ChunkDifferenceHL(a, b, 0.95)
	want := HodgesLehmann(d, 0.95)
	if err != nil || !got.Bounded || got.Est != want.Est || got.Lo != want.Lo || got.Hi != want.Hi || got.N != 7 {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestCorrelatedChunksAreWarnedOf(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 1))
	noise := normals(r, 40)
	for name, c := range map[string]struct {
		difference func(k int) float64
		warned     bool
	}{
		"independent": {func(k int) float64 { return noise[k] }, false},
		"drifting":    {func(k int) float64 { return float64(k) / 10 }, true},
		"alternating": {func(k int) float64 { return float64(k % 2) }, true},
	} {
		var a, b []Chunk
		for k := range noise {
			a, b = append(a, Chunk{255, 800 + c.difference(k)}), append(b, Chunk{255, 800})
		}
		i, err := ChunkDifference(a, b, 0.95)
		if err != nil || (len(i.Warnings) == 1) != c.warned {
			t.Errorf("%s: warnings %q, %v", name, i.Warnings, err)
		}
	}
}

// Where nothing varies under the base, the difference of perplexities varies as much as the treated one, whose error by the
// delta method is perplexity times that of the mean nll.
func TestPerplexityDifferenceFromAConstantHasTheErrorOfOnePerplexity(t *testing.T) {
	treated, base := []Chunk{{10, 31}, {20, 70}, {40, 112}, {30, 99}}, []Chunk{{10, 30}, {20, 60}, {40, 120}, {30, 90}}
	d, err := PerplexityDifference(treated, base, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	mean, err := ChunkMean(treated, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	ppl := math.Exp(mean.Est)
	near(t, "estimate", d.Est, ppl-math.Exp(3), 1e-12)
	near(t, "half-width", d.Hi-d.Est, ppl*(mean.Hi-mean.Est), 1e-9)
}

func TestDesignEffectIsTheRatioOfVariances(t *testing.T) {
	// Means a token of 3, 4 and 5: their standard deviation is 1 and the error of their mean 1/√3.
	got, ok := DesignEffect([]Chunk{{10, 30}, {10, 40}, {10, 50}}, 0.5)
	if !ok {
		t.Fatal("no design effect")
	}
	near(t, "design effect", got, (1.0/3)/0.25, 1e-9)
	for name, c := range map[string]struct {
		chunks []Chunk
		err    float64
	}{"one chunk": {[]Chunk{{10, 30}}, 0.5}, "no error": {[]Chunk{{10, 30}, {10, 40}}, 0}, "equal chunks": {[]Chunk{{10, 30}, {10, 30}}, 0.5}} {
		if got, ok := DesignEffect(c.chunks, c.err); ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The variance of ln(p1/p2) by the delta method on the multinomial counts: that of each share alone less twice their covariance.
func TestAccuracyRatioHasTheErrorOfTheDeltaMethod(t *testing.T) {
	c := Paired{Both: 60, Won: 5, Lost: 10, None: 25}
	i, err := AccuracyRatio(c, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	n, p1, p2, both := 100.0, 0.65, 0.70, 0.60
	variance := ((1-p1)/p1 + (1-p2)/p2 - 2*(both-p1*p2)/(p1*p2)) / n
	near(t, "half-width of the logarithm", math.Log(i.Hi/i.Est), 1.959963984540054*math.Sqrt(variance), 1e-12)
}
