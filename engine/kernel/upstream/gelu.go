package upstream

import (
	"math"
	"sync"

	"attnbudget/engine/quant"
)

// GELUTable returns gelu(x), by the approximation with tanh, for every half precision x, rounded to half precision.
var GELUTable = sync.OnceValue(func() *[1 << 16]float32 {
	var table [1 << 16]float32
	for h := range table {
		x := quant.HalfToFloat(uint16(h))
		inner := float32(x*0.79788456080286535587989211986876) * fma(0.044715*x, x, 1)
		y := float32(0.5*x) * (1 + float32(math.Tanh(float64(inner))))
		table[h] = quant.HalfToFloat(quant.FloatToHalf(y))
	}
	return &table
})
