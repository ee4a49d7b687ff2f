package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// stored is the stored form of its arguments one after the other: numbers in little endian, strings behind their length,
// byte slices as they are.
func stored(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		if raw, ok := p.([]byte); ok {
			b = append(b, raw...)
			continue
		}
		b = appendValue(b, p)
	}
	return b
}

func header(version uint32, tensors, entries uint64) []byte {
	return stored([]byte(magic), version, tensors, entries)
}

// oneTensor is a file with the given tensor entry and 64 bytes of data.
func oneTensor(entry ...any) []byte {
	b := stored(header(3, 1, 0), stored(entry...))
	b = append(b, make([]byte, padding(uint64(len(b)), 32))...)
	return append(b, make([]byte, 64)...)
}

func entry(key string, kind Kind, rest ...any) []byte {
	return stored(header(3, 0, 1), key, uint32(kind), stored(rest...))
}

// small is a valid file with a value of every kind and two tensors.
func small() []byte {
	b := header(3, 2, 9)
	for _, e := range []struct {
		key string
		v   any
	}{
		{"general.architecture", "llama"}, {"general.alignment", uint32(64)}, {"a.byte", uint8(200)}, {"a.negative", int16(-2)},
		{"a.float", float32(0.5)}, {"a.double", 0.25}, {"a.bool", true}, {"a.strings", []string{"x", "", "ü"}}, {"a.bools", []bool{true, false}},
	} {
		v := ValueOf(e.v)
		b = stored(b, e.key, uint32(v.kind), v.raw)
	}
	b = stored(b, "first", uint32(1), uint64(4), uint32(F32), uint64(0))
	b = stored(b, "second", uint32(3), uint64(32), uint64(2), uint64(1), uint32(Q8_0), uint64(64))
	b = append(b, make([]byte, padding(uint64(len(b)), 64))...)
	b = append(b, bytes.Repeat([]byte{1}, 16)...)
	b = append(b, make([]byte, 48)...)
	return append(b, bytes.Repeat([]byte{2}, 68)...)
}

func TestSmallFileIsReadWhole(t *testing.T) {
	f, err := OpenBytes("small.gguf", small())
	if err != nil {
		t.Fatal(err)
	}
	if f.Version != 3 || f.Alignment != 64 || len(f.Keys) != 9 || f.Keys[0] != "general.architecture" {
		t.Errorf("version %d, alignment %d, keys %q", f.Version, f.Alignment, f.Keys)
	}
	x, ok := f.Tensor("second")
	if !ok || x.Type != Q8_0 || x.Cols() != 32 || x.Rows() != 2 || x.Elements() != 64 || !bytes.Equal(x.Data, bytes.Repeat([]byte{2}, 68)) {
		t.Errorf("tensor second = %+v", x)
	}
	if _, ok := f.Tensor("third"); ok {
		t.Error("there is no tensor third")
	}
}

func TestVersion2IsRead(t *testing.T) {
	b := small()
	b[4] = 2
	f, err := OpenBytes("v2.gguf", b)
	if err != nil || f.Version != 2 || len(f.Tensors) != 2 {
		t.Errorf("got %+v, %v", f, err)
	}
}

func TestBrokenFilesAreRefusedWithTheirPlace(t *testing.T) {
	const huge = math.MaxUint64
	dims := func(n ...uint64) []byte { return stored(uint32(len(n)), appendValue(nil, n)) }
	cases := []struct {
		name   string
		bytes  []byte
		offset int64
		say    string
	}{
		{"empty file", nil, 0, "magic number: expected 4 bytes, found the end of the file"},
		{"another format", []byte("PK\x03\x04 and so on"), 0, "not a GGUF file"},
		{"version 1", header(1, 0, 0), 4, "GGUF version 1; convert it"},
		{"version 0", header(0, 0, 0), 4, "expected 2 or 3, little endian, found 0"},
		{"version 4", header(4, 0, 0), 4, "found 4"},
		{"big endian", stored([]byte(magic), []byte{0, 0, 0, 3}, uint64(0), uint64(0)), 4, "big-endian GGUF; convert it"},
		{"cut in the header", header(3, 0, 0)[:12], 8, "number of tensors: expected 8 bytes, found the end of the file after 4 bytes"},
		{"absurd number of tensors", header(3, huge, 0), 8, "at most 0"},
		{"absurd number of entries", header(3, 0, huge), 16, "at most 0"},
		{"key longer than the file", stored(header(3, 0, 1), uint64(huge), []byte("abcdefgh")), 32, "metadata key 0"},
		{"key longer than a key may be", stored(header(3, 0, 1), strings.Repeat("k", 1<<16), uint32(Uint8), uint8(1)), 24, "at most 65535"},
		{"key twice", stored(header(3, 0, 2), "k", uint32(Uint8), uint8(1), "k", uint32(Uint8), uint8(1)), 38, `"k" twice`},
		{"unknown value type", entry("k", 13, uint64(0)), 33, "found 13"},
		{"cut in a value", entry("k", Uint64, uint32(1)), 37, `metadata value "k": expected 8 bytes, found the end of the file after 4 bytes`},
		{"bool of 2", entry("k", Bool, uint8(2)), 37, "0 or 1"},
		{"bool of 2 in an array", entry("k", Array, uint32(Bool), uint64(2), uint8(1), uint8(2)), 50, "0 or 1"},
		{"string longer than the file", entry("k", String, uint64(1<<40), []byte("abc")), 45, "1099511627776 bytes"},
		{"array of arrays", entry("k", Array, uint32(Array), uint64(1), uint32(Uint8), uint64(0)), 37, "array of arrays"},
		{"absurd array", entry("k", Array, uint32(Uint64), uint64(huge)), 41, "number of elements"},
		{"array that overflows", entry("k", Array, uint32(Uint64), uint64(1<<61), uint64(0)), 41, "at most 1"},
		{"absurd array of strings", entry("k", Array, uint32(String), uint64(1<<40), uint64(0)), 41, "at most 1"},
		{"array of unknown type", entry("k", Array, uint32(77), uint64(0)), 37, "found 77"},
		{"cut in an array of strings", entry("k", Array, uint32(String), uint64(2), "a", uint64(9)), 66, "9 bytes"},
		{"alignment 0", entry(alignmentKey, Uint32, uint32(0)), 49, "power of two"},
		{"alignment 24", entry(alignmentKey, Uint32, uint32(24)), 49, "power of two up to 1048576, found uint32 24"},
		{"alignment of a gigabyte", entry(alignmentKey, Uint32, uint32(1<<30)), 49, "power of two"},
		{"alignment of another type", entry(alignmentKey, String, "32"), 49, "found string"},
		{"no dimensions", oneTensor("t", uint32(0), uint64(4), uint32(F32), uint64(0)), 33, "1 to 4"},
		{"5 dimensions", oneTensor("t", dims(1, 1, 1, 1, 1), uint32(F32), uint64(0)), 33, "found 5"},
		{"zero dimension", oneTensor("t", dims(4, 0), uint32(F32), uint64(0)), 45, "0 in dimension 1"},
		{"overflowing dimensions", oneTensor("t", dims(1<<32, 1<<32), uint32(F32), uint64(0)), 45, "addressed"},
		{"bytes that would overflow", oneTensor("t", dims(1<<61), uint32(F32), uint64(0)), 37, "addressed"},
		{"rows that split a block", oneTensor("t", dims(48), uint32(Q8_0), uint64(0)), 33, "multiple of 32 elements, the block of Q8_0, found rows of 48"},
		{"type not read here", oneTensor("t", dims(4), uint32(39), uint64(0)), 45, "found MXFP4"},
		{"type nobody knows", oneTensor("t", dims(4), uint32(4711), uint64(0)), 45, "found type 4711"},
		{"offset between alignments", oneTensor("t", dims(4), uint32(F32), uint64(8)), 49, "multiple of the alignment 32, found 8"},
		{"data beyond the end", oneTensor("t", dims(4), uint32(F32), uint64(64)), 49, "a data section of 64 bytes"},
		{"offset far beyond the end", oneTensor("t", dims(4), uint32(F32), uint64(huge-31)), 49, "truncated"},
		{"data longer than the file", oneTensor("t", dims(4, 5), uint32(F32), uint64(0)), 57, "80 bytes at 0"},
		{"tensor twice", stored(header(3, 2, 0), "t", dims(1), uint32(F32), uint64(0), "t", dims(1), uint32(F32), uint64(32), make([]byte, 64)), 57, `"t" twice`},
		{"tensors over each other", stored(header(3, 2, 0), "t", dims(16), uint32(F32), uint64(0), "u", dims(1), uint32(F32), uint64(32), make([]byte, 128)), 82, `the end of tensor "t"`},
		{"file cut in front of the data", oneTensor("t", dims(4), uint32(F32), uint64(0))[:57], 49, "a data section of 0 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := OpenBytes("broken.gguf", c.bytes)
			var f *FormatError
			if !errors.As(err, &f) {
				t.Fatalf("got %v, want a *FormatError", err)
			}
			if f.File != "broken.gguf" || f.Offset != c.offset || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %q, want byte %d and %q", err, c.offset, c.say)
			}
		})
	}
}

func TestEveryCutOfAValidFileIsRefused(t *testing.T) {
	b := small()
	for n := range b {
		var f *FormatError
		if _, err := OpenBytes("cut.gguf", b[:n]); !errors.As(err, &f) {
			t.Fatalf("cut to %d of %d bytes: got %v, want a *FormatError", n, len(b), err)
		}
	}
}

// A count is the file's word alone; believing it would let a file of some bytes take all memory.
func TestAbsurdCountsAllocateNothing(t *testing.T) {
	for _, b := range [][]byte{
		header(3, math.MaxUint64, 0), header(3, 1<<40, 0), header(3, 0, 1<<40),
		entry("k", Array, uint32(String), uint64(1<<40)), entry("k", Array, uint32(Uint8), uint64(1<<40)), entry("k", String, uint64(1<<40)),
		stored(header(3, 0, 1), uint64(1<<40)),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := OpenBytes("absurd.gguf", b); err == nil {
			t.Error("an absurd count was accepted")
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%d bytes allocated for a file of %d", n, len(b))
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(small())
	f.Add(header(2, 0, 0))
	f.Add(header(3, math.MaxUint64, math.MaxUint64))
	f.Add(entry("k", Array, uint32(String), uint64(2), "a", "b"))
	f.Add(oneTensor("t", uint32(2), uint64(4), uint64(2), uint32(F32), uint64(0)))
	if b, err := os.ReadFile(filepath.Join(models, "llama-tied-tiny.gguf")); err == nil {
		f.Add(b[:20<<10])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := OpenBytes("fuzz.gguf", b)
		if err != nil {
			return
		}
		for _, k := range file.Keys {
			v, _ := file.Value(k)
			if len(v.String()) > 64<<10 {
				t.Errorf("key %q renders too long", k)
			}
			file.Strings(k)
			file.Ints(k)
			file.Floats(k)
			file.Bools(k)
			file.Uint(k)
		}
		total := 0
		for _, x := range file.Tensors {
			total += len(x.Data)
			if len(x.Data) != x.Rows()*x.Type.RowBytes(x.Cols()) {
				t.Errorf("tensor %q has %d bytes", x.Name, len(x.Data))
			}
		}
		if total > len(b) {
			t.Errorf("%d bytes of tensors in %d bytes of file", total, len(b))
		}
		// What could be read can be written, and read again to the same bytes.
		again := filepath.Join(t.TempDir(), "again.gguf")
		if err := rewrite(again, file); err != nil {
			return // names the reader takes and the writer refuses
		}
		written, err := os.ReadFile(again)
		if err != nil {
			t.Fatal(err)
		}
		second, err := OpenBytes("again.gguf", written)
		if err != nil || fmt.Sprint(second.Keys) != fmt.Sprint(file.Keys) || len(second.Tensors) != len(file.Tensors) {
			t.Fatalf("written again: %v", err)
		}
		for i, x := range second.Tensors {
			if !bytes.Equal(x.Data, file.Tensors[i].Data) {
				t.Errorf("tensor %q changed when written again", x.Name)
			}
		}
	})
}

func TestStoredNumbersAreLittleEndian(t *testing.T) {
	if got := ValueOf(int32(-2)).raw; binary.LittleEndian.Uint32(got) != 0xfffffffe {
		t.Errorf("int32(-2) is stored as %x", got)
	}
}
