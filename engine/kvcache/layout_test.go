package kvcache

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
)

// gemma3Layout is like a Gemma 3 of 12 layers: 5 local, then a full one.
func gemma3Layout() Layout {
	var l Layout
	for i := range 12 {
		a := Layer{Index: i, Heads: 4, DimK: 256, DimV: 256}
		if i%6 < 5 {
			a.Window = 512
		}
		l.Attention = append(l.Attention, a)
	}
	return l
}

func TestSizesAreUpstreams(t *testing.T) {
	tests := []struct {
		name   string
		layout Layout
		params Params
		want   []string
	}{
		{"plain", Layout{Attention: []Layer{{Index: 0, Heads: 2, DimK: 64, DimV: 64}, {Index: 3, Heads: 2, DimK: 64, DimV: 64}}},
			Params{Cells: 8192, UBatch: 512, Seqs: 1, TypeK: gguf.F16, TypeV: gguf.F16},
			[]string{"llama_kv_cache: size =    8.00 MiB (  8192 cells,   2 layers,  1/1 seqs), K (f16):    4.00 MiB, V (f16):    4.00 MiB"}},
		{"window pair", gemma3Layout(), Params{Cells: 4096, UBatch: 512, Seqs: 1, TypeK: gguf.Q8_0, TypeV: gguf.F16},
			[]string{
				"llama_kv_cache: size =   24.50 MiB (  4096 cells,   2 layers,  1/1 seqs), K (q8_0):    8.50 MiB, V (f16):   16.00 MiB",
				"llama_kv_cache: size =   30.62 MiB (  1024 cells,  10 layers,  1/1 seqs), K (q8_0):   10.62 MiB, V (f16):   20.00 MiB",
			}},
		{"window cache that keeps all", gemma3Layout(), Params{Cells: 4096, UBatch: 512, Seqs: 1, TypeK: gguf.F16, TypeV: gguf.F16, FullWindow: true},
			[]string{
				"llama_kv_cache: size =   32.00 MiB (  4096 cells,   2 layers,  1/1 seqs), K (f16):   16.00 MiB, V (f16):   16.00 MiB",
				"llama_kv_cache: size =  160.00 MiB (  4096 cells,  10 layers,  1/1 seqs), K (f16):   80.00 MiB, V (f16):   80.00 MiB",
			}},
		{"window of several sequences, padded", gemma3Layout(), Params{Cells: 8192, UBatch: 100, Seqs: 4, TypeK: gguf.F16, TypeV: gguf.F16},
			[]string{
				"llama_kv_cache: size =   64.00 MiB (  8192 cells,   2 layers,  4/1 seqs), K (f16):   32.00 MiB, V (f16):   32.00 MiB",
				"llama_kv_cache: size =   90.00 MiB (  2304 cells,  10 layers,  4/1 seqs), K (f16):   45.00 MiB, V (f16):   45.00 MiB",
			}},
		{"recurrent", Layout{Attention: []Layer{{Index: 3, Heads: 2, DimK: 64, DimV: 64}}, Recurrent: []RecurrentLayer{{0, 3 * 8192, 32 * 128 * 128}}},
			Params{Cells: 256, UBatch: 512, Seqs: 2, TypeK: gguf.F32, TypeV: gguf.F32},
			[]string{
				"llama_kv_cache: size =    0.25 MiB (   256 cells,   1 layers,  2/1 seqs), K (f32):    0.12 MiB, V (f32):    0.12 MiB",
				"llama_memory_recurrent: size =    4.19 MiB (     2 cells,   1 layers,  2 seqs 0 rs_seq), R (f32):    0.19 MiB, S (f32):    4.00 MiB",
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := New(tt.layout, tt.params)
			if err != nil {
				t.Fatal(err)
			}
			sizes := m.Sizes()
			if len(sizes) != len(tt.want) {
				t.Fatalf("%d caches, want %d: %v", len(sizes), len(tt.want), sizes)
			}
			for i, s := range sizes {
				if s.String() != tt.want[i] {
					t.Errorf("cache %d\n got %s\nwant %s", i, s, tt.want[i])
				}
			}
			var bytes, allocated int64
			for _, s := range sizes {
				bytes += s.Bytes()
			}
			for _, s := range m.stores {
				allocated += int64(len(s.K.Data) + len(s.V.Data))
			}
			for _, s := range m.layers {
				allocated += int64(len(s.conv)+len(s.state)) * 4
			}
			if bytes != allocated {
				t.Errorf("%d bytes reported, %d allocated", bytes, allocated)
			}
		})
	}
}

func TestImpossibleParams(t *testing.T) {
	layout := Layout{Attention: []Layer{{Index: 2, Heads: 1, DimK: 48, DimV: 64}}}
	for want, p := range map[string]Params{
		"no cache of type Q6_K: expected F32, F16, Q8_0 or Q4_0":                                     {Cells: 8, UBatch: 1, Seqs: 1, TypeK: gguf.Q6_K},
		"layer 2 has heads of 48 key and 64 value elements, which do not divide into blocks of Q8_0": {Cells: 8, UBatch: 1, Seqs: 1, TypeK: gguf.Q8_0},
		"257 sequences: expected 1 to 256":                                                           {Cells: 8, UBatch: 1, Seqs: 257},
		"a cache of 0 cells":                                                                         {UBatch: 1, Seqs: 1},
	} {
		if _, err := New(layout, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	layout.Attention[0].DimK, layout.Attention[0].DimV = 64, 48
	if _, err := New(layout, Params{Cells: 8, UBatch: 1, Seqs: 1, TypeV: gguf.Q4_0}); err == nil || !strings.Contains(err.Error(), "do not divide into blocks of F32 and Q4_0") {
		t.Errorf("error %v", err)
	}
}

func TestRotationOrdersAreUpstreams(t *testing.T) {
	heads := func(dims ...int) (out []Layer) {
		for _, d := range dims {
			out = append(out, Layer{Heads: 1, DimK: d, DimV: d})
		}
		return out
	}
	for _, tt := range []struct {
		layers []Layer
		t      gguf.Type
		k, v   Rotation
	}{
		{heads(64, 64), gguf.Q8_0, 64, 64},
		{heads(128), gguf.Q4_0, 128, 64},
		{heads(192), gguf.Q4_0, 64, 64},
		{heads(512), gguf.Q8_0, 512, 64},
		{heads(96), gguf.Q8_0, 0, 0},
		{heads(64, 128), gguf.Q8_0, 0, 0},
		{heads(128), gguf.F16, 0, 0},
		{nil, gguf.Q8_0, 0, 0},
	} {
		if k, v := keyRotation(tt.t, tt.layers), valueRotation(tt.t, tt.layers); k != tt.k || v != tt.v {
			t.Errorf("%v %s: rotations %d and %d, want %d and %d", tt.layers, tt.t, k, v, tt.k, tt.v)
		}
	}
}

func TestRotationIsItsOwnInverseAndKeepsProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	a, b := make([]float32, 256), make([]float32, 256)
	for i := range a {
		a[i], b[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
	}
	dot := func(x, y []float32) (s float64) {
		for i := range x {
			s += float64(x[i]) * float64(y[i])
		}
		return s
	}
	before, first := dot(a, b), a[0]
	Rotation(128).Apply(a)
	Rotation(128).Apply(b)
	if after := dot(a, b); math.Abs(after-before) > 1e-4 {
		t.Errorf("product %v became %v", before, after)
	}
	Rotation(128).Apply(a)
	if math.Abs(float64(a[0]-first)) > 1e-5 {
		t.Errorf("twice rotated: %v became %v", first, a[0])
	}
	// The matrix of order 2, blockwise: (x+y, x-y)/√2.
	x := []float32{1, 2, 3, 5}
	Rotation(2).Apply(x)
	for i, want := range []float64{3, -1, 8, -2} {
		if math.Abs(float64(x[i])-want/math.Sqrt2) > 1e-6 {
			t.Errorf("element %d: %v, want %v/√2", i, x[i], want)
		}
	}
}

func TestRotationCanBeSwitchedOff(t *testing.T) {
	for value, want := range map[string]bool{"": true, "0": true, "1": false} {
		t.Setenv(RotationDisable, value)
		if RotationEnabled() != want {
			t.Errorf("%s=%q: enabled is %v", RotationDisable, value, !want)
		}
	}
}
