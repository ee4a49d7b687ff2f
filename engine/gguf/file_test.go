package gguf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const models = "../testdata/conformance/models"

func TestConformanceModelOpens(t *testing.T) {
	f, err := Open(filepath.Join(models, "gemma4-tiny.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	arch, err := f.String("general.architecture")
	is(t, "architecture", arch, err, "gemma4")
	swa, err := f.Bools("gemma4.attention.sliding_window_pattern")
	if err != nil || len(swa) != 8 || !swa[0] || swa[4] {
		t.Errorf("pattern %v, %v", swa, err)
	}
	tokens, err := f.Strings("tokenizer.ggml.tokens")
	if err != nil || len(tokens) != 320 || tokens[3] != "<0x00>" {
		t.Errorf("%d tokens, %v", len(tokens), err)
	}
	x, ok := f.Tensor("per_layer_token_embd.weight")
	if !ok || x.Type != F16 || x.Cols() != 256 || x.Rows() != 320 || len(x.Data) != 163840 {
		t.Errorf("per-layer embedding %+v", x)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "absent.gguf")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("folder: %v", err)
	}
	empty := filepath.Join(dir, "empty.gguf")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var f *FormatError
	if _, err := Open(empty); !errors.As(err, &f) {
		t.Errorf("empty file: %v", err)
	}
}

// writePart writes one part of a split model.
func writePart(t *testing.T, path string, meta map[string]any, tensors ...string) {
	t.Helper()
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for k, v := range meta {
		if err := w.Set(k, ValueOf(v)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range tensors {
		if err := w.Add(n, F32, []int{2}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range tensors {
		if err := w.Data(n, []byte(strings.Repeat(n, 8))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
}

func part(no, count uint16) map[string]any {
	return map[string]any{"split.no": no, "split.count": count, "split.tensors.count": int32(3)}
}

func writeSplit(t *testing.T) (dir string) {
	dir = t.TempDir()
	first := part(0, 3)
	first["general.name"] = "split"
	writePart(t, filepath.Join(dir, "m-00001-of-00003.gguf"), first)
	writePart(t, filepath.Join(dir, "m-00002-of-00003.gguf"), part(1, 3), "a", "b")
	writePart(t, filepath.Join(dir, "m-00003-of-00003.gguf"), part(2, 3), "c")
	return dir
}

func TestSplitModelIsJoined(t *testing.T) {
	dir := writeSplit(t)
	f, err := Open(filepath.Join(dir, "m-00001-of-00003.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Tensors) != 3 || f.Tensors[2].Name != "c" || len(f.Parts()) != 3 {
		t.Errorf("tensors %v of parts %v", f.Tensors, f.Parts())
	}
	b, ok := f.Tensor("b")
	if !ok || !bytes.Equal(b.Data, []byte("bbbbbbbb")) {
		t.Errorf("b = %+v", b)
	}
	name, err := f.String("general.name")
	is(t, "name", name, err, "split")
	var size int64
	for _, p := range f.Parts() {
		s, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		size += s.Size()
	}
	if f.Size() != size || len(f.unmap) != 3 {
		t.Errorf("%d bytes in %d mappings, want %d in 3", f.Size(), len(f.unmap), size)
	}
	if err := f.Close(); err != nil || b.Data != nil {
		t.Errorf("after closing: %v, %d bytes can be read", err, len(b.Data))
	}
}

func TestCountOfZeroPartsIsOneFile(t *testing.T) { // upstream's merge tool leaves it
	path := filepath.Join(t.TempDir(), "merged.gguf")
	writePart(t, path, map[string]any{"split.count": uint16(0)}, "a")
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, ok := f.Tensor("a"); !ok {
		t.Error("the tensor is gone")
	}
}

func TestWrongSplitsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		open  string
		say   string
	}{
		{"not the first", func(*testing.T, string) {}, "m-00002-of-00003.gguf", "part 2 of 3; open the first"},
		{"part missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "m-00003-of-00003.gguf")) }, "m-00001-of-00003.gguf", "part 3 of 3"},
		{"part of another place", func(t *testing.T, dir string) {
			writePart(t, filepath.Join(dir, "m-00003-of-00003.gguf"), part(1, 3), "c")
		}, "m-00001-of-00003.gguf", "expected part 3 of 3, found part 2 of 3"},
		{"tensor in two parts", func(t *testing.T, dir string) {
			writePart(t, filepath.Join(dir, "m-00003-of-00003.gguf"), part(2, 3), "a")
		}, "m-00001-of-00003.gguf", `tensor "a" is already in an earlier part`},
		{"tensor missing", func(t *testing.T, dir string) {
			writePart(t, filepath.Join(dir, "m-00003-of-00003.gguf"), part(2, 3))
		}, "m-00001-of-00003.gguf", "expected the 2 tensors of all parts, found 3"},
		{"renamed", func(t *testing.T, dir string) {
			os.Rename(filepath.Join(dir, "m-00001-of-00003.gguf"), filepath.Join(dir, "m.gguf"))
		}, "m.gguf", "must be named NAME-00001-of-00003.gguf"},
		{"a name of other parts", func(t *testing.T, dir string) {
			os.Rename(filepath.Join(dir, "m-00001-of-00003.gguf"), filepath.Join(dir, "m-00001-of-00004.gguf"))
		}, "m-00001-of-00004.gguf", `the name says 4 parts, key "split.count" says 3`},
		{"absurd number of parts", func(t *testing.T, dir string) {
			writePart(t, filepath.Join(dir, "n.gguf"), map[string]any{"split.no": uint64(0), "split.count": uint64(1 << 60)})
		}, "n.gguf", "0 of 1152921504606846976"},
		{"part number beyond the count", func(t *testing.T, dir string) { writePart(t, filepath.Join(dir, "n.gguf"), part(3, 3)) }, "n.gguf", "3 of 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := writeSplit(t)
			c.spoil(t, dir)
			_, err := Open(filepath.Join(dir, c.open))
			if err == nil || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v, want %q", err, c.say)
			}
		})
	}
}

func TestPartFromMemoryIsRefused(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(writeSplit(t), "m-00001-of-00003.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenBytes("part", b); err == nil || !strings.Contains(err.Error(), "part 1 of a model of 3 parts") {
		t.Errorf("got %v", err)
	}
}

func TestFingerprintIsTheHashOfAllParts(t *testing.T) {
	dir := writeSplit(t)
	h := sha256.New()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 3 {
		t.Fatal(names, err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	got, err := Fingerprint(t.Context(), names[0])
	is(t, "fingerprint", got, err, hex.EncodeToString(h.Sum(nil)))
	if _, err := Fingerprint(t.Context(), filepath.Join(dir, "absent")); err == nil {
		t.Error("an absent file has no fingerprint")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Fingerprint(ctx, names[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

func TestModelWithoutFileRefusesRepeatedNames(t *testing.T) {
	key := Entry{"k", ValueOf(uint32(1))}
	tensor := &Tensor{Name: "t", Type: F32, Shape: []int{2, 3}}
	f, err := NewFile("new", []Entry{key}, []*Tensor{tensor})
	if err != nil {
		t.Fatal(err)
	}
	k, err := f.Uint("k")
	is(t, "k", k, err, 1)
	if x, ok := f.Tensor("t"); !ok || x.Bytes() != 24 {
		t.Errorf("tensor %+v", x)
	}
	if _, err := NewFile("new", []Entry{key, key}, nil); err == nil {
		t.Error("a key was accepted twice")
	}
	if _, err := NewFile("new", nil, []*Tensor{tensor, tensor}); err == nil {
		t.Error("a tensor was accepted twice")
	}
}
