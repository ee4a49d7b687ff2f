package gguf

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// fileOf is a file in memory that has only metadata.
func fileOf(t *testing.T, entries map[string]any) *File {
	t.Helper()
	b := header(3, 0, uint64(len(entries)))
	for k, x := range entries {
		v := ValueOf(x)
		b = stored(b, k, uint32(v.kind), v.raw)
	}
	f, err := OpenBytes("meta.gguf", b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func is[T comparable](t *testing.T, what string, got T, err error, want T) {
	t.Helper()
	if err != nil || got != want {
		t.Errorf("%s = %v, %v; want %v", what, got, err, want)
	}
}

func TestAnyIntegerWidthConverts(t *testing.T) {
	f := fileOf(t, map[string]any{
		"u8": uint8(200), "i8": int8(-3), "u16": uint16(65535), "i16": int16(-4), "u32": uint32(1 << 31), "i32": int32(-5),
		"u64": uint64(math.MaxUint64), "i64": int64(math.MinInt64),
	})
	for key, want := range map[string]int64{"u8": 200, "i8": -3, "u16": 65535, "i16": -4, "u32": 1 << 31, "i32": -5, "i64": math.MinInt64} {
		got, err := f.Int(key)
		is(t, key, got, err, want)
	}
	u, err := f.Uint("u64")
	is(t, "u64", u, err, math.MaxUint64)
}

func TestScalarsAndDefaults(t *testing.T) {
	f := fileOf(t, map[string]any{"s": "text", "f": float32(0.1), "d": 0.1, "b": true})
	s, err := f.String("s")
	is(t, "s", s, err, "text")
	x, err := f.Float("f")
	is(t, "f", x, err, float64(float32(0.1)))
	x, err = f.Float("d")
	is(t, "d", x, err, 0.1)
	b, err := f.Bool("b")
	is(t, "b", b, err, true)

	s, err = f.StringOr("none", "other")
	is(t, "StringOr", s, err, "other")
	u, err := f.UintOr("none", 7)
	is(t, "UintOr", u, err, 7)
	i, err := f.IntOr("none", -7)
	is(t, "IntOr", i, err, -7)
	x, err = f.FloatOr("none", 1.5)
	is(t, "FloatOr", x, err, 1.5)
	b, err = f.BoolOr("none", true)
	is(t, "BoolOr", b, err, true)
}

func TestListsTakeArraysAndScalars(t *testing.T) {
	f := fileOf(t, map[string]any{
		"ints": []int32{1, -2}, "uints": []uint32{3, 4}, "floats": []float32{0.5, -1}, "bools": []bool{true, false}, "strings": []string{"a", "b"},
		"int": int32(-9), "bool": true, "string": "x", "float": float32(2), "none": []string{},
	})
	equal := func(what string, got, want any, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if a, b := ValueOf(got), ValueOf(want); !slices.Equal(a.raw, b.raw) {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
	}
	ints, err := f.Ints("ints")
	equal("ints", ints, []int64{1, -2}, err)
	ints, err = f.Ints("int")
	equal("int", ints, []int64{-9}, err)
	uints, err := f.Uints("uints")
	equal("uints", uints, []uint64{3, 4}, err)
	floats, err := f.Floats("floats")
	equal("floats", floats, []float32{0.5, -1}, err)
	floats, err = f.Floats("float")
	equal("float", floats, []float32{2}, err)
	bools, err := f.Bools("bools")
	equal("bools", bools, []bool{true, false}, err)
	bools, err = f.Bools("bool")
	equal("bool", bools, []bool{true}, err)
	text, err := f.Strings("strings")
	equal("strings", text, []string{"a", "b"}, err)
	text, err = f.Strings("none")
	equal("none", text, []string{}, err)
}

func TestKeyErrorsNameFileKeyWantedAndFound(t *testing.T) {
	f := fileOf(t, map[string]any{"text": "hello", "negative": int32(-3), "list": []int32{1, -2}, "large": uint64(1 << 63)})
	cases := []struct {
		name    string
		get     func() error
		say     string
		missing bool
	}{
		{"absent", func() error { _, err := f.Uint("absent"); return err }, "no such key", true},
		{"absent list", func() error { _, err := f.Uints("absent"); return err }, "no such key", true},
		{"another type", func() error { _, err := f.Float("text"); return err }, `"text": expected a floating-point number, found string "hello"`, false},
		{"another type with a default", func() error { _, err := f.UintOr("text", 3); return err }, "expected an unsigned integer, found string", false},
		{"negative", func() error { _, err := f.Uint("negative"); return err }, "found int32 -3", false},
		{"too large", func() error { _, err := f.Int("large"); return err }, "found uint64 9223372036854775808", false},
		{"list for one", func() error { _, err := f.Int("list"); return err }, "found array of 2 int32", false},
		{"negative in a list", func() error { _, err := f.Uints("list"); return err }, "found -2 at index 1", false},
		{"bool of an integer", func() error { _, err := f.Bool("negative"); return err }, "expected a bool", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := c.get()
			var k *KeyError
			if !errors.As(err, &k) {
				t.Fatalf("got %v, want a *KeyError", err)
			}
			if !strings.HasPrefix(err.Error(), "meta.gguf: metadata key ") || !strings.Contains(err.Error(), c.say) || k.Missing() != c.missing {
				t.Errorf("got %q (missing %t), want %q (missing %t)", err, k.Missing(), c.say, c.missing)
			}
		})
	}
}

func TestValuesRenderShort(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{uint8(7), "7"}, {int64(-7), "-7"}, {float32(1e-5), "1e-05"}, {true, "true"}, {"a\nb", `"a\nb"`},
		{[]string{"a", "b"}, `2 string ["a", "b"]`}, {make([]int32, 10), "10 int32 [0, 0, 0, 0, 0, 0, 0, 0, ...]"},
		{strings.Repeat("x", 500), `"` + strings.Repeat("x", 120) + `"...`},
	} {
		if got := ValueOf(c.v).String(); got != c.want {
			t.Errorf("%v renders as %s, want %s", c.v, got, c.want)
		}
	}
}

func TestValueOfAWidthlessIntegerPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("ValueOf(int) did not panic")
		}
	}()
	ValueOf(3)
}

func TestAllYieldsElementsInTheirOwnTypes(t *testing.T) {
	for _, c := range []struct{ stored, first, second any }{
		{[]uint8{1, 2}, uint64(1), uint64(2)}, {[]int16{-1, 2}, int64(-1), int64(2)}, {[]float32{0.5, 1}, float32(0.5), float32(1)},
		{[]float64{0.1, 1}, 0.1, 1.0}, {[]bool{true, false}, true, false}, {[]string{"a", ""}, "a", ""},
	} {
		var got []any
		for x := range ValueOf(c.stored).All() {
			got = append(got, x)
		}
		if len(got) != 2 || got[0] != c.first || got[1] != c.second {
			t.Errorf("%v yields %v", c.stored, got)
		}
	}
	for x := range ValueOf(int8(-7)).All() {
		if x != int64(-7) {
			t.Errorf("a scalar yields %v", x)
		}
	}
}
