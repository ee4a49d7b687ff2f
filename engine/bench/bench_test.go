package bench

import (
	"bytes"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/gguf"

	"github.com/google/go-cmp/cmp"
)

func openTiny(t *testing.T) *engine.Model {
	t.Helper()
	m, err := engine.Open("../testdata/conformance/models/llama-tiny.gguf", engine.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestRunTakesTheSamplesAskedForAndDescribesThem(t *testing.T) {
	m := openTiny(t)
	var progress []int
	r, err := Run(t.Context(), m, Options{
		Prompt: 8, Generate: 3, Depth: 5, Repetitions: 2, Mask: []int{3, 1}, TypeK: gguf.F16, TypeV: gguf.F16,
		Trace: "a", DepthTrace: "d", Progress: func(done, _ int) { progress = append(progress, done) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.SamplesNS) != 2 || r.SamplesNS[0] <= 0 || r.SamplesNS[1] <= 0 {
		t.Errorf("samples %v, want two positive ones", r.SamplesNS)
	}
	if r.Test() != "pp8+tg3 @ d5" || r.Mask != "1,3" || r.TypeK != "f16" || r.Threads != 2 || r.Batch != 2048 || r.UBatch != 512 {
		t.Errorf("described as %q mask %q cache %s threads %d batch %d/%d", r.Test(), r.Mask, r.TypeK, r.Threads, r.Batch, r.UBatch)
	}
	if d := cmp.Diff([]int{1, 2}, progress); d != "" {
		t.Errorf("progress: %s", d)
	}
}

func TestASavedStateStandsForTheDepth(t *testing.T) {
	m := openTiny(t)
	o := Options{Prompt: 4, Depth: 20, TypeK: gguf.F16, TypeV: gguf.F16, Trace: "a", DepthTrace: "d"}
	var state bytes.Buffer
	if err := Prefill(t.Context(), m, o, &state); err != nil {
		t.Fatal(err)
	}
	logits := func(o Options) []float32 {
		x, err := newTest(m, o)
		if err != nil {
			t.Fatal(err)
		}
		defer x.c.Close()
		if err := x.reachDepth(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := x.process(t.Context(), x.tokens.prompt(4)); err != nil {
			t.Fatal(err)
		}
		return append([]float32(nil), x.c.Logits(3)...)
	}
	fresh := logits(o)
	o.State = bytes.NewReader(state.Bytes())
	if d := cmp.Diff(fresh, logits(o)); d != "" {
		t.Errorf("logits after a loaded state differ from those after processing the depth:\n%s", d)
	}
	r, err := Run(t.Context(), m, o)
	if err != nil || r.StateLoaded != 20 {
		t.Errorf("Run with a state: loaded %d, %v", r.StateLoaded, err)
	}
	o.Mask = []int{0}
	if _, err := Run(t.Context(), m, o); err == nil {
		t.Error("a state of another mask was accepted")
	}
}

func TestEqualTracesGiveEqualTokens(t *testing.T) {
	m := openTiny(t)
	draw := func(name string) ([]int32, []int32) {
		tr, err := newTrace(m, name)
		if err != nil {
			t.Fatal(err)
		}
		return tr.prompt(50), tr.generated(50)
	}
	p1, g1 := draw("seed 1 block 0")
	p2, g2 := draw("seed 1 block 0")
	p3, _ := draw("seed 1 block 1")
	if !cmp.Equal(p1, p2) || !cmp.Equal(g1, g2) {
		t.Error("the same trace gave different tokens")
	}
	if cmp.Equal(p1, p3) || cmp.Equal(p1, g1) {
		t.Error("different traces or parts gave the same tokens")
	}
	if p1[0] != 1 || g1[0] != 1 {
		t.Errorf("the prompt begins with %d and the generation with %d, want the beginning-of-sequence token 1", p1[0], g1[0])
	}
}

func TestNothingToDoIsRefused(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "bench: nothing to do: prompt and generate are both 0"},
		{Options{Prompt: -1}, "bench: negative count: prompt -1, generate 0, depth 0, repetitions 0"},
	} {
		if _, err := Run(t.Context(), openTiny(t), c.o); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
