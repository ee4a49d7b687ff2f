package parsers

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// What goes wrong in the forms that only upstream writes: in an output of testdata/upstream the nth occurrence of a text is
// replaced by another, and the error names the line on which a mark stands then; no mark is the output as a whole.
func TestWrongOutputsOfUpstreamAreRefusedWithKindAndLine(t *testing.T) {
	const (
		aRow      = "| llama ?B Q4_K - Medium         |   1.01 MiB |     1.74 M | CPU        |       2 |            pp64 |    2854.06 ± 3091.85 |"
		header    = "| model                          |       size |     params | backend    | threads |            test |                  t/s |"
		attention = "llama_kv_cache: size =    8.00 MiB (  8192 cells,   2 layers,  1/1 seqs), K (f16):    4.00 MiB, V (f16):    4.00 MiB"
	)
	for _, c := range []struct {
		name, file, old, new string
		nth                  int // which old, from 1
		kind                 error
		mark                 string
	}{
		{"a value too few", "llama-bench.csv", `"CPU",`, "", 2, ErrTruncated, `"0","128","0","0"`},
		{"a value too many", "llama-bench.csv", `"CPU",`, `"CPU","CPU",`, 1, ErrContradiction, `"0","64","0","0"`},

		{"an INSERT without values", "llama-bench.sql", ") VALUES (", ") (", 1, ErrForm, "INSERT INTO"},
		{"an INSERT that ends early", "llama-bench.sql", ");\nINSERT", "\nINSERT", 1, ErrTruncated, "INSERT INTO"},

		{"a row too short", "llama-bench.md", "| CPU        |", "", 1, ErrForm, "pp64 |"},
		{"a row without an end", "llama-bench.md", "2854.06 ± 3091.85 |", "2854.06 ± 3091.85", 1, ErrTruncated, "pp64 |"},
		{"a test of no name", "llama-bench.md", "pp64 |", "zz64 |", 1, ErrForm, "zz64 |"},
		{"a mean without deviation", "llama-bench.md", "2854.06 ± 3091.85", "2854.06", 1, ErrForm, "pp64 |"},
		{"a mean of 0", "llama-bench.md", "2854.06", "0.00", 1, ErrContradiction, "pp64 |"},
		{"a deviation below 0", "llama-bench.md", "3091.85", "-3091.85", 1, ErrContradiction, "pp64 |"},
		{"no build line", "llama-bench.md", "build: ", "", 1, ErrTruncated, header},
		{"a second table before the build line", "llama-bench.md", aRow, aRow + "\n\n" + header, 1, ErrTruncated, "\n\n" + header},
		{"a build line before any row", "llama-bench.md", aRow, "build: de3ff81 (1)", 1, ErrTruncated, "build: "},

		{"a running perplexity too few", "llama-perplexity-ppl-F16.log", "[157]24.2835,", "", 1, ErrTruncated, "[1]"},
		{"a running perplexity left out", "llama-perplexity-ppl-F16.log", "[2]31.2897,", "", 1, ErrContradiction, "[1]"},
		{"a final line of other chunks", "llama-perplexity-ppl-F16.log", "PPL = 24.2835", "PPL = 24.2836", 1, ErrContradiction, "PPL ="},
		{"a perplexity below 1", "llama-perplexity-ppl-F16.log", "PPL = 24.2835", "PPL = 0.2835", 1, ErrContradiction, "PPL ="},
		{"a perplexity that is not exp of its nll", "llama-perplexity-ppl-F16-type1.log", "31.2897  3.443289", "31.2897  3.443389", 1, ErrContradiction, "31.2897"},
		{"a row too few", "llama-perplexity-ppl-F16-type1.log", "       0  31.2897  3.443289  0.112271\n", "", 1, ErrTruncated, "24.2835"},
		{"a final line of other rows", "llama-perplexity-ppl-F16-type1.log", "PPL = 24.2835", "PPL = 24.2836", 1, ErrContradiction, "PPL ="},

		{"an accuracy of half a task", "llama-perplexity-hellaswag-F16-100.log", "2\t50.00000000%\t[9.4531%, 90.5469%]", "2\t25.00000000%\t[2.6677%, 80.2133%]", 1, ErrContradiction, "2\t25.0"},
		{"two tasks right at once", "llama-perplexity-hellaswag-F16-100.log", "2\t50.00000000%\t[9.4531%, 90.5469%]", "2\t100.00000000%\t[34.2380%, 100.0000%]", 1, ErrContradiction, "2\t100.0"},
		{"a right answer taken back", "llama-perplexity-hellaswag-F16-100.log", "3\t33.33333333%\t[6.1492%, 79.2340%]", "3\t0.00000000%\t[0.0000%, 56.1497%]", 1, ErrContradiction, "3\t0.0"},
		{"an interval of another accuracy", "llama-perplexity-hellaswag-F16-100.log", "[9.4531%", "[9.4533%", 1, ErrContradiction, "2\t50.0"},
		{"a task too few", "llama-perplexity-hellaswag-F16-100.log", "selecting 100", "selecting 101", 1, ErrTruncated, "100\t"},

		{"a pick against the scores", "llama-perplexity-winogrande-F16.log", "-2.891664   -2.741003  2  2", "-2.891664   -2.741003  1  1", 1, ErrContradiction, "1\t100.0"},
		{"no final line", "llama-perplexity-winogrande-F16.log", "Final Winogrande", "Initial Winogrande", 1, ErrTruncated, "0.08.441.621"},
		{"a final score of other tasks", "llama-perplexity-winogrande-F16.log", "77.0000 +/-", "77.2500 +/-", 1, ErrContradiction, "Final"},
		{"a final error of other tasks", "llama-perplexity-winogrande-F16.log", "2.1068", "2.1069999", 1, ErrContradiction, "Final"},

		{"a row of the table too few", "llama-perplexity-kld-Q4_0.log", "over 40 chunks", "over 41 chunks", 1, ErrTruncated, "  40      24.5847"},
		{"another root mean square than in the statistics", "llama-perplexity-kld-Q4_0.log", "1.938 ±  0.045", "1.948 ±  0.045", 1, ErrContradiction, "  40      24.5847"},
		{"another same top than in the statistics", "llama-perplexity-kld-Q4_0.log", "Same top p: 93.422", "Same top p: 93.522", 1, ErrContradiction, "  40      24.5847"},

		{"parts that are not the whole", "llama-server-qwen35-wide-Q4_0-c8192.log", attention, strings.Replace(attention, "8.00", "9.00", 1), 1, ErrContradiction, "llama_kv_cache: size"},
		{"a second cache of attention", "llama-server-qwen35-wide-Q4_0-c8192.log", attention, attention + "\n" + attention, 1, ErrContradiction, "llama_memory_recurrent: size"},
		{"another context", "llama-server-qwen35-wide-Q4_0-c8192.log", attention, attention + "\nllama_context: constructing llama_context\n" + attention, 1, ErrContradiction, "\nllama_kv_cache: size"},
		{"a sliding-window model without its second cache", "llama-server-gemma3-wide-Q4_0-c8192.log", "llama_kv_cache: size", "llama_kv_cash: size", 2, ErrTruncated, ""},
	} {
		raw, err := os.ReadFile("testdata/upstream/" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		wrong := replaceNth(string(raw), c.old, c.new, c.nth)
		if wrong == string(raw) {
			t.Fatalf("%s: %q is not in the output", c.name, c.old)
		}
		want := 0
		if c.mark != "" {
			want = 1 + strings.Count(wrong[:strings.Index(wrong, c.mark)], "\n") + (len(c.mark) - len(strings.TrimLeft(c.mark, "\n")))
		}
		ms, err := Decode(stageOf(c.file), []byte(wrong))
		var e *DecodeError
		switch {
		case err == nil:
			t.Errorf("%s, %s: read as %d measurements", c.file, c.name, len(ms))
		case !errors.Is(err, c.kind) || !errors.As(err, &e) || e.Line != want:
			t.Errorf("%s, %s: %v; want kind %q in line %d", c.file, c.name, err, c.kind, want)
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

func TestAJSONArrayNamesTheLineOfTheObjectThatIsWrong(t *testing.T) {
	raw, err := os.ReadFile("testdata/upstream/llama-bench.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, old, new string
		kind           error
	}{
		{"a mean of other samples", `"avg_ts": `, `"avg_ts": 1`, ErrContradiction},
		{"a mean that is no number", `"avg_ts": `, `"avg_ts": nan, "x": `, ErrNaN},
		{"a missing field", `"n_gen"`, `"n_generated"`, ErrForm},
		{"a sample of less than a nanosecond", `"samples_ns": [ `, `"samples_ns": [ 1e-300, `, ErrContradiction},
		{"no samples_ts for one of them", `"samples_ts": [ `, `"samples_ts": [ 1, `, ErrContradiction},
	} {
		wrong := replaceNth(string(raw), c.old, c.new, 2)
		opening := "\n  {"
		at := strings.Index(wrong, opening) + len(opening)
		want := 2 + strings.Count(wrong[:at+strings.Index(wrong[at:], opening)], "\n")
		_, err := Decode(Throughput, []byte(wrong))
		var e *DecodeError
		if !errors.Is(err, c.kind) || !errors.As(err, &e) || e.Line != want {
			t.Errorf("%s: %v; want kind %q in line %d", c.name, err, c.kind, want)
		}
	}
}
