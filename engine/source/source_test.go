package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/builtin"
)

// copied is a builtin file on disk.
func copied(t *testing.T, name string) string {
	t.Helper()
	data, err := builtin.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAModelIsTheSameByPathAndByName(t *testing.T) {
	const name = "builtin:glossary-5m"
	var found []any
	for _, n := range []string{name, copied(t, name)} {
		m, err := Model(n, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := File(n)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := Fingerprint(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, [3]any{m.Info(), len(f.Tensors), sum})
		if err := errors.Join(m.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	}
	if found[0] != found[1] {
		t.Errorf("by name %v, by path %v", found[0], found[1])
	}
}

func TestATextIsTheSameByPathAndByName(t *testing.T) {
	const name = "builtin:evaluation"
	want, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Read(copied(t, name)); err != nil || string(got) != string(want) {
		t.Errorf("%d bytes, %v; expected %d", len(got), err, len(want))
	}
}

func TestWhatCannotBeOpenedIsATypedError(t *testing.T) {
	var kind *KindError
	if _, err := Model("builtin:evaluation", engine.Options{}); !errors.As(err, &kind) || err.Error() != "builtin:evaluation is a text file, not a model; models: glossary-5m" {
		t.Errorf("a text as a model: %v", err)
	}
	var unknown *builtin.UnknownError
	if _, err := File("builtin:glossary"); !errors.As(err, &unknown) {
		t.Errorf("an unknown name: %v", err)
	}
	if _, err := File("missing.gguf"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Read("missing.txt"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing text: %v", err)
	}
}
