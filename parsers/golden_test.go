package parsers

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// stageOf is the stage whose output a fixture is, by upstream's tool.
func stageOf(name string) string {
	switch {
	case strings.Contains(name, "bench") || strings.HasPrefix(name, "lb-"):
		return Throughput
	case strings.Contains(name, "hellaswag") || strings.HasPrefix(name, "hs-"):
		return HellaSwag
	case strings.Contains(name, "winogrande"):
		return Winogrande
	case strings.Contains(name, "server") || strings.HasPrefix(name, "srv-"):
		return KV
	case strings.Contains(name, "multiple-choice") || strings.HasPrefix(name, "mc-"):
		return MultipleChoice
	case strings.Contains(name, "kld") && !strings.Contains(name, "kld-base"):
		return KLDivergence
	case strings.Contains(name, "perplexity") || strings.HasPrefix(name, "ppl-"):
		return Perplexity
	}
	return ""
}

// rendered is one measurement a line, or the error.
func rendered(stage string, raw []byte) []byte {
	ms, err := Decode(stage, raw)
	if err != nil {
		return fmt.Appendln(nil, "error:", err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for _, m := range ms {
		if err := e.Encode(m); err != nil {
			return fmt.Appendln(nil, "not JSON:", err)
		}
	}
	return b.Bytes()
}

func compareGolden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("differs from %s (-want +got):\n%s", path, diff)
	}
}

func TestUpstreamOutputsDecodeAsInGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/upstream/llama-*")
	if err != nil || len(files) < 30 {
		t.Fatalf("fixtures: %d files, %v", len(files), err)
	}
	for _, f := range files {
		name := filepath.Base(f)
		if strings.HasSuffix(name, ".stderr") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, filepath.Join("testdata/golden", name+".txt"), rendered(stageOf(name), raw))
		})
	}
}
