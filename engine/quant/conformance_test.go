package quant

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attnbudget/engine/gguf"
)

const (
	ownConformance    = "../testdata/conformance"
	sharedConformance = "../../../shared/conformance"
)

// quantized is what upstream's quantiser made of one model: an entry of quantize.json.
type quantized struct {
	Model, FType string
	FileSHA256   string `json:"file_sha256"`
	Size         int64
	Tensors      []quantizedTensor
}

type quantizedTensor struct {
	Name, Type string
	Shape      []int
	SHA256     string
}

func readQuantized(t *testing.T) []quantized {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(ownConformance, "quantize.json"))
	if err != nil {
		t.Fatal(err)
	}
	var entries []quantized
	if err := json.Unmarshal(raw, &entries); err != nil {
		t.Fatal(err)
	}
	return entries
}

// modelPath finds a conformance model; the larger ones are only in the shared conformance data.
func modelPath(t *testing.T, name string) string {
	t.Helper()
	for _, folder := range []string{ownConformance, sharedConformance} {
		path := filepath.Join(folder, "models", name+".gguf")
		_, err := os.Stat(path)
		if err == nil {
			return path
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	t.Skipf("model %s is not here: it belongs to the shared conformance data", name)
	return ""
}

// Every tensor of every conformance model has upstream's type, shape and bytes in every mix, and so has the whole file.
func TestQuantizedFilesEqualUpstreams(t *testing.T) {
	for _, want := range readQuantized(t) {
		t.Run(want.Model+"/"+want.FType, func(t *testing.T) {
			t.Parallel()
			in := modelPath(t, want.Model)
			if testing.Short() && strings.HasSuffix(want.Model, "-wide") && want.Model != "llama-wide" {
				t.Skip("short: one wide model only")
			}
			mix, err := ParseMix(want.FType)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(want.Model, "gemma4") {
				in = expand(t, in)
			}
			out := filepath.Join(t.TempDir(), "out.gguf")
			if err := QuantizeFile(t.Context(), in, out, mix, Options{Threads: 1}); err != nil {
				t.Fatal(err)
			}
			got := describe(t, out)
			got.Model, got.FType = want.Model, want.FType
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-upstream +ours)\n%s", diff)
			}
		})
	}
}

// expand writes a copy of a model with all weights in F32. Upstream's quantiser was given such copies, which shows where a
// matrix is never quantised (gemma4's per_layer_model_proj) and so keeps its type.
func expand(t *testing.T, path string) string {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := filepath.Join(t.TempDir(), "f32.gguf")
	w, err := gguf.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.CopyMetadata(f))
	for _, tensor := range f.Tensors {
		must(w.Add(tensor.Name, gguf.F32, tensor.Shape))
	}
	for _, tensor := range f.Tensors {
		x := make([]float32, tensor.Elements())
		Dequantize(tensor.Type, x, tensor.Data)
		wide := make([]byte, 4*len(x))
		Quantize(gguf.F32, wide, x)
		must(w.Data(tensor.Name, wide))
	}
	must(w.Finish())
	return out
}

// describe summarises a file as quantize.json does.
func describe(t *testing.T, path string) (q quantized) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, tensor := range f.Tensors {
		sum := sha256.Sum256(tensor.Data)
		q.Tensors = append(q.Tensors, quantizedTensor{tensor.Name, tensor.Type.String(), tensor.Shape, hex.EncodeToString(sum[:])})
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	q.Size = info.Size()
	if q.FileSHA256, err = gguf.Fingerprint(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return q
}
