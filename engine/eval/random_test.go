package eval

import (
	"slices"
	"testing"
)

func TestTwisterIsTheStandardOne(t *testing.T) {
	rng := newTwister()
	// The first draws of std::mt19937 with seed 1.
	for i, want := range []uint32{1791095845, 4282876139, 3093770124, 4005303368, 491263} {
		if got := rng.Uint32(); got != want {
			t.Errorf("draw %d is %d, want %d", i, got, want)
		}
	}
}

func TestDrawsAreDistinctAndComplete(t *testing.T) {
	for _, draw := range []func(n, count int) []int{drawInOrder, drawSwapping} {
		for _, n := range []int{1, 2, 400, 10042} {
			all := draw(n, n)
			if first := draw(n, min(n, 100)); !slices.Equal(first, all[:len(first)]) {
				t.Errorf("fewer of %d tasks are not the first ones", n)
			}
			slices.Sort(all)
			if !slices.Equal(all, identity(n)) {
				t.Errorf("drawing all of %d is no permutation", n)
			}
		}
	}
}

func TestUniformRejectsBiasedDraws(t *testing.T) {
	// With n = 3·2³⁰ one draw in four falls into the rejected range, so more draws are used than values made.
	rng, plain := newTwister(), newTwister()
	const n = 3 << 30
	for range 100 {
		if v := uniform(rng, n); v >= n {
			t.Fatalf("%d drawn below %d", v, uint32(n))
		}
	}
	for range 100 {
		plain.Uint32()
	}
	if rng.Uint32() == plain.Uint32() {
		t.Error("nothing was rejected")
	}
}
