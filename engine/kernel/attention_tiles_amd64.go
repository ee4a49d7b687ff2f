//go:build !purego

package kernel

type multiplyFunc = func(c *float32, strideC int, a *float32, strideA int, b *float32, strideB int, depth int)

// attentionTiles are the matrix kernels of attention in assembly.
type attentionTiles struct {
	narrow     []multiplyFunc // 16 columns, by rows - 1
	wide       []multiplyFunc // 64 columns, by rows - 1; nil if the instruction set has too few registers
	transposed func(dst *float32, strideDst int, src *float32, strideSrc int, n int)
	lanes      int // rows of src, and multiple of n, that transposed takes
}

// multiply is kernels.multiply: a block of columns of b stays in the first-level cache while the rows of a pass by.
func (t *attentionTiles) multiply(c []float32, strideC int, a []float32, strideA int, b []float32, strideB int, rows, depth, cols int) {
	if rows == 0 || depth == 0 {
		multiply(c, strideC, a, strideA, b, strideB, rows, depth, cols)
		return
	}
	j := 0
	for _, size := range []struct {
		cols int
		f    []multiplyFunc
	}{{64, t.wide}, {16, t.narrow}} {
		for ; size.f != nil && j+size.cols <= cols; j += size.cols {
			for r := 0; r < rows; r += len(size.f) {
				n := min(len(size.f), rows-r)
				size.f[n-1](&c[r*strideC+j], strideC*4, &a[r*strideA], strideA*4, &b[j], strideB*4, depth)
			}
		}
	}
	if j < cols {
		multiply(c[j:], strideC, a, strideA, b[j:], strideB, rows, depth, cols-j)
	}
}

// transpose is kernels.transpose.
func (t *attentionTiles) transpose(dst []float32, strideDst int, src []float32, rows, cols int) {
	whole := cols / t.lanes * t.lanes
	for r := 0; r < rows && whole > 0; r += t.lanes {
		t.transposed(&dst[r], strideDst*4, &src[r*cols], cols*4, whole)
	}
	for r := range rows {
		for c := whole; c < cols; c++ {
			dst[c*strideDst+r] = src[r*cols+c]
		}
	}
}
