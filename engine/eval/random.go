package eval

import "gonum.org/v1/gonum/mathext/prng"

// newTwister is the generator that selects tasks upstream: std::mt19937 rng(1).
func newTwister() *prng.MT19937 {
	rng := prng.NewMT19937()
	rng.Seed(1)
	return rng
}

// uniform draws an integer from 0 to n-1 as libstdc++ does from GCC 11 on, for 32-bit generators: the high half of
// draw·n, redrawn where that would be biased (Lemire 2019, "Fast random integer generation in an interval").
func uniform(rng *prng.MT19937, n uint32) uint32 {
	product := uint64(rng.Uint32()) * uint64(n)
	if uint32(product) < n {
		threshold := -n % n // 2³² mod n
		for uint32(product) < threshold {
			product = uint64(rng.Uint32()) * uint64(n)
		}
	}
	return uint32(product >> 32)
}

// drawInOrder draws count of n tasks; a drawn one is taken out of the list and the rest close up. HellaSwag.
func drawInOrder(n, count int) []int {
	rng := newTwister()
	left := identity(n)
	out := make([]int, count)
	for i := range out {
		j := uniform(rng, uint32(len(left)))
		out[i] = left[j]
		left = append(left[:j], left[j+1:]...)
	}
	return out
}

// drawSwapping draws count of n tasks; the last of the list takes the place of a drawn one. Winogrande and multiple
// choice. The index is computed in float32, as upstream computes it.
func drawSwapping(n, count int) []int {
	rng := newTwister()
	left := identity(n)
	out := make([]int, count)
	const scale = float32(1.0 / (1 << 32))
	for i := range out {
		j := int(scale * float32(rng.Uint32()) * float32(len(left)))
		j = min(j, len(left)-1) // a draw that rounds up to 2³² would lie one behind the end
		out[i] = left[j]
		left[j] = left[len(left)-1]
		left = left[:len(left)-1]
	}
	return out
}

func identity(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}
