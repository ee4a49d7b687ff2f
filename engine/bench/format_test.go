package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"attnbudget/engine/meter"
	"attnbudget/internal/golden"

	"github.com/google/go-cmp/cmp"
)

func sample() []Result {
	base := Result{
		ModelFilename: "models/it's.gguf", ModelType: "llama 5M Q4_0", ModelBytes: 3_100_000, ModelParams: 5_247_232,
		CPU: "AMD \"EPYC\"", BuildCommit: "abc1234", Batch: 2048, UBatch: 512, Threads: 2, TypeK: "f16", TypeV: "f16",
		Prompt: 64, Time: time.Date(2026, 11, 29, 18, 30, 43, 0, time.UTC), SamplesNS: []int64{14241179, 10148523, 14092761}, Trace: "seed 1 block 0",
	}
	base.Collections, base.MinorFaults, base.MajorFaults = []int64{0, 0, 0}, []int64{17, 0, 0}, []int64{0, 0, 0}
	base.Work[meter.Attention] = meter.Count{Calls: 24, Bytes: 1 << 20, Operations: 5 << 30}
	base.Work[meter.Matrices] = meter.Count{Calls: 168, Bytes: 9_000_000, Operations: 3 << 30}
	deep := base
	deep.Prompt, deep.Generate, deep.Depth, deep.Mask, deep.StateLoaded, deep.SamplesNS = 0, 16, 256, "0,3", 256, []int64{17384935}
	deep.Collections, deep.MinorFaults, deep.MajorFaults = []int64{0}, []int64{1}, []int64{0}
	return []Result{base, deep}
}

func TestFormatsAreLlamaBenchs(t *testing.T) {
	for _, format := range Formats() {
		t.Run(format, func(t *testing.T) {
			var got bytes.Buffer
			if err := Write(&got, format, sample()); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", "sample."+format), got.Bytes())
		})
	}
}

// upstream reads one of the captured outputs of llama-bench.
func upstream(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "parsers", "testdata", "upstream", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFieldNamesAndOrderAreUpstreams(t *testing.T) {
	header, _, _ := strings.Cut(upstream(t, "llama-bench.csv"), "\n")
	var names []string
	for _, f := range sample()[0].fields() {
		names = append(names, f.name)
	}
	if d := cmp.Diff(strings.Split(header, ","), names); d != "" {
		t.Errorf("csv header: -upstream +ours\n%s", d)
	}

	create, _, _ := strings.Cut(upstream(t, "llama-bench.sql"), "\n\n")
	var got bytes.Buffer
	if err := Write(&got, "sql", sample()); err != nil {
		t.Fatal(err)
	}
	ours, _, _ := strings.Cut(got.String(), "\n\n")
	if d := cmp.Diff(create, ours); d != "" {
		t.Errorf("sql table: -upstream +ours\n%s", d)
	}
}

func TestJSONTypesAreUpstreams(t *testing.T) {
	line, _, _ := strings.Cut(upstream(t, "llama-bench.jsonl"), "\n")
	var theirs, ours map[string]any
	if err := json.Unmarshal([]byte(line), &theirs); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := Write(&got, "jsonl", sample()[:1]); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got.Bytes(), &ours); err != nil {
		t.Fatalf("%v in %s", err, got.String())
	}
	extra := []string{"engine", "attention_drop_layers", "trace", "n_state_loaded", "samples_gc", "samples_minor_faults", "samples_major_faults", "bytes_per_token", "operations_per_token", "work"}
	for name, v := range ours {
		want, known := theirs[name]
		switch {
		case !known && !slices.Contains(extra, name):
			t.Errorf("field %s is not upstream's", name)
		case known && jsonType(v) != jsonType(want):
			t.Errorf("field %s is %s, upstream's is %s", name, jsonType(v), jsonType(want))
		}
	}
	for name := range theirs {
		if _, has := ours[name]; !has {
			t.Errorf("upstream's field %s is missing", name)
		}
	}
}

func jsonType(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "array"
	}
	return "other"
}

func TestUnknownFormatListsTheKnownOnes(t *testing.T) {
	err := Write(&bytes.Buffer{}, "yaml", nil)
	const want = `unknown output format "yaml"; there are md, csv, json, jsonl, sql`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
