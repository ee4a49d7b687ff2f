package synth

import (
	"path/filepath"
	"testing"

	"attnbudget/engine"
)

// TestMemoryOfMaskedContextsIsExact asks the allocator about models of true shape, whose weights are holes in a file.
func TestMemoryOfMaskedContextsIsExact(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		shape string
		nCtx  int
		mask  []int
		want  map[string]float64 // MiB by physical cache
	}{
		{"llama-3.1-8b", 8192, nil, map[string]float64{"plain": 1024}},
		{"llama-3.1-8b", 8192, []int{19, 20, 24, 25}, map[string]float64{"plain": 896}},
		{"llama-3.1-8b", 65536, nil, map[string]float64{"plain": 8192}},
		{"llama-3.1-8b", 65536, []int{19, 20, 24, 25}, map[string]float64{"plain": 7168}},
		// 48 layers, every sixth global; 8 KiB a cell and layer; a window of 1024 and a batch of 512 tokens make 1536 cells.
		{"gemma-3-12b", 8192, nil, map[string]float64{"plain": 8 * 64, "window": 40 * 12}},
		{"gemma-3-12b", 8192, []int{0}, map[string]float64{"plain": 8 * 64, "window": 39 * 12}}, // a local layer gives back window cells only
		{"gemma-3-12b", 8192, []int{5}, map[string]float64{"plain": 7 * 64, "window": 40 * 12}}, // a global one gives back all of its
		{"gemma-3-12b", 65536, []int{0}, map[string]float64{"plain": 8 * 512, "window": 39 * 12}},
	} {
		path := filepath.Join(t.TempDir(), "model.gguf")
		if err := Write(t.Context(), path, c.shape, "Q4_0", Options{Sparse: true}); err != nil {
			t.Fatal(err)
		}
		m, err := engine.Open(path, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		sizes, err := m.CacheSizes(engine.ContextOptions{NCtx: c.nCtx, Mask: c.mask})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, s := range sizes {
			got[s.Name] += float64(s.Bytes()) / mib
		}
		for name, want := range c.want {
			if got[name] != want {
				t.Errorf("%s at %d without %v: %s cache takes %v MiB, want %v", c.shape, c.nCtx, c.mask, name, got[name], want)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s at %d without %v: caches %v", c.shape, c.nCtx, c.mask, got)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
