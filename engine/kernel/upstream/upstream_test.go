package upstream

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestFMARoundsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		a, b := float32(r.NormFloat64()), float32(r.NormFloat64())
		c := float32(r.NormFloat64() * math.Exp2(float64(r.IntN(60)-40)))
		if r.IntN(2) == 0 { // close to cancelling, or to a tie
			c = -float32(float64(a)*float64(b)) * (1 + float32(r.IntN(3)-1)*0x1p-23)
		}
		exact := new(big.Float).SetPrec(300)
		exact.Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
		exact.Add(exact, big.NewFloat(float64(c)))
		if want, _ := exact.Float32(); fma(a, b, c) != want {
			t.Fatalf("fma(%g, %g, %g) = %g, want %g", a, b, c, fma(a, b, c), want)
		}
	}
}

// A float64 sum that is rounded twice goes to the even neighbour of this tie.
func TestFMARoundsTiesOfTheSumCorrectly(t *testing.T) {
	a, c := float32(1+0x1p-23), float32(0x1p-54)
	got := fma(a, 1+0x1p-12, c)
	exact := new(big.Float).SetPrec(300).Mul(big.NewFloat(float64(a)), big.NewFloat(1+0x1p-12))
	want, _ := exact.Add(exact, big.NewFloat(float64(c))).Float32()
	if got != want {
		t.Errorf("%b, want %b", got, want)
	}
}

func TestFunctionsAreCloseToFloat64(t *testing.T) {
	for x := float32(-104); x < 88; x += 0.0137 {
		near(t, "Exp", x, Exp(x), math.Exp(float64(x)), 2)
		near(t, "ScalarExp", x, ScalarExp(x), math.Exp(float64(x)), 1)
	}
	for x := float32(-1000); x < 1e6; x += max(0.0137, x/1000) {
		sin, cos := Sincos(x)
		near(t, "sin", x, sin, math.Sin(float64(x)), 1)
		near(t, "cos", x, cos, math.Cos(float64(x)), 1)
	}
}

// near allows some units in the last place.
func near(t *testing.T, name string, x, got float32, want float64, units float64) {
	t.Helper()
	unit := float64(math.Nextafter32(float32(math.Abs(want)), math.MaxFloat32)) - math.Abs(float64(float32(want)))
	if d := math.Abs(float64(got) - want); !(d <= units*unit) {
		t.Fatalf("%s(%g) = %g, want %g", name, x, got, want)
	}
}

func TestExpBeyondFloat32(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, exp := range []func(float32) float32{Exp, ScalarExp} {
		if exp(inf) != inf || exp(1000) != inf || exp(-inf) != 0 || exp(-1000) != 0 || exp(0) != 1 {
			t.Errorf("%g %g %g %g %g", exp(inf), exp(1000), exp(-inf), exp(-1000), exp(0))
		}
		if nan := exp(float32(math.NaN())); nan == nan {
			t.Errorf("exp of NaN is %g", nan)
		}
	}
}

func TestFMAOfWhatIsNotFinite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct{ a, b, c, want float32 }{
		{inf, 1, 2, inf}, {-inf, 1, 2, -inf}, {1, 2, -inf, -inf}, {3e38, -3e38, 1, -inf}, {inf, 0, 1, nan}, {inf, 1, -inf, nan}, {nan, 1, 1, nan}, {1, 1, nan, nan},
	} {
		if got := fma(c.a, c.b, c.c); got != c.want && !(got != got && c.want != c.want) {
			t.Errorf("fma(%g, %g, %g) = %g, want %g", c.a, c.b, c.c, got, c.want)
		}
	}
}

func TestFunctionsOfLargeArguments(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, x := range []float32{20.1, 23.7, 89, 1e30, inf} {
		if y := Softplus(x); y != x {
			t.Errorf("Softplus(%g) = %g", x, y)
		}
		if x > 22 && (Tanh(x) != 1 || Tanh(-x) != -1) {
			t.Errorf("Tanh(±%g) = %g and %g", x, Tanh(x), Tanh(-x))
		}
		if x > 104 && Softplus(-x) != 0 {
			t.Errorf("Softplus(%g) = %g", -x, Softplus(-x))
		}
	}
	for x := float32(-80); x < 20; x += 0.013 {
		if got, want := float64(Softplus(x)), math.Log1p(math.Exp(float64(x))); math.Abs(got-want) > 1e-7*max(1, want) {
			t.Fatalf("Softplus(%g) = %g, want %g", x, got, want)
		}
	}
}
