package engine

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

// mutation changes a copy of a small model before it is written.
type mutation struct {
	set     map[string]any // metadata
	delete  []string       // metadata
	without []string       // tensors
	replace map[string]*gguf.Tensor
	add     []*gguf.Tensor
}

// mutate writes a changed copy of the file at path and returns its path.
func mutate(t testing.TB, path string, m mutation) string {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := filepath.Join(t.TempDir(), "changed.gguf")
	w, err := gguf.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Abort() }()
	steps := []error{w.CopyMetadata(f)}
	for k, v := range m.set {
		steps = append(steps, w.Set(k, gguf.ValueOf(v)))
	}
	for _, k := range m.delete {
		w.Delete(k)
	}
	var tensors []*gguf.Tensor
	for _, x := range f.Tensors {
		if r, ok := m.replace[x.Name]; ok {
			x = &gguf.Tensor{Name: x.Name, Type: r.Type, Shape: r.Shape, Data: r.Data}
		}
		if !slices.Contains(m.without, x.Name) {
			tensors = append(tensors, x)
		}
	}
	tensors = append(tensors, m.add...)
	for _, x := range tensors {
		steps = append(steps, w.Add(x.Name, x.Type, x.Shape))
	}
	for _, x := range tensors {
		steps = append(steps, w.Data(x.Name, x.Data))
	}
	if err := errors.Join(append(steps, w.Finish())...); err != nil {
		t.Fatal(err)
	}
	return out
}

// zeros is a float32 tensor.
func zeros(shape ...int) *gguf.Tensor {
	n := 4
	for _, s := range shape {
		n *= s
	}
	return &gguf.Tensor{Type: gguf.F32, Shape: shape, Data: make([]byte, n)}
}

// rawTensor reads a tensor of the file at path into memory.
func rawTensor(t testing.TB, path, name string) *gguf.Tensor {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("%s has no tensor %s", path, name)
	}
	return &gguf.Tensor{Name: name, Type: x.Type, Shape: slices.Clone(x.Shape), Data: slices.Clone(x.Data)}
}

// widened returns the tensors of the file at path in F32, for mutation.replace.
func widened(t testing.TB, path string) map[string]*gguf.Tensor {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	wide := map[string]*gguf.Tensor{}
	for _, x := range f.Tensors {
		values := make([]float32, x.Elements())
		quant.Dequantize(x.Type, values, x.Data)
		y := zeros(x.Shape...)
		quant.Quantize(gguf.F32, y.Data, values)
		wide[x.Name] = y
	}
	return wide
}
