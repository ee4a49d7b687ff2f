package quant

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
)

// writeModel makes a one-layer llama whose matrices hold x, row by row of 256.
func writeModel(t *testing.T, kind gguf.Type, x []float32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.gguf")
	w, err := gguf.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []struct {
		key   string
		value any
	}{
		{"general.architecture", "llama"}, {"general.file_type", uint32(1)}, {"llama.block_count", uint32(1)},
		{"llama.attention.head_count", uint32(2)}, {"split.count", uint16(1)}, {"split.no", uint16(0)}, {"general.name", "test"},
	} {
		must(w.Set(m.key, gguf.ValueOf(m.value)))
	}
	names := []string{"output.weight", "blk.0.attn_v.weight"}
	for _, name := range names {
		must(w.Add(name, kind, []int{256, len(x) / 256}))
	}
	data := make([]byte, kind.RowBytes(len(x)))
	Quantize(kind, data, x)
	for _, name := range names {
		must(w.Data(name, data))
	}
	must(w.Finish())
	return path
}

// weights returns n rows of 256 that look like weights.
func weights(rows int) []float32 {
	return slices.Repeat(samples()["normal"], rows/4)
}

func TestResultDoesNotDependOnThreads(t *testing.T) {
	in := writeModel(t, gguf.F32, weights(1024))
	var first string
	for _, threads := range []int{1, 3, 0} {
		out := filepath.Join(t.TempDir(), "out.gguf")
		if err := QuantizeFile(t.Context(), in, out, Q5_0, Options{Threads: threads}); err != nil {
			t.Fatal(err)
		}
		sum, err := gguf.Fingerprint(t.Context(), out)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = sum
		}
		if sum != first {
			t.Errorf("%d threads give another file than one", threads)
		}
	}
}

func TestHalfPrecisionInputsAreExpandedFirst(t *testing.T) {
	x := weights(8)
	for _, from := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16} {
		out := filepath.Join(t.TempDir(), "out.gguf")
		if err := QuantizeFile(t.Context(), writeModel(t, from, x), out, Q8_0, Options{}); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		want := make([]byte, gguf.Q8_0.RowBytes(len(x)))
		Quantize(gguf.Q8_0, want, roundTrip(from, x))
		for _, tensor := range f.Tensors {
			if string(tensor.Data) != string(want) {
				t.Errorf("from %v: %s is not its quantised input", from, tensor.Name)
			}
		}
	}
}

func TestMetadataSaysWhatTheFileIs(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.gguf")
	if err := QuantizeFile(t.Context(), writeModel(t, gguf.F16, weights(4)), out, Q4_K_M, Options{}); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := []string{"general.architecture", "llama.block_count", "llama.attention.head_count", "general.name",
		"general.quantization_version", "general.file_type"}
	if !slices.Equal(f.Keys, want) {
		t.Errorf("keys are %q, want %q", f.Keys, want)
	}
	if n, err := f.Uint("general.file_type"); n != uint64(Q4_K_M) || err != nil {
		t.Errorf("general.file_type = %d, %v", n, err)
	}
	if n, err := f.Uint("general.quantization_version"); n != 2 || err != nil {
		t.Errorf("general.quantization_version = %d, %v", n, err)
	}
}

func TestProgressCountsAllInput(t *testing.T) {
	in := writeModel(t, gguf.F32, weights(4096))
	last, calls := int64(0), 0
	err := QuantizeFile(t.Context(), in, filepath.Join(t.TempDir(), "out.gguf"), Q4_0, Options{Threads: 1, Progress: func(done, total int64) {
		if done <= last || total != 2*4*256*4096 {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
		calls++
	}})
	if err != nil {
		t.Fatal(err)
	}
	if last != 2*4*256*4096 || calls < 4 {
		t.Errorf("the last of %d calls said %d", calls, last)
	}
}

func TestInputsThatCannotBeQuantisedAreRefusedAndLeaveNothing(t *testing.T) {
	damaged := weights(512)
	damaged[100_000] = float32(math.NaN())
	infinite := weights(512)
	infinite[3] = float32(math.Inf(1))
	huge := weights(512)
	huge[77] = 1e9
	for _, c := range []struct {
		name, in string
		mix      Mix
		says     []string
	}{
		{"quantised", writeModel(t, gguf.Q8_0, weights(4)), Q4_0, []string{`tensor "output.weight"`, "Q8_0", "F16"}},
		{"not a number", writeModel(t, gguf.F32, damaged), Q4_K_M, []string{`tensor "output.weight"`, "NaN"}},
		{"infinite", writeModel(t, gguf.F32, infinite), Q8_0, []string{`tensor "output.weight"`, "+Inf"}},
		{"too large for half", writeModel(t, gguf.F32, huge), F16, []string{`tensor "output.weight"`, "1e+09", "F16", "BF16"}},
		{"scale too large for half", writeModel(t, gguf.F32, huge), Q8_0, []string{`tensor "output.weight"`, "1e+09", "Q8_0"}},
		{"minimum too large for half", writeModel(t, gguf.F32, huge), Q2_K, []string{`tensor "output.weight"`, "Q6_K"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			err := QuantizeFile(t.Context(), c.in, filepath.Join(folder, "out.gguf"), c.mix, Options{})
			var refused *InputError
			if !errors.As(err, &refused) {
				t.Fatalf("error is %v", err)
			}
			for _, part := range append(c.says, c.in) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			mustBeEmpty(t, folder)
		})
	}
	if err := QuantizeFile(t.Context(), writeModel(t, gguf.F32, huge), filepath.Join(t.TempDir(), "out.gguf"), BF16, Options{}); err != nil {
		t.Errorf("large weights as BF16: %v", err)
	}
}

func mustBeEmpty(t *testing.T, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left behind", e.Name())
	}
}

func TestCancelledRunLeavesTheOldFileAlone(t *testing.T) {
	in := writeModel(t, gguf.F32, weights(4096))
	folder := t.TempDir()
	out := filepath.Join(folder, "out.gguf")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	interrupted := errors.New("interrupted")
	run := func() error {
		return QuantizeFile(ctx, in, out, Q4_K_M, Options{Threads: 1, Progress: func(done, total int64) {
			if done > total/2 {
				cancel(interrupted)
			}
		}})
	}
	if err := run(); !errors.Is(err, interrupted) {
		t.Fatalf("error is %v", err)
	}
	mustBeEmpty(t, folder)

	if err := os.WriteFile(out, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := run(); !errors.Is(err, interrupted) {
		t.Fatalf("error is %v", err)
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 1 {
		t.Errorf("%d files in the folder, want only the old one", len(entries))
	}
	if old, _ := os.ReadFile(out); string(old) != "old" {
		t.Errorf("the old file was changed to %d bytes", len(old))
	}
}

func TestInputIsNotReplaced(t *testing.T) {
	in := writeModel(t, gguf.F32, weights(4))
	link := filepath.Join(t.TempDir(), "link.gguf")
	if err := os.Symlink(in, link); err != nil {
		t.Skip(err)
	}
	for _, out := range []string{in, link} {
		var refused *InputError
		if err := QuantizeFile(t.Context(), in, out, Q4_0, Options{}); !errors.As(err, &refused) {
			t.Errorf("quantising %s into %s: %v", in, out, err)
		}
	}
}

// writePart makes part no of two of a llama, with one tensor.
func writePart(t *testing.T, path string, no uint16, tensor string, kind gguf.Type, data []byte) {
	t.Helper()
	w, err := gguf.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, m := range []struct {
		key   string
		value any
	}{
		{"general.architecture", "llama"}, {"llama.block_count", uint32(1)}, {"llama.attention.head_count", uint32(2)},
		{"split.no", no}, {"split.count", uint16(2)},
	} {
		err = errors.Join(err, w.Set(m.key, gguf.ValueOf(m.value)))
	}
	if err := errors.Join(err, w.Add(tensor, kind, []int{256, len(data) / kind.RowBytes(256)}), w.Data(tensor, data), w.Finish()); err != nil {
		t.Fatal(err)
	}
}

func TestNoPartOfTheInputIsReplaced(t *testing.T) {
	folder := t.TempDir()
	parts := []string{filepath.Join(folder, "m-00001-of-00002.gguf"), filepath.Join(folder, "m-00002-of-00002.gguf")}
	for i, part := range parts {
		writePart(t, part, uint16(i), []string{"output.weight", "blk.0.attn_v.weight"}[i], gguf.F16, make([]byte, 4*512))
	}
	for _, out := range parts {
		var refused *InputError
		if err := QuantizeFile(t.Context(), parts[0], out, Q4_0, Options{}); !errors.As(err, &refused) || refused.File != out {
			t.Errorf("quantising a model in two parts into %s: %v", filepath.Base(out), err)
		}
	}
}

func TestIntegersAreCopied(t *testing.T) {
	folder := t.TempDir()
	data := []byte(strings.Repeat("\x01\x02\x03\x04", 2*256))
	writePart(t, filepath.Join(folder, "m-00001-of-00002.gguf"), 0, "blk.0.table.weight", gguf.I32, data)
	writePart(t, filepath.Join(folder, "m-00002-of-00002.gguf"), 1, "output.weight", gguf.F32, make([]byte, 4*512))
	for _, mix := range []Mix{Q4_0, F16} {
		out := filepath.Join(folder, "out.gguf")
		if err := QuantizeFile(t.Context(), filepath.Join(folder, "m-00001-of-00002.gguf"), out, mix, Options{}); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if table, ok := f.Tensor("blk.0.table.weight"); !ok || table.Type != gguf.I32 || string(table.Data) != string(data) {
			t.Errorf("%v: the integers became %+v", mix, table)
		}
	}
}

func TestModelInMemoryIsQuantisedLikeItsFile(t *testing.T) {
	in := writeModel(t, gguf.F16, weights(8))
	bytes, err := os.ReadFile(in)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.OpenBytes("builtin:test", bytes)
	if err != nil {
		t.Fatal(err)
	}
	fromFile, fromMemory := filepath.Join(t.TempDir(), "a.gguf"), filepath.Join(t.TempDir(), "b.gguf")
	if err := errors.Join(QuantizeFile(t.Context(), in, fromFile, Q6_K, Options{}), QuantizeTo(t.Context(), f, fromMemory, Q6_K, Options{})); err != nil {
		t.Fatal(err)
	}
	a, _ := gguf.Fingerprint(t.Context(), fromFile)
	if b, _ := gguf.Fingerprint(t.Context(), fromMemory); a != b || a == "" {
		t.Errorf("fingerprints %q and %q", a, b)
	}
}

func TestMemoryStaysBelowTheLargestTensor(t *testing.T) {
	const rows = 1 << 14
	in := writeModel(t, gguf.F16, weights(rows))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := QuantizeFile(t.Context(), in, filepath.Join(t.TempDir(), "out.gguf"), Q8_0, Options{Threads: 2}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used, tensor := after.TotalAlloc-before.TotalAlloc, uint64(2*256*rows); used > tensor {
		t.Errorf("%s allocated in all for tensors of %s", megabytes(used), megabytes(tensor))
	}
}

func megabytes(n uint64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
