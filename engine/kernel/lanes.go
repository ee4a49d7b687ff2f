package kernel

// lanes is the number of partial sums that elementwise loops keep, and of elements that their vectors hold.
const lanes = 16

// fold adds sixteen partial sums: upper half to lower half until one is left.
func fold(sum *[lanes]float32) float32 {
	for n := lanes / 2; n > 0; n /= 2 {
		for l := range n {
			sum[l] += sum[l+n]
		}
	}
	return sum[0]
}
