package gguf

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rewrite writes what f holds to path.
func rewrite(path string, f *File) error {
	w, err := Create(path)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := w.CopyMetadata(f); err != nil {
		return err
	}
	for _, t := range f.Tensors {
		if err := w.Add(t.Name, t.Type, t.Shape); err != nil {
			return err
		}
	}
	for _, t := range f.Tensors {
		half := len(t.Data) / 2
		if err := w.Data(t.Name, t.Data[:half]); err != nil {
			return err
		}
		if err := w.Data(t.Name, t.Data[half:]); err != nil {
			return err
		}
	}
	return w.Finish()
}

func roundTrip(t *testing.T, path string) {
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	copied := filepath.Join(t.TempDir(), "copy.gguf")
	if err := rewrite(copied, f); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes written of %d read, and they differ", len(got), len(want))
	}
}

func TestModelsReadAndWrittenAreByteEqual(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(models, "*.gguf"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no conformance models", err)
	}
	for _, p := range paths {
		t.Run(filepath.Base(p), func(t *testing.T) { roundTrip(t, p) })
	}
}

func TestModelsQuantisedUpstreamReadAndWrittenAreByteEqual(t *testing.T) {
	paths, _ := filepath.Glob("../../../shared/conformance/quantized/*.gguf")
	if len(paths) == 0 {
		t.Skip("the shared conformance data are not here")
	}
	for _, p := range paths {
		t.Run(filepath.Base(p), func(t *testing.T) { roundTrip(t, p) })
	}
}

func TestOddAlignmentIsKept(t *testing.T) {
	dir := t.TempDir()
	original := filepath.Join(dir, "small.gguf")
	b := append(small(), make([]byte, 60)...) // padded behind the last tensor, as written
	if err := os.WriteFile(original, b, 0o600); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, original)
}

func create(t *testing.T) (w *Writer, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "new.gguf")
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Abort() })
	return w, path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSkippedDataReadAsZeros(t *testing.T) {
	w, path := create(t)
	must(t, w.Add("a", F32, []int{4}))
	must(t, w.Add("b", F32, []int{1000}))
	must(t, w.Add("c", F32, []int{1}))
	must(t, w.Data("a", bytes.Repeat([]byte{7}, 16)))
	must(t, w.Data("b", make([]byte, 40)))
	must(t, w.Skip("b")) // the rest of it
	must(t, w.Data("c", []byte{1, 2, 3, 4}))
	must(t, w.Finish())
	f, err := Open(path)
	must(t, err)
	defer f.Close()
	a, _ := f.Tensor("a")
	b, _ := f.Tensor("b")
	c, _ := f.Tensor("c")
	if !bytes.Equal(a.Data, bytes.Repeat([]byte{7}, 16)) || !bytes.Equal(b.Data, make([]byte, 4000)) || !bytes.Equal(c.Data, []byte{1, 2, 3, 4}) {
		t.Error("data differ from what was written")
	}
}

func TestSetKeepsThePlaceAndDeleteGivesItUp(t *testing.T) {
	w, path := create(t)
	must(t, w.Set("a", ValueOf("first")))
	must(t, w.Set("b", ValueOf(uint32(1))))
	must(t, w.Set("a", ValueOf("second")))
	must(t, w.Set("c", ValueOf(true)))
	w.Delete("b")
	must(t, w.Set("b", ValueOf(uint32(2))))
	must(t, w.Set(alignmentKey, ValueOf(uint32(4096))))
	w.Delete(alignmentKey)
	must(t, w.Finish())
	f, err := Open(path)
	must(t, err)
	defer f.Close()
	if got := strings.Join(f.Keys, " "); got != "a c b" || f.Size() >= 4096 {
		t.Errorf("keys %s in %d bytes, want a c b, aligned as ever", got, f.Size())
	}
	a, err := f.String("a")
	is(t, "a", a, err, "second")
}

func TestUnfinishedFileLeavesNothing(t *testing.T) {
	w, path := create(t)
	must(t, w.Add("a", F32, []int{4}))
	must(t, w.Data("a", make([]byte, 8)))
	if err := w.Finish(); err == nil || !strings.Contains(err.Error(), "8 of 16 bytes") {
		t.Errorf("finished half a tensor: %v", err)
	}
	must(t, w.Abort())
	must(t, w.Abort())
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestOldFileStaysUntilFinish(t *testing.T) {
	w, path := create(t)
	must(t, os.WriteFile(path, []byte("old"), 0o600))
	must(t, w.Add("a", F32, []int{4}))
	must(t, w.Data("a", make([]byte, 16)))
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("before Finish the file holds %q, %v", b, err)
	}
	must(t, w.Finish())
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("in the folder: %v, %v", left, err)
	}
	f, err := Open(path)
	must(t, err)
	must(t, f.Close())
}

func TestWriterRefusesWhatNobodyCouldRead(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *Writer) error
		say  string
	}{
		{"tensor twice", func(w *Writer) error { w.Add("a", F32, []int{1}); return w.Add("a", F32, []int{1}) }, "added twice"},
		{"long name", func(w *Writer) error { return w.Add(strings.Repeat("x", 64), F32, []int{1}) }, "1 to 63 bytes"},
		{"split block", func(w *Writer) error { return w.Add("a", Q4_K, []int{128}) }, "multiple of 256"},
		{"unknown type", func(w *Writer) error { return w.Add("a", 39, []int{32}) }, "MXFP4"},
		{"no shape", func(w *Writer) error { return w.Add("a", F32, nil) }, "1 to 4 dimensions"},
		{"zero extent", func(w *Writer) error { return w.Add("a", F32, []int{4, 0}) }, "below 1"},
		{"empty key", func(w *Writer) error { return w.Set("", ValueOf(true)) }, "0"},
		{"alignment", func(w *Writer) error { return w.Set(alignmentKey, ValueOf(uint32(12))) }, "power of two"},
		{"data out of turn", func(w *Writer) error {
			w.Add("a", F32, []int{1})
			w.Add("b", F32, []int{1})
			return w.Data("b", make([]byte, 4))
		}, `in the place of "a"`},
		{"too much data", func(w *Writer) error { w.Add("a", F32, []int{1}); return w.Data("a", make([]byte, 5)) }, "1 bytes of data too many"},
		{"too much data in parts", func(w *Writer) error {
			w.Add("a", F32, []int{2})
			w.Data("a", make([]byte, 5))
			return w.Data("a", make([]byte, 5))
		}, "2 bytes of data too many"},
		{"data after the last", func(w *Writer) error { return w.Data("a", nil) }, "after the last tensor"},
		{"late key", func(w *Writer) error { w.Add("a", F32, []int{1}); w.Data("a", nil); return w.Set("k", ValueOf(true)) }, "after the first tensor data"},
		{"late tensor", func(w *Writer) error {
			w.Add("a", F32, []int{1})
			w.Data("a", nil)
			return w.Add("b", F32, []int{1})
		}, "after the first tensor data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _ := create(t)
			if err := c.do(w); err == nil || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v, want %q", err, c.say)
			}
		})
	}
}

func TestFolderThatDoesNotExistIsAnError(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "none", "new.gguf")); err == nil {
		t.Error("created a file in a folder that does not exist")
	}
}
