package kernel

import (
	"math"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

// KVRows is the K or V store of one layer: the row of cell c starts at Data[c*Stride] and holds headsKV heads of dim
// elements in blocks of Type, head after head.
type KVRows struct {
	Type   gguf.Type
	Data   []byte
	Stride int // bytes from one cell to the next
}

// head returns the bytes of one head of a cell.
func (k *KVRows) head(cell, head, dim int) []byte {
	n := k.Type.RowBytes(dim)
	return k.Data[cell*k.Stride+head*n:][:n]
}

// StoreRow writes a row of numbers into a cache row of type t: F32, F16, BF16, Q8_0, Q4_0 or any other type that can be
// quantised. dst has t.RowBytes(len(src)) bytes.
func StoreRow(t gguf.Type, dst []byte, src []float32) {
	if t == gguf.Q8_0 {
		storeQ8_0(dst, src)
		return
	}
	quant.Quantize(t, dst, src)
}

// storeQ8_0 rounds codes to nearest even as upstream's cache does on x86; the reference quantiser of files rounds halves
// away from zero.
func storeQ8_0(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[34:], src[32:] {
		var top float32
		for _, v := range src[:32] {
			top = max(top, abs(v))
		}
		var inverse float32
		if top != 0 {
			inverse = 127 / top
		}
		d := quant.FloatToHalf(top / 127)
		dst[0], dst[1] = byte(d), byte(d>>8)
		for i, v := range src[:32] {
			dst[2+i] = byte(int8(nearestEven(v * inverse)))
		}
	}
}

var negInf = float32(math.Inf(-1))
