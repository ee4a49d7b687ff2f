//go:build !purego

package kernel

import (
	"unsafe"

	"attnbudget/engine/gguf"
)

type (
	multiplyFunc  = func(c *float32, strideC int, a *float32, strideA int, b *float32, strideB int, depth int)
	transposeFunc = func(dst *float32, strideDst int, src *byte, strideSrc int, n int)
	widenRowsFunc = func(dst *float32, src *byte, strideSrc int, rows int, n int)
)

// attentionTiles are the matrix kernels of attention in assembly.
type attentionTiles struct {
	narrow     []multiplyFunc    // 16 columns, by rows - 1
	wide       []multiplyFunc    // 64 columns, by rows - 1; nil if the instruction set has too few registers
	transposed [32]transposeFunc // by gguf.Type; nil where widening has to come first
	widenRows  [32]widenRowsFunc // by gguf.Type; nil where there is none
	lanes      int               // rows of src, and multiple of n, that transposed takes
}

// multiplyAdd is kernels.multiplyAdd: a block of columns of b stays in the first-level cache while the rows of a pass by.
func (t *attentionTiles) multiplyAdd(c []float32, strideC int, a []float32, strideA int, b []float32, strideB int, rows, depth, cols int) {
	if depth == 0 {
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
		multiplyAdd(c[j:], strideC, a, strideA, b[j:], strideB, rows, depth, cols-j)
	}
}

// keys is kernels.keys.
func (t *attentionTiles) keys(dst []float32, strideDst int, k *KVRows, head, cell, cells, dim int, few []float32) {
	c, size := 0, k.Type.RowBytes(dim)
	if dim%lanes == 0 && cells > 0 {
		_ = k.head(cell+cells-1, head, size) // the assembly trusts that the cells are there
		transposed, widen := t.transposed[k.Type], t.widenRows[k.Type]
		for ; c+t.lanes <= cells && widen != nil; c += t.lanes {
			src := k.head(cell+c, head, size)
			if transposed != nil {
				transposed(&dst[c], strideDst*4, &src[0], k.Stride, dim)
				continue
			}
			widen(&few[0], &src[0], k.Stride, t.lanes, dim)
			t.transposed[gguf.F32](&dst[c], strideDst*4, (*byte)(unsafe.Pointer(&few[0])), dim*4, dim)
		}
	}
	keys(dst[c:], strideDst, k, head, cell+c, cells-c, dim, few)
}

// values is kernels.values.
func (t *attentionTiles) values(dst []float32, v *KVRows, head, cell, cells, dim int) {
	widen := t.widenRows[v.Type]
	if widen == nil || dim%lanes != 0 || cells == 0 {
		values(dst, v, head, cell, cells, dim)
		return
	}
	size := v.Type.RowBytes(dim)
	_ = v.head(cell+cells-1, head, size)
	widen(&dst[:cells*dim][0], &v.head(cell, head, size)[0], v.Stride, cells, dim)
}
