package parsers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/internal/golden"
)

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
			golden.Check(t, filepath.Join("testdata/golden", name+".txt"), rendered(stageOf(name), raw))
		})
	}
}
