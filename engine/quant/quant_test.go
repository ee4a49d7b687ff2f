package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"attnbudget/engine/gguf"
)

// allTypes are the types with a conversion, from few to many bits per element.
var allTypes = []gguf.Type{
	gguf.Q2_K, gguf.Q3_K, gguf.IQ4_XS, gguf.Q4_0, gguf.IQ4_NL, gguf.Q4_K, gguf.Q4_1, gguf.Q5_0, gguf.Q5_K, gguf.Q5_1,
	gguf.Q6_K, gguf.Q8_0, gguf.Q8_1, gguf.Q8_K, gguf.BF16, gguf.F16, gguf.F32,
}

func roundTrip(t gguf.Type, x []float32) []float32 {
	packed := make([]byte, t.RowBytes(len(x)))
	Quantize(t, packed, x)
	back := make([]float32, len(x))
	Dequantize(t, back, packed)
	return back
}

// The largest error of one element is bounded by what the format's codes can do, relative to the largest magnitude of its 256.
// The bounds are a step of the codes, or half of one where the codes cover the range evenly; a half precision scale is itself
// off by up to 2^-11.
func TestRoundTripErrorStaysWithinAStep(t *testing.T) {
	bounds := map[gguf.Type]float64{
		gguf.F32: 0, gguf.F16: 0x1p-11, gguf.BF16: 0x1p-8,
		gguf.Q8_0: 0.501/127 + 0x1p-11, gguf.Q8_1: 0.501/127 + 0x1p-11, gguf.Q8_K: 0.501 / 127,
		gguf.Q6_K: 1.1 / 32, gguf.Q5_0: 1.02 / 16, gguf.Q5_1: 1.02 / 31, gguf.Q5_K: 2.2 / 31,
		gguf.Q4_0: 1.02 / 8, gguf.Q4_1: 1.02 / 15, gguf.Q4_K: 2.2 / 15, gguf.IQ4_NL: 0.25, gguf.IQ4_XS: 0.25,
		gguf.Q3_K: 0.5, gguf.Q2_K: 0.6,
	}
	for _, kind := range allTypes {
		for name, x := range samples() {
			back := roundTrip(kind, x)
			for i := 0; i < len(x); i += 256 {
				top := float64(abs(largest(x[i : i+256])))
				for j := i; j < i+256; j++ {
					if e := math.Abs(float64(x[j]) - float64(back[j])); !(e <= bounds[kind]*top+1e-7) {
						t.Fatalf("%v, %s: element %d: %g became %g; the largest of its 256 is %g", kind, name, j, x[j], back[j], top)
					}
				}
			}
		}
	}
}

// samples are rows of many shapes: what weights look like, and what breaks searches.
func samples() map[string][]float32 {
	rng := rand.New(rand.NewPCG(3, 4))
	fill := func(f func(i int) float64) []float32 {
		x := make([]float32, 4*256)
		for i := range x {
			x[i] = float32(f(i))
		}
		return x
	}
	return map[string][]float32{
		"normal":      fill(func(int) float64 { return 0.02 * rng.NormFloat64() }),
		"heavy tails": fill(func(int) float64 { v := rng.NormFloat64(); return v * v * v }),
		"uniform":     fill(func(int) float64 { return rng.Float64() - 0.5 }),
		"positive":    fill(func(int) float64 { return 1 + rng.Float64() }),
		"negative":    fill(func(int) float64 { return -1 - rng.Float64() }),
		"two values":  fill(func(i int) float64 { return float64(i % 2) }),
		"one spike":   fill(func(i int) float64 { return float64(i % 256 / 255) }),
		"outliers": fill(func(i int) float64 {
			if i%37 == 0 {
				return 20 * rng.NormFloat64()
			}
			return rng.NormFloat64()
		}),
	}
}

func TestMoreBitsMeanLessError(t *testing.T) {
	x := samples()["normal"]
	rms := func(kind gguf.Type) float64 {
		var sum float64
		for i, v := range roundTrip(kind, x) {
			sum += math.Pow(float64(v-x[i]), 2)
		}
		return math.Sqrt(sum / float64(len(x)))
	}
	for _, order := range [][]gguf.Type{
		{gguf.Q2_K, gguf.Q3_K, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.Q8_K, gguf.F16, gguf.F32},
		{gguf.Q4_0, gguf.Q5_0, gguf.Q8_0, gguf.BF16, gguf.F16},
		{gguf.Q4_1, gguf.Q5_1, gguf.Q8_1},
		{gguf.Q4_0, gguf.IQ4_NL}, // same size, points where weights are
	} {
		for i := 1; i < len(order); i++ {
			if worse, better := rms(order[i-1]), rms(order[i]); better >= worse {
				t.Errorf("%v has an error of %g, %v of %g", order[i], better, order[i-1], worse)
			}
		}
	}
}

func TestZerosStayZeros(t *testing.T) {
	for _, kind := range allTypes {
		for i, v := range roundTrip(kind, make([]float32, 512)) {
			if v != 0 {
				t.Errorf("%v: element %d of a row of zeros became %g", kind, i, v)
				break
			}
		}
	}
}

// Blocks do not depend on their neighbours, so any split of the work gives the same bytes.
func TestBlocksAreIndependent(t *testing.T) {
	x := samples()["heavy tails"]
	for _, kind := range allTypes {
		whole := make([]byte, kind.RowBytes(len(x)))
		Quantize(kind, whole, x)
		first := make([]byte, kind.RowBytes(256))
		for i := 0; i < len(x); i += 256 {
			Quantize(kind, first, x[i:i+256])
			if string(first) != string(whole[kind.RowBytes(i):kind.RowBytes(i+256)]) {
				t.Errorf("%v: elements %d.. depend on others", kind, i)
			}
		}
	}
}

func TestBlockSumsOfActivationFormats(t *testing.T) {
	x := samples()["normal"][:256]
	packed := make([]byte, gguf.Q8_K.BlockBytes())
	Quantize(gguf.Q8_K, packed, x)
	for g := range 16 {
		sum := 0
		for _, q := range packed[4+16*g : 20+16*g] {
			sum += int(int8(q))
		}
		if got := int(int16(loadU16(packed[260+2*g:]))); got != sum {
			t.Errorf("Q8_K: sum of group %d is %d, stored as %d", g, sum, got)
		}
	}
	packed = make([]byte, gguf.Q8_1.BlockBytes())
	Quantize(gguf.Q8_1, packed, x[:32])
	back := make([]float32, 32)
	Dequantize(gguf.Q8_1, back, packed)
	var sum float64
	for _, v := range back {
		sum += float64(v)
	}
	if got := float64(loadHalf(packed[2:])); math.Abs(got-sum) > 1e-3*math.Abs(sum)+1e-4 {
		t.Errorf("Q8_1: the block's values add up to %g, stored as %g", sum, got)
	}
}

func TestConversionsPanicOnLengthsThatDoNotFit(t *testing.T) {
	for name, f := range map[string]func(){
		"part of a block": func() { Dequantize(gguf.Q4_0, make([]float32, 16), make([]byte, 9)) },
		"too few bytes":   func() { Dequantize(gguf.Q4_0, make([]float32, 32), make([]byte, 17)) },
		"too many bytes":  func() { Quantize(gguf.Q6_K, make([]byte, 420), make([]float32, 256)) },
		"integers":        func() { Dequantize(gguf.I32, make([]float32, 1), make([]byte, 4)) },
		"unknown type":    func() { Quantize(gguf.Type(99), nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

// Any bytes decode without a panic, to the same numbers each time, and what they decode to can be encoded again.
func FuzzDequantize(f *testing.F) {
	for i, kind := range allTypes {
		f.Add(uint8(i), make([]byte, kind.RowBytes(256)))
		packed := make([]byte, kind.RowBytes(256))
		Quantize(kind, packed, samples()["normal"][:256])
		f.Add(uint8(i), packed)
		for j := range packed {
			packed[j] = 0xff
		}
		f.Add(uint8(i), packed)
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		kind := allTypes[int(which)%len(allTypes)]
		blocks := len(data) / kind.BlockBytes()
		data = data[:blocks*kind.BlockBytes()]
		x := make([]float32, blocks*kind.BlockSize())
		Dequantize(kind, x, data)
		again := make([]float32, len(x))
		Dequantize(kind, again, data)
		for i := range x {
			if math.Float32bits(x[i]) != math.Float32bits(again[i]) {
				t.Fatalf("%v: element %d decodes to %g and to %g", kind, i, x[i], again[i])
			}
		}
		for _, to := range allTypes {
			n := len(x) / to.BlockSize() * to.BlockSize()
			Quantize(to, make([]byte, to.RowBytes(n)), x[:n])
		}
	})
}

func BenchmarkDequantize(b *testing.B) {
	x := samples()["normal"]
	for _, kind := range allTypes {
		b.Run(kind.String(), func(b *testing.B) {
			packed := make([]byte, kind.RowBytes(len(x)))
			Quantize(kind, packed, x)
			dst := make([]float32, len(x))
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				Dequantize(kind, dst, packed)
			}
		})
	}
}

func BenchmarkQuantize(b *testing.B) {
	x := samples()["normal"]
	for _, kind := range allTypes {
		b.Run(kind.String(), func(b *testing.B) {
			packed := make([]byte, kind.RowBytes(len(x)))
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				Quantize(kind, packed, x)
			}
		})
	}
}
