package synth

import (
	"math"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/drop"
)

// logitsOf runs a few tokens through a model and returns the logits of the last.
func logitsOf(t *testing.T, shape, format string, opt Options) []float32 {
	t.Helper()
	m, err := engine.OpenFile(write(t, shape, format, opt), engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := m.NewContext(engine.ContextOptions{NCtx: 64, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := &engine.Batch{Tokens: []int32{1, 260, 270, 280}, Pos: []int32{0, 1, 2, 3}, Seqs: [][]int32{{0}, {0}, {0}, {0}}, Logits: []bool{false, false, false, true}}
	if err := c.Decode(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return c.Logits(3)
}

func TestTinyShapesRunInTheEngine(t *testing.T) {
	for _, shape := range tinyShapes {
		for _, format := range []string{"F32", "BF16", "Q8_0", "Q4_0", "Q4_K_M"} {
			t.Run(shape+"/"+format, func(t *testing.T) {
				logits := logitsOf(t, shape, format, Options{Seed: 1})
				var squares float64
				for _, x := range logits {
					squares += float64(x) * float64(x)
				}
				// Normalised activations times rows of unit length: about 1; far outside, the weights are out of scale.
				if rms := math.Sqrt(squares / float64(len(logits))); math.IsNaN(rms) || rms < 0.2 || rms > 5 {
					t.Errorf("logits have a root mean square of %g", rms)
				}
			})
		}
	}
}

func TestSparseModelGivesZeroLogits(t *testing.T) {
	for _, shape := range tinyShapes {
		for i, x := range logitsOf(t, shape, "Q8_0", Options{Sparse: true}) {
			if x != 0 {
				t.Fatalf("%s: logit %d is %g", shape, i, x)
			}
		}
	}
}

func TestTrueShapesLoadInTheEngine(t *testing.T) {
	for _, name := range Names() {
		layers := 6 // reaches a layer without window in Gemma models, a gated one in Qwen
		s, err := find(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		layers = min(layers, s.arch.size().layers)
		m, err := engine.OpenFile(write(t, name, "Q4_K_M", Options{Sparse: true, Layers: layers}), engine.Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if i := m.Info(); i.Layers != layers || i.FileType != "Q4_K_M" {
			t.Errorf("%s: %+v", name, i)
		}
		attends := 0
		for _, r := range m.Roles() {
			if r.Attends() {
				attends++
			}
		}
		if attends == 0 || m.Roles()[0].Kind == drop.MTP {
			t.Errorf("%s: roles %v", name, m.Roles())
		}
	}
}
