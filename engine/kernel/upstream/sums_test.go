package upstream

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// recordedRow is exact in half precision and in bfloat16, but sums of its products are not exact in float32.
func recordedRow(seed uint64, n int) []float32 {
	r := rand.NewPCG(seed, 1)
	x := make([]float32, n)
	for i := range x {
		bits := r.Uint64()
		x[i] = float32(int8(bits>>32)) * float32(math.Exp2(-float64(bits>>56%12)))
	}
	return x
}

// The file has products of rows of 1, 2, 3 and so on elements by upstream's ggml_vec_dot_f32, _f16 and _bf16, compiled for AVX2
// (libggml-cpu-haswell) and called by a C program, as the bits of float32 in hexadecimal. The float32 rows are divided by 3, so
// that their products have to be rounded.
func TestProductsOfAllLengthsAreUpstreams(t *testing.T) {
	f, err := os.Open("testdata/dots.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ends := map[string]func(sums *[8]float32, a, b []float32) float32{"f32": EndDot32, "f16": EndDotF16, "bf16": EndDotBF16}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, bits, _ := strings.Cut(lines.Text(), ":")
		end := ends[name]
		delete(ends, name)
		fields := strings.Fields(bits)
		x, y := recordedRow(1, len(fields)), recordedRow(2, len(fields))
		if name == "f32" {
			for i := range x {
				x[i], y[i] = x[i]/3, y[i]/3
			}
		}
		for i, want := range fields {
			n := i + 1
			whole := n / 32 * 32
			sums := Sums32(x[:whole], y[:whole])
			if got := fmt.Sprintf("%08x", math.Float32bits(end(&sums, x[whole:n], y[whole:n]))); got != want {
				t.Errorf("%s of %d elements: %s, want %s", name, n, got, want)
			}
		}
	}
	if err := lines.Err(); err != nil || len(ends) != 0 {
		t.Errorf("not in the file: %v, %v", ends, err)
	}
}
