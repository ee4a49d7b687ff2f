package parsers

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fuzz feeds a stage's decoders with its own outputs, upstream's and whatever comes of them.
func fuzz(f *testing.F, stage string) {
	for _, o := range ownOutputs {
		f.Add([]byte(o.raw))
	}
	files, err := filepath.Glob("testdata/upstream/llama-*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		if stageOf(filepath.Base(name)) != stage {
			continue
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(excerpt(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		ms, err := Decode(stage, raw)
		if err != nil {
			var e *DecodeError
			if !errors.As(err, &e) || e.Kind == nil || e.Stage != stage || ms != nil {
				t.Errorf("%v, %v: want a complete *DecodeError and no measurements", ms, err)
			}
			return
		}
		if _, err := json.Marshal(ms); err != nil || len(ms) == 0 {
			t.Errorf("success without finite measurements: %+v, %v", ms, err)
		}
		again, err := Decode(stage, raw)
		if err != nil || !cmp.Equal(ms, again) {
			t.Errorf("the same bytes give something else: %v", err)
		}
	})
}

// excerpt keeps the first lines of a file, and of a server's log those about caches: the fuzzer minimises every input,
// which takes long for long ones.
func excerpt(raw []byte) []byte {
	var out []byte
	for l := range bytes.Lines(raw) {
		cache := bytes.Contains(l, []byte("llama_kv_cache")) || bytes.Contains(l, []byte("llama_memory_recurrent"))
		if cache || len(out) < 1000 && len(l) < 3000 {
			out = append(out, l...)
		}
	}
	return out
}

func FuzzThroughput(f *testing.F)     { fuzz(f, Throughput) }
func FuzzPerplexity(f *testing.F)     { fuzz(f, Perplexity) }
func FuzzHellaSwag(f *testing.F)      { fuzz(f, HellaSwag) }
func FuzzWinogrande(f *testing.F)     { fuzz(f, Winogrande) }
func FuzzMultipleChoice(f *testing.F) { fuzz(f, MultipleChoice) }
func FuzzKLDivergence(f *testing.F)   { fuzz(f, KLDivergence) }
func FuzzKV(f *testing.F)             { fuzz(f, KV) }
