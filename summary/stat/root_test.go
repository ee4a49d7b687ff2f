package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestRMSDifferenceMatchesASmallDisturbance(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 2))
	var a, b []Chunk
	for range 40 {
		square := 255 * (0.04 + 0.004*r.NormFloat64())
		a, b = append(a, Chunk{255, square + 255*(0.0002+0.0001*r.NormFloat64())}), append(b, Chunk{255, square})
	}
	d, err := RMSDifference(a, b, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	squares, err := ChunkDifference(a, b, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	base, err := ChunkMean(b, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	// For a small disturbance the root's difference is that of the squares over twice the root, and so is its error.
	root := base.Sqrt()
	near(t, "estimate", d.Est, squares.Est/(2*root.Est), 1e-5)
	near(t, "half-width", d.Hi-d.Est, (squares.Hi-squares.Est)/(2*root.Est), 1e-5)
	near(t, "lower end of the root", root.Lo, math.Sqrt(base.Lo), 1e-15)
	back, err := RMSDifference(b, a, 0.95)
	if err != nil || math.Abs(back.Est+d.Est) > 1e-15 || math.Abs(back.Lo+d.Hi) > 1e-15 {
		t.Errorf("the other way round: %+v, %v", back, err)
	}
	if zero, err := RMSDifference([]Chunk{{1, 0}, {1, 0}}, []Chunk{{1, 0}, {1, 0}}, 0.95); err != nil || zero.Est != 0 || zero.Lo != 0 || zero.Hi != 0 {
		t.Errorf("of zeros: %+v, %v", zero, err)
	}
	if below := (Interval{Est: 1, Lo: -1, Hi: 4}).Sqrt(); below.Lo != 0 || below.Hi != 2 {
		t.Errorf("below 0: %+v", below)
	}
}
