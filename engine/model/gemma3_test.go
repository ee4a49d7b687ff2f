package model

import (
	"fmt"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
)

// repeated is the model of a file with its layers over and over, n in all.
func repeated(t *testing.T, f *gguf.File, arch string, layers, n int) *gguf.File {
	t.Helper()
	var entries []gguf.Entry
	for _, k := range f.Keys {
		v, _ := f.Value(k)
		if k == arch+".block_count" {
			v = gguf.ValueOf(uint32(n))
		}
		entries = append(entries, gguf.Entry{Key: k, Value: v})
	}
	var tensors []*gguf.Tensor
	for _, x := range f.Tensors {
		var layer int
		if _, err := fmt.Sscanf(x.Name, "blk.%d.", &layer); err != nil {
			tensors = append(tensors, x)
			continue
		}
		for l := layer; l < n; l += layers {
			copied := *x
			copied.Name = strings.Replace(x.Name, fmt.Sprintf("blk.%d.", layer), fmt.Sprintf("blk.%d.", l), 1)
			tensors = append(tensors, &copied)
		}
	}
	out, err := gguf.NewFile(f.Path, entries, tensors)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The 27B model, which upstream knows by its 62 layers, scales queries by the width a head would have if all made up the
// residual stream; the others by the width it has. Here these are 64/4 and 64.
func TestGemma3ScalesQueriesByItsSize(t *testing.T) {
	f, err := gguf.Open("../testdata/conformance/models/gemma3-tiny.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for layers, want := range map[int]float32{8: 1. / 8, 61: 1. / 8, 62: 1. / 4} {
		n, err := Load(repeated(t, f, "gemma3", 8, layers), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.(*gemma3).queryScale; got != want {
			t.Errorf("%d layers: queries times %v, want %v", layers, got, want)
		}
	}
}
