package inspect

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
	"attnbudget/engine/synth"
	"attnbudget/internal/golden"
)

const models = "../testdata/conformance/models"

func report(t *testing.T, path string) *Report {
	t.Helper()
	r, err := File(t.Context(), path, true)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReportsOfConformanceModels(t *testing.T) {
	for _, name := range []string{"llama-tiny", "gemma3-tiny", "qwen35-tiny", "gemma4-tiny"} {
		t.Run(name, func(t *testing.T) {
			r := report(t, filepath.Join(models, name+".gguf"))
			var text bytes.Buffer
			if err := r.WriteText(&text, false); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", name+".txt"), text.Bytes())
		})
	}
}

func TestLayersSayWhatTheyStore(t *testing.T) {
	r := report(t, filepath.Join(models, "gemma4-tiny.gguf"))
	if len(r.Layers) != 8 {
		t.Fatalf("%d layers, %s", len(r.Layers), r.NotRunnable)
	}
	// 2 heads of 64 (local) or 128 (full) elements, keys and values, 2 bytes each; layers from 5 on share.
	for i, want := range []int64{512, 512, 512, 512, 1024, 0, 0, 0} {
		if got := r.Layers[i].KVPerToken; got != want {
			t.Errorf("layer %d stores %d bytes a token, want %d", i, got, want)
		}
	}
	if l := r.Layers[7]; l.Owner != 4 || l.Window != 0 || !strings.Contains(l.Role, "layer 4") {
		t.Errorf("layer 7: %+v", l)
	}
	if l := r.Layers[0]; l.Window != 16 || l.AttentionBytes <= 0 || l.AttentionBytes >= l.Bytes {
		t.Errorf("layer 0: %+v", l)
	}

	q := report(t, filepath.Join(models, "qwen35-tiny.gguf"))
	// Convolution: 3 inputs of 512 channels; delta state: 4 heads of 64 x 64.
	if l := q.Layers[0]; l.StateBytes != 4*(3*512+4*64*64) || l.KVPerToken != 0 || l.AttentionBytes != 0 {
		t.Errorf("recurrent layer: %+v", l)
	}
}

func TestCachesOfALargeModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.gguf")
	if err := synth.Write(t.Context(), path, "llama-3.1-8b", "Q4_K_M", synth.Options{Layers: 2, Sparse: true}); err != nil {
		t.Fatal(err)
	}
	r, err := File(t.Context(), path, false)
	if err != nil {
		t.Fatal(err)
	}
	if r.FileType != "Q4_K_M" || r.NotRunnable != "" || len(r.Layers) != 2 || r.Layers[1].KVPerToken != 4096 {
		t.Fatalf("%s, %s, %+v", r.FileType, r.NotRunnable, r.Layers)
	}
	for _, want := range []Cache{{8192, "F16", 8192 * 2 * 4096}, {131072, "Q8_0", 131072 * 2 * 2176}, {2048, "Q4_0", 2048 * 2 * 1152}} {
		if !slices.Contains(r.Caches, want) {
			t.Errorf("no %+v in %+v", want, r.Caches)
		}
	}
}

func TestJSONHoldsTheWholeReport(t *testing.T) {
	r := report(t, filepath.Join(models, "llama-tiny.gguf"))
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Schema != Schema || back.Fingerprint != r.Fingerprint || len(back.Fingerprint) != 64 || len(back.Tensors) != 40 || len(back.Layers) != 4 {
		t.Errorf("read back: %+v", back)
	}
	if e := back.Metadata[4]; e.Key != "tokenizer.ggml.tokens" || e.Length != 320 || len(e.Value.([]any)) != shown {
		t.Errorf("tokens: %+v", e)
	}
	if back.Types[0].Type != "F16" || back.Types[0].Tensors+back.Types[1].Tensors != 40 {
		t.Errorf("types: %+v", back.Types)
	}
}

func TestAForeignModelIsReportedWithTheReasonItDoesNotRun(t *testing.T) {
	f, err := gguf.NewFile("mamba.gguf", []gguf.Entry{
		{Key: "general.architecture", Value: gguf.ValueOf("mamba")},
		{Key: "odd", Value: gguf.ValueOf([]float32{float32(math.NaN()), 1})},
		{Key: "empty", Value: gguf.ValueOf([]string{})},
	}, []*gguf.Tensor{{Name: "a.weight", Type: gguf.Q4_0, Shape: []int{64, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	r := Of(f)
	if !strings.Contains(r.NotRunnable, "mamba") || r.Bytes != 72 || r.FileType != "not stated" {
		t.Errorf("%+v", r)
	}
	var text, js bytes.Buffer
	if err := r.WriteText(&text, true); err != nil || !strings.Contains(text.String(), "does not run") || !strings.Contains(text.String(), "a.weight") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := r.WriteJSON(&js); err != nil || !strings.Contains(js.String(), `"NaN"`) {
		t.Errorf("%v\n%s", err, js.String())
	}
}

func TestAnAbsentFileIsAnError(t *testing.T) {
	if _, err := File(t.Context(), filepath.Join(t.TempDir(), "none.gguf"), false); err == nil {
		t.Error("a report on nothing")
	}
}

func TestSizesAreRenderedInReadableUnits(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 512: "512 B", 9999: "9999 B", 16384: "16.0 KiB", 5 << 20: "5120.0 KiB", 50 << 20: "50.0 MiB", 5 << 30: "5120.0 MiB", 50 << 30: "50.0 GiB"} {
		if got := size(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
