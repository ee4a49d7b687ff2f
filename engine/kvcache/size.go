package kvcache

import (
	"fmt"
	"strings"

	"attnbudget/engine/gguf"
)

// Names of physical caches.
const (
	Plain     = "plain"     // every earlier position
	Window    = "window"    // the positions inside a sliding window
	Recurrent = "recurrent" // one state a sequence, whatever its length
)

// Size is what one physical cache takes.
type Size struct {
	Name         string // Plain, Window or Recurrent
	Cells        int    // positions, or states of a recurrent store
	Layers       []int  // logical layers that store something, ascending
	Seqs         int    // sequences it may hold
	TypeK, TypeV gguf.Type
	BytesK       int64 // of a recurrent store: the convolution inputs
	BytesV       int64 // of a recurrent store: the delta states
}

// Bytes is the whole size.
func (s Size) Bytes() int64 { return s.BytesK + s.BytesV }

// String is the line upstream's allocator logs for such a cache. All sequences share one stream of cells.
func (s Size) String() string {
	mib := func(bytes int64) float64 { return float64(bytes) / (1 << 20) }
	if s.Name == Recurrent {
		return fmt.Sprintf("llama_memory_recurrent: size = %7.2f MiB (%6d cells, %3d layers, %2d seqs 0 rs_seq), R (f32): %7.2f MiB, S (f32): %7.2f MiB",
			mib(s.Bytes()), s.Cells, len(s.Layers), s.Seqs, mib(s.BytesK), mib(s.BytesV))
	}
	return fmt.Sprintf("llama_kv_cache: size = %7.2f MiB (%6d cells, %3d layers, %2d/%d seqs), K (%s): %7.2f MiB, V (%s): %7.2f MiB",
		mib(s.Bytes()), s.Cells, len(s.Layers), s.Seqs, 1,
		strings.ToLower(s.TypeK.String()), mib(s.BytesK), strings.ToLower(s.TypeV.String()), mib(s.BytesV))
}
