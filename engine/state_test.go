package engine

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
	"attnbudget/engine/kvcache"
)

func savedState(t testing.TB, x *Context) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := x.SaveState(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestARestoredContextGoesOnToTheBit(t *testing.T) {
	forEach(t, func(t *testing.T, m *Model) {
		tokens := testTokens(120)
		for _, kv := range []gguf.Type{CacheF32, gguf.F16, gguf.Q8_0, gguf.Q4_0} {
			o := ContextOptions{NCtx: 256, NUBatch: 32, TypeK: kv, TypeV: kv}
			x := newTestContext(t, m, o)
			decode(t, x, tokens[:90])
			state := savedState(t, x)
			want := decode(t, x, tokens[90:])
			for _, n := range []int{256, 512} { // the state of a shorter context fits into a longer one
				o.NCtx = n
				y := newTestContext(t, m, o)
				decode(t, y, tokens[:7]) // forgotten by loading
				if err := y.LoadState(bytes.NewReader(state)); err != nil {
					t.Fatal(err)
				}
				if y.SeqLast(0) != 89 {
					t.Errorf("the restored context holds %d positions", y.SeqLast(0)+1)
				}
				if got := decode(t, y, tokens[90:]); !slices.Equal(got, want) {
					t.Errorf("cache %v, %d cells: largest difference %g", kv, n, maxDifference(got, want))
				}
			}
		}
	})
}

func TestAStateOfSomethingElseIsRefused(t *testing.T) {
	llama := openTest(t, tiny("llama"), Options{Threads: 1})
	o := ContextOptions{NCtx: 256, Mask: []int{1}}
	x := newTestContext(t, llama, o)
	decode(t, x, testTokens(10))
	state := savedState(t, x)
	surrogates := &Surrogates{mask: x.Mask(), hash: "of a file"}
	for _, tt := range []struct {
		what  string
		model *Model
		o     ContextOptions
	}{
		{"the model", openTest(t, tiny("llama-tied"), Options{}), o},
		{"the model", openTest(t, tiny("llama"), Options{ExpandF32: true}), o},
		{"the drop mask", llama, ContextOptions{NCtx: 256, Mask: []int{2}}},
		{"the surrogates", llama, ContextOptions{NCtx: 256, Mask: []int{1}, Surrogates: surrogates}},
		{"the key cache type", llama, ContextOptions{NCtx: 256, Mask: []int{1}, TypeK: gguf.Q8_0}},
		{"the value cache type", llama, ContextOptions{NCtx: 256, Mask: []int{1}, TypeV: CacheF32}},
	} {
		y := newTestContext(t, tt.model, tt.o)
		decode(t, y, testTokens(3))
		err := y.LoadState(bytes.NewReader(state))
		var typed *StateError
		if !errors.As(err, &typed) || typed.What != tt.what {
			t.Errorf("error %v, want a *StateError about %s", err, tt.what)
		}
		if y.SeqLast(0) != 2 {
			t.Errorf("%s: the refused state changed the context", tt.what)
		}
	}
	var typed *StateError
	older := bytes.Replace(state, []byte(`"engine":"`+Version), []byte(`"engine":"0`), 1)
	if err := x.LoadState(bytes.NewReader(older)); !errors.As(err, &typed) || typed.What != "the engine version" {
		t.Errorf("error %v, want a *StateError about the engine version", err)
	}
	short := newTestContext(t, llama, ContextOptions{NCtx: 256, Mask: []int{1}})
	long := newTestContext(t, llama, ContextOptions{NCtx: 512, Mask: []int{1}})
	decode(t, long, testTokens(300))
	if err := short.LoadState(bytes.NewReader(savedState(t, long))); err == nil || !strings.Contains(err.Error(), "the saved state holds 300 cells, the cache has 256; make the context longer") {
		t.Errorf("error %v", err)
	}
}

// A message shows of a list or a text only how it begins; the identity has all of it.
func TestTheIdentityOfAModelHasAllItsMetadata(t *testing.T) {
	long := strings.Repeat("x", 200)
	known := map[string]bool{}
	for _, value := range []any{append(make([]uint32, 20), 1), append(make([]uint32, 20), 2), long + "a", long + "b"} {
		f, err := gguf.NewFile("model", []gguf.Entry{{Key: "key", Value: gguf.ValueOf(value)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		known[identity(f, Options{})] = true
	}
	if len(known) != 4 {
		t.Errorf("4 models have %d identities", len(known))
	}
}

func TestTheIdentityOfAModelHasSamplesOfEveryTensor(t *testing.T) {
	known := map[string]bool{}
	data := make([]byte, 5*sampleBytes)
	for _, at := range []int{0, len(data) / 2, len(data) - 1} {
		data[at]++
		f, err := gguf.NewFile("model", nil, []*gguf.Tensor{{Name: "a", Shape: []int{1}, Data: []byte{1, 2, 3, 4}}, {Name: "b", Shape: []int{len(data) / 4}, Data: data}})
		if err != nil {
			t.Fatal(err)
		}
		known[identity(f, Options{})], known[identity(f, Options{ExpandF32: true})] = true, true
	}
	if len(known) != 6 {
		t.Errorf("3 models, opened in 2 ways, have %d identities", len(known))
	}
}

func TestResultsInUpstreamsOrderAreOfAnotherVersion(t *testing.T) {
	if ResultVersion("avx2") != Version || ResultVersion("generic") != Version || ResultVersion("upstream") == Version {
		t.Error("the ordinary kernels agree with one another, and not with those in upstream's order")
	}
}

func TestTheRotationIsPartOfAState(t *testing.T) {
	m := openTest(t, tiny("llama"), Options{Threads: 1})
	o := ContextOptions{NCtx: 256, TypeK: gguf.Q8_0, TypeV: gguf.Q8_0}
	x := newTestContext(t, m, o)
	decode(t, x, testTokens(5))
	state := savedState(t, x)
	t.Setenv(kvcache.RotationDisable, "1")
	var typed *StateError
	if err := newTestContext(t, m, o).LoadState(bytes.NewReader(state)); !errors.As(err, &typed) || typed.What != "the rotation of the cache" {
		t.Errorf("error %v", err)
	}
}

func TestADamagedStateIsRefused(t *testing.T) {
	m := openTest(t, tiny("llama"), Options{Threads: 1})
	x := newTestContext(t, m, ContextOptions{NCtx: 256})
	decode(t, x, testTokens(10))
	state := savedState(t, x)
	y := newTestContext(t, m, ContextOptions{NCtx: 256})
	for n := 0; n < len(state); n += 1 + n/7 {
		if err := y.LoadState(bytes.NewReader(state[:n])); err == nil {
			t.Errorf("cut after %d of %d bytes: accepted", n, len(state))
		}
		flipped := slices.Clone(state)
		flipped[n] ^= 0x10
		if err := y.LoadState(bytes.NewReader(flipped)); err == nil {
			t.Errorf("byte %d of %d changed: accepted", n, len(state))
		}
	}
	if err := y.LoadState(bytes.NewReader(state)); err != nil {
		t.Error(err)
	}
	flipped := slices.Clone(state)
	flipped[len(flipped)-10] ^= 1 // a value
	if err := y.LoadState(bytes.NewReader(flipped)); err == nil || !strings.Contains(err.Error(), "damaged: its checksum is") || y.SeqLast(0) != -1 {
		t.Errorf("error %v; the context holds %d positions of a damaged state", err, y.SeqLast(0)+1)
	}
}

func FuzzLoadState(f *testing.F) {
	m := openTest(f, tiny("qwen35"), Options{Threads: 1})
	x := newTestContext(f, m, ContextOptions{NCtx: 256, NUBatch: 8})
	decode(f, x, testTokens(3))
	f.Add(savedState(f, x))
	f.Add([]byte(stateMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if x.LoadState(bytes.NewReader(b)) == nil {
			decode(t, x, []int32{1})
		}
	})
}
