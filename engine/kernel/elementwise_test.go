package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

func TestElementwiseAgreesWithFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for _, n := range []int{1, 7, 8, 16, 31, 64, 1000} {
		x, y := random(r, n), random(r, n)
		for i := range x {
			x[i] *= 20
		}
		var squares float64
		for _, v := range x {
			squares += float64(v) * float64(v)
		}
		norm := 1 / math.Sqrt(squares/float64(n)+1e-5)
		for _, c := range []struct {
			name string
			f    func(dst []float32)
			want func(i int) float64
		}{
			{"RMSNorm", func(d []float32) { RMSNorm(d, x, y, 1e-5) }, func(i int) float64 { return float64(x[i]) * norm * float64(y[i]) }},
			{"RMSNorm without weight", func(d []float32) { RMSNorm(d, x, nil, 1e-5) }, func(i int) float64 { return float64(x[i]) * norm }},
			{"SiLU", func(d []float32) { SiLU(d, x) }, func(i int) float64 { return float64(x[i]) * sigmoid(float64(x[i])) }},
			{"SiLUMul", func(d []float32) { SiLUMul(d, x, y) }, func(i int) float64 { return float64(x[i]) * sigmoid(float64(x[i])) * float64(y[i]) }},
			{"Sigmoid", func(d []float32) { Sigmoid(d, x) }, func(i int) float64 { return sigmoid(float64(x[i])) }},
			{"Add", func(d []float32) { copy(d, x); Add(d, y) }, func(i int) float64 { return float64(x[i]) + float64(y[i]) }},
			{"Mul", func(d []float32) { copy(d, x); Mul(d, y) }, func(i int) float64 { return float64(x[i]) * float64(y[i]) }},
			{"Scale", func(d []float32) { copy(d, x); Scale(d, 3) }, func(i int) float64 { return 3 * float64(x[i]) }},
		} {
			dst := make([]float32, n)
			c.f(dst)
			for i, v := range dst {
				if w := c.want(i); !(math.Abs(float64(v)-w) <= 3e-7*math.Abs(w)+1e-30) {
					t.Fatalf("%s of %d: element %d is %g, want %g (x %g, y %g)", c.name, n, i, v, w, x[i], y[i])
				}
			}
		}
	}
}

func TestSigmoidOfLargeArgumentsSaturates(t *testing.T) {
	inf := float32(math.Inf(1))
	x := []float32{-inf, -1000, -100, 0, 100, 1000, inf, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	got := make([]float32, len(x))
	Sigmoid(got, x)
	for i, want := range []float32{0, 0, 0, 0.5, 1, 1, 1} {
		if math.Abs(float64(got[i]-want)) > 1e-30 {
			t.Errorf("sigmoid(%g) = %g, want %g", x[i], got[i], want)
		}
	}
}

func TestGELUMulRoundsThroughHalfPrecision(t *testing.T) {
	x := []float32{-20, -10, -9.99, -3, -1.2345678, -0.1, 0, 1e-6, 0.3333333, 1, 2.5, 9.99, 10, 17.123456, -0.75, 4}
	one, got := make([]float32, len(x)), make([]float32, len(x))
	for i := range one {
		one[i] = 1
	}
	round := func(x float64) float64 { return float64(quant.HalfToFloat(quant.FloatToHalf(float32(x)))) }
	GELUMul(got, x, one)
	for i, v := range x {
		want := float64(v)
		if v <= -10 {
			want = 0
		} else if v < 10 {
			h := round(want)
			want = round(0.5 * h * (1 + math.Tanh(0.7978845608028654*h*(1+0.044715*h*h))))
		}
		if float64(got[i]) != want {
			t.Errorf("gelu(%g) = %g, want %g", v, got[i], want)
		}
	}
}

func TestSoftmax(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	for _, n := range []int{1, 5, 16, 100, 513} {
		x := random(r, n)
		for i := range x {
			if x[i] *= 30; i%7 == 3 {
				x[i] = negInf
			}
		}
		want, sum := make([]float64, n), 0.0
		top := negInf
		for _, v := range x {
			top = max(top, v)
		}
		for i, v := range x {
			want[i] = math.Exp(float64(v - top)) // the difference is rounded to float32
			sum += want[i]
		}
		Softmax(x)
		for i, v := range x {
			if w := want[i] / sum; math.Abs(float64(v)-w) > 1e-6*w+1e-37 {
				t.Fatalf("softmax of %d: element %d is %g, want %g", n, i, v, w)
			}
		}
	}
	hidden := []float32{negInf, negInf, negInf}
	Softmax(hidden)
	same(t, "softmax of -Inf", hidden, []float32{0, 0, 0})
}

func TestRoPERotatesByTheIteratedAngle(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	factors := []float32{1, 1, 1.5, 2, 4, 8, 8, 8}
	for _, neox := range []bool{false, true} {
		for _, f := range [][]float32{nil, factors} {
			const heads, dim, nRot = 3, 24, 16
			rope := NewRoPE(nRot, 500000, 0.125, f, neox)
			for _, pos := range []int32{0, 1, 511, 512, 100000, 1} {
				x := random(r, heads*dim)
				got := append([]float32(nil), x...)
				rope.Apply(got, heads, dim, pos)
				ratio := float32(math.Pow(500000, -2.0/nRot))
				for h := range heads {
					theta := float32(pos)
					for i := range nRot / 2 {
						angle := theta
						if f != nil {
							angle /= f[i]
						}
						a, b := 2*i, 2*i+1
						if neox {
							a, b = i, i+nRot/2
						}
						sin, cos := math.Sincos(float64(angle * 0.125))
						u, v := float64(x[h*dim+a]), float64(x[h*dim+b])
						if math.Abs(float64(got[h*dim+a])-(u*cos-v*sin)) > 1e-6 || math.Abs(float64(got[h*dim+b])-(u*sin+v*cos)) > 1e-6 {
							t.Fatalf("neox %v, factors %v, position %d: pair %d wrong", neox, f != nil, pos, i)
						}
						theta *= ratio
					}
					same(t, "elements beyond n_rot", got[h*dim+nRot:(h+1)*dim], x[h*dim+nRot:(h+1)*dim])
				}
			}
		}
	}
}

func TestStoreRowRoundTrips(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for typ, tolerance := range map[gguf.Type]float64{gguf.F32: 0, gguf.F16: 1e-3, gguf.BF16: 8e-3, gguf.Q8_0: 8e-3, gguf.Q4_0: 0.13} {
		x := random(r, 256)
		copy(x[64:96], make([]float32, 32))
		b, y := make([]byte, typ.RowBytes(256)), make([]float32, 256)
		StoreRow(typ, b, x)
		quant.Dequantize(typ, y, b)
		for blk := 0; blk < 256; blk += 32 {
			var top float64
			for _, v := range x[blk:][:32] {
				top = max(top, math.Abs(float64(v)))
			}
			for i := blk; i < blk+32; i++ {
				if math.Abs(float64(y[i]-x[i])) > tolerance*top {
					t.Fatalf("%v: element %d is %g, stored %g", typ, i, y[i], x[i])
				}
			}
		}
	}
}

func TestSoftCapIsATanh(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	x := append(random(r, 100), 0, 1000, -1000)
	for i := range 100 {
		x[i] *= 60
	}
	got := append([]float32(nil), x...)
	SoftCap(got, 30)
	for i, v := range x {
		if want := 30 * math.Tanh(float64(v)/30); math.Abs(float64(got[i])-want) > 1e-5 {
			t.Errorf("SoftCap(%g, 30) = %g, want %g", v, got[i], want)
		}
	}
}

func TestCodesInTheCacheAreRoundedToEven(t *testing.T) {
	x, want := make([]float32, 32), make([]int8, 32)
	copy(x, []float32{127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.25})
	copy(want, []int8{127, 0, 2, 2, 0, -2, -2, 3})
	row := make([]byte, gguf.Q8_0.RowBytes(32))
	StoreRow(gguf.Q8_0, row, x)
	for i, c := range want {
		if got := int8(row[2+i]); got != c {
			t.Errorf("%g is stored as %d, want %d", x[i], got, c)
		}
	}
}
