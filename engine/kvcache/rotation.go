package kvcache

import (
	"math"
	"os"

	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel"
)

// RotationDisable is the environment variable with which upstream, and so we, switch the rotation of quantised caches off.
const RotationDisable = "LLAMA_ATTN_ROT_DISABLE"

// RotationEnabled reports whether the environment leaves the rotation on. Any value of RotationDisable but 0 and the empty one
// switches it off.
func RotationEnabled() bool {
	v := os.Getenv(RotationDisable)
	return v == "" || v == "0"
}

// Rotation is the order of the Walsh-Hadamard matrix by which every head is multiplied before it is quantised, block by
// block, so that outliers spread over the block; 0 = none. The matrix is its own inverse, so a rotated query meets rotated
// keys unchanged, and the attention over rotated values is rotated back.
//
// Upstream rotates a quantised cache whose heads all have the same size, a multiple of 64: keys by the greatest power of two
// that divides the head size, values by 64.
type Rotation int

func keyRotation(t gguf.Type, layers []Layer) Rotation {
	dim := commonDim(layers, func(l Layer) int { return l.DimK })
	if !quantised(t) || dim == 0 || dim%64 != 0 {
		return 0
	}
	return Rotation(dim & -dim)
}

func valueRotation(t gguf.Type, layers []Layer) Rotation {
	dim := commonDim(layers, func(l Layer) int { return l.DimV })
	if !quantised(t) || dim == 0 || dim%64 != 0 {
		return 0
	}
	return 64
}

func quantised(t gguf.Type) bool { return t == gguf.Q8_0 || t == gguf.Q4_0 }

// commonDim is the head size all layers have, 0 when they differ.
func commonDim(layers []Layer, dim func(Layer) int) int {
	for _, l := range layers {
		if dim(l) != dim(layers[0]) {
			return 0
		}
	}
	if len(layers) == 0 {
		return 0
	}
	return dim(layers[0])
}

// Apply multiplies every block of x by the orthonormal Walsh-Hadamard matrix, in place, in upstream's order: the numbers are
// scaled first. len(x) is a multiple of the order.
func (r Rotation) Apply(x []float32) {
	if r == 0 {
		return
	}
	n := int(r)
	kernel.Scale(x, 1/float32(math.Sqrt(float64(n))))
	for ; len(x) > 0; x = x[n:] {
		hadamard(x[:n])
	}
}

// hadamard is the unnormalised fast Walsh-Hadamard transform in natural order.
func hadamard(x []float32) {
	for half := 1; half < len(x); half *= 2 {
		for i := 0; i < len(x); i += 2 * half {
			a, b := x[i:i+half], x[i+half:i+2*half]
			for j := range a {
				a[j], b[j] = a[j]+b[j], a[j]-b[j]
			}
		}
	}
}
