package parsers

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// What goes wrong in the forms that only upstream writes. The line is that of the mark, or of the whole output when there
// is none.
func TestWrongOutputsOfLlamaBenchAreRefusedWithKindAndLine(t *testing.T) {
	const secondObject = "  {\n    \"build_commit\": \"de3ff81\",\n"
	for _, c := range []struct {
		name, form, old, new string
		nth                  int // which old, from 1
		kind                 error
		mark                 string // on the line that is to be named
	}{
		{"a mean of other samples", "json", `"avg_ts": `, `"avg_ts": 1`, 2, ErrContradiction, secondObject},
		{"a mean that is no number", "json", `"avg_ts": `, `"avg_ts": nan, "x": `, 2, ErrNaN, secondObject},
		{"a missing field", "json", `"n_gen"`, `"n_generated"`, 2, ErrForm, secondObject},
		{"a sample of less than a nanosecond", "json", `"samples_ns": [ `, `"samples_ns": [ 1e-300, `, 2, ErrContradiction, secondObject},

		{"a value too few", "csv", `"CPU",`, "", 2, ErrTruncated, `1058048","1739040","2048","512","2","0x0","0","50","f16","f16","-1","0","layer","0","0","-1","auto","0.00","none","auto","auto","0","0","0","0","0","128"`},
		{"a value too many", "csv", `"CPU",`, `"CPU","CPU",`, 1, ErrContradiction, `"0","64","0","0"`},

		{"an INSERT without values", "sql", ") VALUES (", ") (", 1, ErrForm, "INSERT INTO"},
		{"an INSERT that ends early", "sql", ");\nINSERT", "\nINSERT", 1, ErrTruncated, "INSERT INTO"},

		{"a row too short", "md", "| CPU        |", "", 1, ErrForm, "pp64 |"},
		{"a row without an end", "md", "2854.06 ± 3091.85 |", "2854.06 ± 3091.85", 1, ErrTruncated, "pp64 |"},
		{"a test of no name", "md", "pp64 |", "zz64 |", 1, ErrForm, "zz64 |"},
		{"a mean without deviation", "md", "2854.06 ± 3091.85", "2854.06", 1, ErrForm, "pp64 |"},
		{"no build line", "md", "build: ", "", 1, ErrTruncated, "| model"},
		{"a build line before any row", "md", "| llama ?B Q4_K - Medium         |   1.01 MiB |     1.74 M | CPU        |       2 |            pp64 |", "build: de3ff81 (1)\n|", 1, ErrTruncated, "build: "},
	} {
		raw, err := os.ReadFile("testdata/upstream/llama-bench." + c.form)
		if err != nil {
			t.Fatal(err)
		}
		wrong := replaceNth(string(raw), c.old, c.new, c.nth)
		if wrong == string(raw) {
			t.Fatalf("%s: %q is not in the output", c.name, c.old)
		}
		at := strings.Index(wrong, c.mark)
		if c.mark == secondObject {
			at += 1 + strings.Index(wrong[at+1:], c.mark)
		}
		want := 1 + strings.Count(wrong[:at], "\n")
		ms, err := Decode(Throughput, []byte(wrong))
		var e *DecodeError
		switch {
		case err == nil:
			t.Errorf("%s, %s: read as %d measurements", c.form, c.name, len(ms))
		case !errors.Is(err, c.kind) || !errors.As(err, &e) || e.Line != want:
			t.Errorf("%s, %s: %v; want kind %q in line %d", c.form, c.name, err, c.kind, want)
		}
	}
}

// replaceNth replaces the n-th occurrence, from 1.
func replaceNth(s, old, new string, n int) string {
	at := 0
	for range n - 1 {
		i := strings.Index(s[at:], old)
		if i < 0 {
			return s
		}
		at += i + len(old)
	}
	return s[:at] + strings.Replace(s[at:], old, new, 1)
}
