package kernel

import (
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

// head returns the bytes of one head of a cell; a head has size bytes.
func (k *KVRows) head(cell, head, size int) []byte {
	return k.Data[cell*k.Stride+head*size:][:size]
}

// StoreRow writes a row of numbers into a cache row of type t: F32, F16, BF16, Q8_0, Q4_0 or any other type that can be
// quantised. dst has t.RowBytes(len(src)) bytes.
func StoreRow(t gguf.Type, dst []byte, src []float32) { active.store(t, dst, src) }

func (k *kernels) store(t gguf.Type, dst []byte, src []float32) {
	switch t {
	case gguf.F16:
		k.narrowF16(dst[:2*len(src)], src)
	case gguf.Q8_0:
		k.storeQ8_0(dst[:t.RowBytes(len(src))], src)
	default:
		quant.Quantize(t, dst, src)
	}
}

// storeQ8_0 rounds codes to nearest even as upstream's cache does on x86; the reference quantiser of files rounds halves
// away from zero.
func storeQ8_0(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[34:], src[32:] {
		var codes [32]int8
		var side [1]blockSide
		quantiseBlocks(codes[:], side[:], src[:32])
		h := quant.FloatToHalf(side[0].d)
		dst[0], dst[1] = byte(h), byte(h>>8)
		for i, c := range codes {
			dst[2+i] = byte(c)
		}
	}
}
