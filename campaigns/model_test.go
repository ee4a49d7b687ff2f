package campaigns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/engine/builtin"
	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
	"attnbudget/plan"
)

// quantised writes the builtin model in a format.
func quantised(t *testing.T, folder string, mix quant.Mix) string {
	t.Helper()
	data, err := builtin.Open("glossary-5m")
	if err != nil {
		t.Fatal(err)
	}
	in, out := filepath.Join(folder, "in.gguf"), filepath.Join(folder, mix.String()+".gguf")
	if err := os.WriteFile(in, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := quant.QuantizeFile(t.Context(), in, out, mix, quant.Options{}); err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAQuantisedModelIsUsedAsItIsAndNotQuantisedAgain(t *testing.T) {
	folder := t.TempDir()
	quantised(t, folder, quant.Q8_0)
	const head = "name: test\nmodels: {q: Q8_0.gguf}\n"
	p := loadFile(t, write(t, filepath.Join(folder, "own.yaml"), head+prompt16)).Plan()
	if p.Arms[0].Format != "Q8_0" || p.Models[0].Format != "Q8_0" {
		t.Errorf("format %s of a model in %s", p.Arms[0].Format, p.Models[0].Format)
	}
	loadFile(t, write(t, filepath.Join(folder, "same.yaml"), head+"formats: [Q8_0]\n"+prompt16))

	path := write(t, filepath.Join(folder, "again.yaml"), head+"formats: [Q8_0, Q4_0]\n"+prompt16)
	_, err := Load(t.Context(), path)
	want := path + `:3:17: model "q" cannot become Q4_0: it is quantised already (token_embd.weight is Q8_0)
    3 | formats: [Q8_0, Q4_0]
      |                 ^^^^
  hint: give the model in F16, BF16 or F32; rounding twice adds up errors`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestTheSizeOfAFormatIsThatOfTheQuantisersTensors(t *testing.T) {
	c := load(t, prompt16)
	for _, mix := range []quant.Mix{quant.Q8_0, quant.Q4_K_M, quant.Q4_0} {
		f, err := gguf.Open(quantised(t, t.TempDir(), mix))
		if err != nil {
			t.Fatal(err)
		}
		var want int64
		for _, tensor := range f.Tensors {
			want += int64(len(tensor.Data))
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := c.models[0].bytes(mix.String()); err != nil || got != want {
			t.Errorf("%s: %d bytes, %v; the tensors have %d", mix, got, err, want)
		}
	}
}

func TestAnUnsupportedArchitectureIsNamed(t *testing.T) {
	folder := t.TempDir()
	w, err := gguf.Create(filepath.Join(folder, "other.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Set("general.architecture", gguf.ValueOf("mamba")); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	path := write(t, filepath.Join(folder, "c.yaml"), "name: test\nmodels: {m: other.gguf}\n"+prompt16)
	_, err = Load(t.Context(), path)
	want := path + `:2:13: other.gguf: architecture mamba is not supported and nothing in it may be dropped; supported are llama, gemma3, qwen35, gemma4 (each without experts)
    2 | models: {m: other.gguf}
      |             ^^^^^^^^^^`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestAModelFileIsKnownByItsFingerprint(t *testing.T) {
	folder := t.TempDir()
	model := quantised(t, folder, quant.Q8_0)
	sum, err := gguf.Fingerprint(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, filepath.Join(folder, "c.yaml"), fmt.Sprintf("name: test\nmodels: {m: {path: Q8_0.gguf, sha256: %s}}\n%s", sum, prompt16))
	p := loadFile(t, path).Plan()
	info, err := os.Stat(model)
	if err != nil {
		t.Fatal(err)
	}
	want := plan.Model{Name: "m", Source: "Q8_0.gguf", Path: model, Fingerprint: sum, Bytes: info.Size(), Format: "Q8_0", Vocab: p.Models[0].Vocab}
	if p.Models[0] != want || want.Vocab < 256 {
		t.Errorf("got %+v, want %+v", p.Models[0], want)
	}
	if p.Units[0].Key.ModelFingerprint != sum {
		t.Error("the fingerprint is not in the unit's key")
	}
}

func TestACutModelFileIsRefused(t *testing.T) {
	folder := t.TempDir()
	model := quantised(t, folder, quant.Q4_0)
	info, err := os.Stat(model)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(model, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	_, err = Load(t.Context(), write(t, filepath.Join(folder, "c.yaml"), "name: test\nmodels: {m: Q4_0.gguf}\n"+prompt16))
	if err == nil || !strings.Contains(err.Error(), "Q4_0.gguf cannot be read as GGUF") {
		t.Errorf("%v", err)
	}
}
