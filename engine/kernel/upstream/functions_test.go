package upstream

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// The file has arguments and results, as the bits of float32 in hexadecimal, of the functions of glibc 2.36 on a processor with
// FMA, written by a C program: arguments from all over the range that matters, and those for which a slightly different
// computation was seen to differ. All arguments in that range were compared once, and none differed.
func TestFunctionsAreTheCLibrarys(t *testing.T) {
	f, err := os.Open("testdata/functions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	functions := map[string]func(float32) float32{
		"expf": ScalarExp, "logf": Log, "tanhf": Tanh,
		"sinf": func(x float32) float32 { sin, _ := Sincos(x); return sin },
		"cosf": func(x float32) float32 { _, cos := Sincos(x); return cos },
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, pairs, _ := strings.Cut(lines.Text(), ":")
		function := functions[name]
		delete(functions, name)
		for _, pair := range strings.Fields(pairs) {
			var x, want uint32
			if _, err := fmt.Sscanf(pair, "%x:%x", &x, &want); err != nil {
				t.Fatal(err)
			}
			argument := math.Float32frombits(x)
			if got := math.Float32bits(function(argument)); got != want {
				t.Errorf("%s(%g) has bits %08x, want %08x", name, argument, got, want)
			}
		}
	}
	if err := lines.Err(); err != nil || len(functions) != 0 {
		t.Errorf("not in the file: %v, %v", functions, err)
	}
}
