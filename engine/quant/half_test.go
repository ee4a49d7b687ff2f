package quant

import (
	"math"
	"math/rand/v2"
	"testing"
)

// halfByDefinition computes the value of a finite binary16 from its fields (IEEE 754-2008, 3.4).
func halfByDefinition(h uint16) float64 {
	sign, exponent, mantissa := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
	if exponent == 0 {
		return sign * math.Ldexp(mantissa, -24)
	}
	return sign * math.Ldexp(1024+mantissa, exponent-25)
}

func TestEveryHalfWidensByDefinitionAndComesBack(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := HalfToFloat(h)
		switch {
		case h&0x7fff > 0x7c00:
			if f == f {
				t.Errorf("%#04x = %v, want NaN", h, f)
			}
			if back := FloatToHalf(f); back&0x7c00 != 0x7c00 || back&0x3ff == 0 || back>>15 != h>>15 {
				t.Errorf("NaN %#04x came back as %#04x", h, back)
			}
			continue
		case h&0x7fff == 0x7c00:
			if !math.IsInf(float64(f), 1-2*int(h>>15)) {
				t.Errorf("%#04x = %v, want an infinity of its sign", h, f)
			}
		case float64(f) != halfByDefinition(h) || math.Signbit(float64(f)) != (h>>15 == 1):
			t.Errorf("%#04x = %v, want %v", h, f, halfByDefinition(h))
		}
		if back := FloatToHalf(f); back != h {
			t.Errorf("%#04x came back as %#04x", h, back)
		}
	}
}

func TestFloatToHalfRoundsToNearestEven(t *testing.T) {
	for h := uint16(0); h < 0x7c00; h++ { // every pair of neighbours, the last with the power of two above
		low, high := halfByDefinition(h), 65536.0
		if h+1 < 0x7c00 {
			high = halfByDefinition(h + 1)
		}
		middle := float32((low + high) / 2) // exact
		for _, c := range []struct {
			x    float32
			want uint16
		}{
			{middle, h + h&1},
			{math.Nextafter32(middle, 0), h},
			{math.Nextafter32(middle, 1e9), h + 1},
		} {
			if got := FloatToHalf(c.x); got != c.want {
				t.Fatalf("%v -> %#04x, want %#04x", c.x, got, c.want)
			}
			if got := FloatToHalf(-c.x); got != c.want|0x8000 {
				t.Fatalf("%v -> %#04x, want %#04x", -c.x, got, c.want|0x8000)
			}
		}
	}
	for x, want := range map[float32]uint16{
		0x1p-40: 0, math.SmallestNonzeroFloat32: 0, 1e30: 0x7c00, math.MaxFloat32: 0x7c00, float32(math.Inf(-1)): 0xfc00,
	} {
		if got := FloatToHalf(x); got != want {
			t.Errorf("%v -> %#04x, want %#04x", x, got, want)
		}
	}
}

func TestBF16RoundsToNearestEven(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		if f := BF16ToFloat(h); f == f {
			if back := FloatToBF16(f); back != h {
				t.Fatalf("%#04x came back as %#04x", h, back)
			}
		} else if back := FloatToBF16(f); back != h|0x40 {
			t.Fatalf("NaN %#04x came back as %#04x", h, back)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		b := rng.Uint32()
		x := math.Float32frombits(b)
		if !isFinite(x) {
			continue
		}
		got := float64(BF16ToFloat(FloatToBF16(x)))
		down, up := float64(BF16ToFloat(uint16(b>>16))), float64(BF16ToFloat(uint16(b>>16)+1))
		if math.IsInf(up, 0) {
			continue // its distance says nothing
		}
		toDown, toUp := math.Abs(float64(x)-down), math.Abs(up-float64(x))
		want := down
		if toUp < toDown || toUp == toDown && b>>16&1 == 1 {
			want = up
		}
		if got != want {
			t.Fatalf("%v -> %v, want %v", x, got, want)
		}
	}
	if got := FloatToBF16(math.Float32frombits(0x7f800001)); got != 0x7fc0 {
		t.Errorf("a NaN whose payload is in the low half became %#04x", got)
	}
}

func BenchmarkHalfToFloat(b *testing.B) {
	halves := make([]uint16, 4096)
	for i := range halves {
		halves[i] = FloatToHalf(float32(i-2048) * 1e-4)
	}
	var sum float32
	for b.Loop() {
		for _, h := range halves {
			sum += HalfToFloat(h)
		}
	}
	_ = sum
}
