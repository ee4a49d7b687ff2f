package engine

import (
	"fmt"

	"attnbudget/engine/drop"
	"attnbudget/engine/kvcache"
)

// MemoryError refuses a context that the machine cannot hold. Without it the process would die of the allocation.
type MemoryError struct {
	Cells, UBatch int
	Need, Have    int64 // bytes: at least, and of the whole machine or container
}

func (e *MemoryError) Error() string {
	const gib = 1 << 30
	return fmt.Sprintf("a context of %d tokens, %d computed at once, needs at least %.1f GiB and the machine has %.1f GiB: choose a shorter context or smaller batches",
		e.Cells, e.UBatch, float64(e.Need)/gib, float64(e.Have)/gib)
}

// checkMemory compares the caches of resolved options, and one row of activations for each token that is computed at once, with
// the memory of the machine.
func (m *Model) checkMemory(o ContextOptions, mask drop.Mask) error {
	layout, params := m.network.Config().Layout(mask), o.params()
	if err := params.Check(layout); err != nil {
		return err
	}
	need := 4 * int64(o.NUBatch) * int64(m.info.Embd)
	for _, s := range kvcache.Sizes(layout, params) {
		need += s.Bytes()
	}
	if have := installedMemory(); have > 0 && need > have {
		return &MemoryError{o.NCtx, o.NUBatch, need, have}
	}
	return nil
}
