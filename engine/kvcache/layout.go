// Package kvcache is the memory of a context: what its layers remember of the positions already seen.
//
// Attention layers store keys and values in cells; a cell holds one position and the set of sequences it belongs to, and
// all layers of one physical cache share its cells. Layers with a sliding window live in a second, smaller cache.
// Recurrent layers store one state a sequence. Only layers named in the Layout are ever allocated: a dropped layer and a
// layer that reads another's keys and values cost nothing.
//
// The package places tokens, says which cells a token sees, and saves and restores. It computes no attention.
package kvcache

import (
	"fmt"

	"attnbudget/engine/gguf"
)

// Layer is what one attention layer stores for a position.
type Layer struct {
	Index  int // logical layer
	Heads  int // key and value heads
	DimK   int // elements of one key head
	DimV   int // elements of one value head
	Window int // positions a query sees, itself included; 0 = all earlier ones
}

// RecurrentLayer is what one recurrent layer stores for a sequence.
type RecurrentLayer struct {
	Index int // logical layer
	Conv  int // float32 inputs of the convolution that are remembered
	State int // float32 elements of the delta state
}

// Layout is what the layers of a model under one mask store.
type Layout struct {
	Attention []Layer
	Recurrent []RecurrentLayer
}

// Params fixes the caches of one context.
type Params struct {
	Cells        int // positions of the plain cache, n_ctx
	UBatch       int // largest number of tokens placed at once
	Seqs         int // sequences, at most MaxSeqs
	TypeK, TypeV gguf.Type
	Rotate       bool // rotate the heads of quantised caches, see Rotation
	FullWindow   bool // a sliding-window cache keeps every position of the context (upstream's swa_full)
}

// Check refuses parameters that no cache can be made with.
func (p Params) Check(l Layout) error {
	if p.Cells < 1 || p.UBatch < 1 {
		return fmt.Errorf("kvcache: a cache of %d cells for batches of %d tokens: both must be positive", p.Cells, p.UBatch)
	}
	if p.Seqs < 1 || p.Seqs > MaxSeqs {
		return fmt.Errorf("kvcache: %d sequences: expected 1 to %d", p.Seqs, MaxSeqs)
	}
	for _, t := range []gguf.Type{p.TypeK, p.TypeV} {
		switch t {
		case gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0:
		default:
			return fmt.Errorf("kvcache: no cache of type %s: expected F32, F16, Q8_0 or Q4_0", t)
		}
	}
	for _, a := range l.Attention {
		if a.DimK%p.TypeK.BlockSize() != 0 || a.DimV%p.TypeV.BlockSize() != 0 {
			return fmt.Errorf("kvcache: layer %d has heads of %d key and %d value elements, which do not divide into blocks of %s and %s",
				a.Index, a.DimK, a.DimV, p.TypeK, p.TypeV)
		}
	}
	return nil
}

// windowCells is upstream's size of a sliding-window cache: room for the window of every sequence and one batch, in
// steps of 256, and never more than the context.
func (p Params) windowCells(window int) int {
	if p.FullWindow {
		return p.Cells
	}
	return min(p.Cells, (window*p.Seqs+p.UBatch+255)/256*256)
}

// Sizes says what the caches of a layout would take, without allocating them: plain, window and recurrent, in this order,
// those that have layers.
func Sizes(l Layout, p Params) []Size {
	var out []Size
	for _, windowed := range []bool{false, true} {
		if s := attentionSize(l, p, windowed); len(s.Layers) > 0 {
			out = append(out, s)
		}
	}
	if len(l.Recurrent) > 0 {
		out = append(out, recurrentSize(l, p))
	}
	return out
}

func attentionSize(l Layout, p Params, windowed bool) Size {
	s := Size{Name: Plain, Cells: p.Cells, Seqs: p.Seqs, TypeK: p.TypeK, TypeV: p.TypeV}
	for _, a := range l.Attention {
		if (a.Window > 0) != windowed {
			continue
		}
		if windowed {
			s.Name, s.Cells = Window, p.windowCells(a.Window)
		}
		s.Layers = append(s.Layers, a.Index)
		s.BytesK += int64(s.Cells) * int64(p.TypeK.RowBytes(a.Heads*a.DimK))
		s.BytesV += int64(s.Cells) * int64(p.TypeV.RowBytes(a.Heads*a.DimV))
	}
	return s
}

func recurrentSize(l Layout, p Params) Size {
	s := Size{Name: Recurrent, Cells: p.Seqs, Seqs: p.Seqs, TypeK: gguf.F32, TypeV: gguf.F32}
	for _, r := range l.Recurrent {
		s.Layers = append(s.Layers, r.Index)
		s.BytesK += int64(p.Seqs) * int64(r.Conv) * 4
		s.BytesV += int64(p.Seqs) * int64(r.State) * 4
	}
	return s
}
