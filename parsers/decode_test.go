package parsers

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

// Outputs as docs/format/output.md says, one of each stage.
const (
	benchOutput = `{"build_commit": "abc", "build_number": 1, "cpu_info": "A CPU", "n_threads": 2, "type_k": "f16", "type_v": "f16", ` +
		`"n_prompt": 512, "n_gen": 0, "n_depth": 1024, "test_time": "2026-11-29T18:30:43Z", "avg_ns": 250000000, "stddev_ns": 0, ` +
		`"avg_ts": 2048.000000, "stddev_ts": 0.000000, "samples_ns": [ 250000000 ], "samples_ts": [ 2048 ], ` +
		`"engine": "embedded", "attention_drop_layers": "0,3", "trace": "seed 1 block 2", "n_state_loaded": 1024, ` +
		`"samples_gc": [ 0 ], "samples_minor_faults": [ 17 ], "samples_major_faults": [ 1 ], "bytes_per_token": 10.5, "operations_per_token": 8, ` +
		`"work": {"attention":{"calls":64,"bytes":256,"operations":1024},"matrices":{"calls":8,"bytes":5120,"operations":3072}}}` + "\n"

	kvOutput = "llama_kv_cache: size =    8.00 MiB (  8192 cells,   8 layers,  1/1 seqs), K (f16):    4.00 MiB, V (f16):    4.00 MiB\n" +
		`{"kind":"kv","n_ctx":8192,"n_seq_max":1,"caches":[{"name":"plain","cells":8192,"layers":[0,1,2,3,4,5,6,7],"type_k":"f16","type_v":"f16","bytes_k":4194304,"bytes_v":4194304}],"bytes":8388608}` + "\n"

	kvRecurrentOutput = "llama_kv_cache: size =    8.00 MiB (  8192 cells,   2 layers,  1/1 seqs), K (f16):    4.00 MiB, V (f16):    4.00 MiB\n" +
		"llama_memory_recurrent: size =    0.41 MiB (     1 cells,   3 layers,  1 seqs 0 rs_seq), R (f32):    0.04 MiB, S (f32):    0.38 MiB\n" +
		`{"kind":"kv","n_ctx":8192,"n_seq_max":1,"caches":[{"name":"plain","cells":8192,"layers":[3,7],"type_k":"f16","type_v":"f16","bytes_k":4194304,"bytes_v":4194304},` +
		`{"name":"recurrent","cells":1,"layers":[0,1,2],"type_k":"f32","type_v":"f32","bytes_k":36864,"bytes_v":393216}],"bytes":8818688}` + "\n"

	selfOutput = "llama_new_context_with_model: KV self size  =   40.62 MiB, K (f16):   20.31 MiB, V (f16):   20.31 MiB\n"

	perplexityOutput = "perplexity: calculating perplexity over 2 chunks, n_ctx=512, batch_size=2048, n_seq=4\n" +
		`{"kind":"perplexity_chunk","chunk":1,"tokens":255,"nll":933.12,"nll2":4013.5}` + "\n" +
		`{"kind":"perplexity_chunk","chunk":2,"tokens":255,"nll":822.25,"nll2":3420.75}` + "\n" +
		"[1]38.8339,[2]31.2463,\n" +
		"Final estimate: PPL = 31.2463 +/- 2.28846\n"

	hellaSwagOutput = `{"kind":"hellaswag_task","n":1,"task":217,"hash":"9c56cc51b374c3ba","scores":[-2.51,-3.02,-2.7,-2.66],"gold":0,"pick":0,"margin":0.15}` + "\n" +
		`{"kind":"hellaswag_task","n":2,"task":5,"hash":"00000000000000ff","scores":[-2.5,-2.5,-2.7,-2.1],"gold":1,"pick":3,"margin":-0.4}` + "\n" +
		"task\tacc_norm\t95% confidence interval\n" +
		"1\t100.00000000%\t[20.6549%, 100.0000%]\n" +
		"2\t50.00000000%\t[9.4531%, 90.5469%]\n"

	winograndeOutput = `{"kind":"winogrande_task","n":1,"task":0,"hash":"9c56cc51b374c3ba","scores":[-2.891664,-2.741003],"corrected":[-2.7,-2.9],"gold":2,"pick":2,"corrected_pick":1}` + "\n" +
		`{"kind":"winogrande_task","n":2,"task":1,"hash":"00000000000000ff","scores":[-3.5,-3.5],"corrected":[-3.5,-3.6],"gold":1,"pick":2,"corrected_pick":1}` + "\n" +
		"1\t100.0000\t -2.891664   -2.741003  2  2\n" +
		"2\t50.0000\t -3.500000   -3.500000  2  1\n"

	choiceOutput = `{"kind":"multiple_choice_task","n":1,"task":7,"hash":"9c56cc51b374c3ba","scores":[-2.5,-3.5,-2.75,-2.625],"gold":0,"pick":0,"margin":0.125}` + "\n" +
		`{"kind":"multiple_choice_task","n":2,"task":5,"hash":"00000000000000ff","scores":[-2.5,-2.25],"gold":1,"pick":1,"margin":0.25}` + "\n" +
		`{"kind":"multiple_choice_task","n":3,"task":6,"hash":"0000000000000100","scores":[-2.5,-2.5,-2.75,-2.125],"gold":1,"pick":3,"margin":-0.375}` + "\n" +
		"task\tacc_norm\n1\t100.00000000\n2\t100.00000000\n3\t66.66666667\n" +
		"Final result: 66.6667 +/- 33.3333\nRandom chance: 30.0000 +/- 32.4037\n"
)

var ownOutputs = []struct{ stage, raw string }{
	{Depth, benchOutput}, {KV, kvOutput}, {KV, kvRecurrentOutput}, {Perplexity, perplexityOutput}, {HellaSwag, hellaSwagOutput}, {Winogrande, winograndeOutput},
	{MultipleChoice, choiceOutput}, {KLDivergence, divergenceOutput(60)},
}

func decode(t *testing.T, stage, raw string) map[string]Measurement {
	t.Helper()
	ms, err := Decode(stage, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Measurement{}
	for _, m := range ms {
		out[m.Metric] = m
	}
	return out
}

func within(t *testing.T, what string, got, want, slack float64) {
	t.Helper()
	if !(math.Abs(got-want) <= slack) {
		t.Errorf("%s = %v, want %v within %v", what, got, want, slack)
	}
}

func TestThroughputIsComputedFromNanoseconds(t *testing.T) {
	m := decode(t, Depth, benchOutput)[TokensPerSecond]
	if m.Value != 2048 || m.StdErr != nil || m.StdDev != nil || m.Rounding != 0 || len(m.Samples) != 1 {
		t.Errorf("%+v", m)
	}
	for name, want := range map[string]string{"test": "pp512 @ d1024", "attention_drop_layers": "0,3", "n_threads": "2", "n_depth": "1024"} {
		if m.Labels[name] != want {
			t.Errorf("label %s is %q, want %q", name, m.Labels[name], want)
		}
	}
}

func TestWhatTheEngineCountedIsKeptApartFromTheLabels(t *testing.T) {
	m := decode(t, Depth, benchOutput)[TokensPerSecond]
	want := &Counted{
		Collections: []int{0}, MinorFaults: []int{17}, MajorFaults: []int{1}, BytesPerToken: 10.5, OperationsPerToken: 8,
		Work: map[string]Work{"attention": {Calls: 64, Bytes: 256, Operations: 1024}, "matrices": {Calls: 8, Bytes: 5120, Operations: 3072}},
	}
	if diff := cmp.Diff(want, m.Counted); diff != "" {
		t.Error(diff)
	}
	for label := range m.Labels {
		if results[label] {
			t.Errorf("the result %s is a label", label)
		}
	}
	older, _, _ := strings.Cut(benchOutput, `, "samples_minor_faults"`)
	if m := decode(t, Depth, older+"}\n")[TokensPerSecond]; !cmp.Equal(m.Counted, &Counted{Collections: []int{0}}) {
		t.Errorf("of an older build: %+v", m.Counted)
	}
}

func TestPerplexityIsComputedFromChunks(t *testing.T) {
	ms := decode(t, Perplexity, perplexityOutput)
	within(t, "nll", ms[NLL].Value, (933.12+822.25)/510, 1e-12)
	within(t, "perplexity", ms[PerplexityMetric].Value, math.Exp((933.12+822.25)/510), 1e-10)
	mean := (933.12 + 822.25) / 510
	se := math.Sqrt(((4013.5+3420.75)/510 - mean*mean) / 509)
	within(t, "error of nll", *ms[NLL].StdErr, se, 1e-12)
	within(t, "error of perplexity", *ms[PerplexityMetric].StdErr, se*math.Exp(mean), 1e-10)
	if c := ms[NLL].Chunks; len(c) != 2 || c[1].Tokens != 255 || c[1].Sum != 822.25 || *c[1].Sum2 != 3420.75 || c[1].Rounding != 0 {
		t.Errorf("chunks %+v", c)
	}
}

func TestHellaSwagAnswersKeepTheirHashes(t *testing.T) {
	m := decode(t, HellaSwag, hellaSwagOutput)[HellaSwagAccuracy]
	within(t, "accuracy", m.Value, 0.5, 0)
	a := m.Answers
	if len(a) != 2 || a[0].Hash != "9c56cc51b374c3ba" || !a[0].Correct || a[1].Correct || *a[0].Task != 217 {
		t.Errorf("%+v", a)
	}
	within(t, "margin", *a[1].Margin, -0.4, 1e-12)
}

func TestWinograndeHasBothRules(t *testing.T) {
	ms := decode(t, Winogrande, winograndeOutput)
	within(t, "by upstream's rule", ms[WinograndeAccuracy].Value, 0.5, 0)
	within(t, "by the corrected rule", ms[WinograndeFixed].Value, 0.5, 0)
	if ms[WinograndeAccuracy].Answers[0].Correct == ms[WinograndeFixed].Answers[0].Correct {
		t.Error("the two rules differ on task 1 and are read alike")
	}
}

func TestKVBytesLeaveRecurrentStateOut(t *testing.T) {
	ms := decode(t, KV, kvRecurrentOutput)
	for metric, want := range map[string]float64{KVBytes: 8388608, KVBytesK: 4194304, KVBytesV: 4194304, KVCells: 8192, RecurrentBytes: 430080} {
		if got := ms[metric]; got.Value != want || got.Rounding != 0 {
			t.Errorf("%s = %v, want %v", metric, got, want)
		}
	}
	if _, there := decode(t, KV, kvOutput)[RecurrentBytes]; there {
		t.Error("a plain cache has a recurrent state")
	}
}

// Cut at any byte, an output of one unit is refused, complete, or without its JSON line, which its rounding tells.
func TestAnOutputCutAnywhereIsNeverReadAsAnotherOne(t *testing.T) {
	for _, o := range ownOutputs {
		whole, err := Decode(o.stage, []byte(o.raw))
		if err != nil {
			t.Fatal(err)
		}
		for cut := range o.raw {
			got, err := Decode(o.stage, []byte(o.raw[:cut]))
			if err != nil || got[0].Rounding > 0 {
				continue
			}
			if diff := cmp.Diff(whole, got); diff != "" {
				t.Errorf("%s cut after %q is read as another output:\n%s", o.stage, o.raw[max(0, cut-40):cut], diff)
				break
			}
		}
	}
}

// The same of upstream's evaluators, whose logs end with what they announced.
func TestAnUpstreamLogCutAnywhereIsNeverReadAsAnotherOne(t *testing.T) {
	for _, f := range []string{"ppl-F16", "ppl-F16-c2048", "hellaswag-F16-100", "winogrande-F16", "multiple-choice-F16", "kld-Q4_0"} {
		raw, err := os.ReadFile("testdata/upstream/llama-perplexity-" + f + ".log")
		if err != nil {
			t.Fatal(err)
		}
		stage := stageOf("llama-perplexity-" + f)
		whole, err := Decode(stage, raw)
		if err != nil {
			t.Fatal(err)
		}
		for cut := len(raw); cut > 0; cut -= 37 {
			got, err := Decode(stage, raw[:cut])
			if err == nil && !cmp.Equal(whole, got) {
				t.Errorf("%s cut at byte %d is read as another output", f, cut)
				break
			}
		}
	}
}

func TestWrongOutputsAreRefusedWithKindAndLine(t *testing.T) {
	for _, c := range []struct {
		name, stage, raw, old, new string
		kind                       error
		line                       int
	}{
		{"nothing", Perplexity, "", "", "", ErrForm, 0},
		{"an unknown stage", "poetry", "roses", "", "", ErrForm, 0},
		{"a shell's complaint", Depth, "bash: run-campaign: command not found\n", "", "", ErrForm, 1},
		{"output of another stage", KV, perplexityOutput, "", "", ErrForm, 1},

		{"samples that do not give the mean", Depth, benchOutput, `"avg_ts": 2048.0`, `"avg_ts": 2049.0`, ErrContradiction, 1},
		{"samples that do not agree", Depth, benchOutput, `"samples_ts": [ 2048 ]`, `"samples_ts": [ 2050 ]`, ErrContradiction, 1},
		{"a throughput that is no number", Depth, benchOutput, `"avg_ts": 2048.000000`, `"avg_ts": nan`, ErrNaN, 1},
		{"an infinite throughput", Depth, benchOutput, `"avg_ts": 2048.000000`, `"avg_ts": inf`, ErrNaN, 1},
		{"an overflowing throughput", Depth, benchOutput, `"avg_ts": 2048.000000`, `"avg_ts": 1e999`, ErrNaN, 1},
		{"a sample of no time", Depth, benchOutput, `[ 250000000 ]`, `[ 0 ]`, ErrContradiction, 1},
		{"a sample more in one list", Depth, benchOutput, `"samples_ts": [ 2048 ]`, `"samples_ts": [ 2048, 2048 ]`, ErrContradiction, 1},
		{"no samples", Depth, benchOutput, `[ 250000000 ]`, `[ ]`, ErrTruncated, 1},
		{"a missing field", Depth, benchOutput, `"n_gen"`, `"n_generated"`, ErrForm, 1},
		{"counts of fewer samples", Depth, benchOutput, `"samples_gc": [ 0 ]`, `"samples_gc": [ ]`, ErrContradiction, 1},
		{"counts that are no numbers", Depth, benchOutput, `"samples_minor_faults": [ 17 ]`, `"samples_minor_faults": "17"`, ErrForm, 1},
		{"work that does not give the bytes", Depth, benchOutput, `"bytes_per_token": 10.5`, `"bytes_per_token": 10.25`, ErrContradiction, 1},
		{"no tokens", Depth, benchOutput, `"n_prompt": 512`, `"n_prompt": 0`, ErrContradiction, 1},

		{"bytes that are not their sum", KV, kvOutput, `"bytes":8388608`, `"bytes":8388609`, ErrContradiction, 2},
		{"a line of another size", KV, kvOutput, "8 layers", "7 layers", ErrContradiction, 1},
		{"a line without its cache", KV, kvOutput, `"caches":[`, `"caches":[{"name":"window","cells":1,"layers":[],"type_k":"f16","type_v":"f16","bytes_k":0,"bytes_v":0},`, ErrContradiction, 2},
		{"lines of other parts", KV, kvOutput, "K (f16):    4.00 MiB, V (f16):    4.00 MiB", "K (f16):    5.00 MiB, V (f16):    3.00 MiB", ErrContradiction, 1},
		{"negative bytes", KV, kvOutput, `"bytes_k":4194304`, `"bytes_k":-4194304`, ErrContradiction, 2},

		{"parts that are not the whole", KV, selfOutput, "20.31 MiB, V", "19.31 MiB, V", ErrContradiction, 1},
		{"two lines of one cache", KV, selfOutput + selfOutput, "", "", ErrContradiction, 2},
		{"parts that are missing", KV, selfOutput, ", V (f16):   20.31 MiB", "", ErrTruncated, 1},

		{"a chunk too few", Perplexity, perplexityOutput, "over 2 chunks", "over 3 chunks", ErrTruncated, 3},
		{"a chunk too many", Perplexity, perplexityOutput, "over 2 chunks", "over 1 chunks", ErrContradiction, 3},
		{"a chunk out of order", Perplexity, perplexityOutput, `"chunk":2`, `"chunk":3`, ErrContradiction, 3},
		{"no final line", Perplexity, perplexityOutput, "Final estimate", "Initial estimate", ErrTruncated, 5},
		{"a final line of other chunks", Perplexity, perplexityOutput, "PPL = 31.2463", "PPL = 31.2464", ErrContradiction, 5},
		{"an error of other chunks", Perplexity, perplexityOutput, "2.28846", "2.38846", ErrContradiction, 5},
		{"a running value of other chunks", Perplexity, perplexityOutput, "[1]38.8339", "[1]38.8341", ErrContradiction, 4},
		{"a running value that is no number", Perplexity, perplexityOutput, "[1]38.8339", "[1]-nan(ind)", ErrNaN, 4},
		{"a chunk that is no number", Perplexity, perplexityOutput, `"nll":822.25`, `"nll":NaN`, ErrNaN, 3},
		{"squares below what sums allow", Perplexity, perplexityOutput, `"nll2":4013.5`, `"nll2":4.5`, ErrContradiction, 2},
		{"a chunk without tokens", Perplexity, perplexityOutput, `"tokens":255,"nll":933.12`, `"tokens":0,"nll":933.12`, ErrContradiction, 2},

		{"a pick that is not the best", HellaSwag, hellaSwagOutput, `"pick":3`, `"pick":1`, ErrContradiction, 2},
		{"a margin of other scores", HellaSwag, hellaSwagOutput, `"margin":0.15`, `"margin":0.25`, ErrContradiction, 1},
		{"an accuracy of other picks", HellaSwag, hellaSwagOutput, "2\t50.0", "2\t100.0", ErrContradiction, 5},
		{"an interval of another accuracy", HellaSwag, hellaSwagOutput, "[9.4531%", "[9.5531%", ErrContradiction, 5},
		{"a missing table row", HellaSwag, hellaSwagOutput, "2\t50.00000000%\t[9.4531%, 90.5469%]\n", "", ErrTruncated, 4},
		{"a hash that is none", HellaSwag, hellaSwagOutput, "9c56cc51b374c3ba", "9c56", ErrForm, 1},
		{"a task counted twice", HellaSwag, hellaSwagOutput, `"n":2`, `"n":1`, ErrContradiction, 2},
		{"fewer tasks than announced", HellaSwag, hellaSwagOutput + "hellaswag_score : selecting 3 randomized tasks.\n", "", "", ErrTruncated, 2},

		{"a pick against the scores", Winogrande, winograndeOutput, `"pick":2,"corrected_pick":1}` + "\n" + `{"kind"`, `"pick":1,"corrected_pick":1}` + "\n" + `{"kind"`, ErrContradiction, 1},
		{"a line with another pick", Winogrande, winograndeOutput, "2\t50.0000\t -3.500000   -3.500000  2  1", "2\t100.0000\t -3.500000   -3.500000  1  1", ErrContradiction, 4},
		{"a line without its task", Winogrande, winograndeOutput + "3\t66.6667\t -3.500000   -3.400000  2  2\n", "", "", ErrContradiction, 5},
		{"a final line of more tasks", Winogrande, winograndeOutput + "Final Winogrande score(3 tasks): 50.0000 +/- 50.0000\n", "", "", ErrTruncated, 4},
		{"a pick that is not the best", MultipleChoice, choiceOutput, `"pick":3`, `"pick":1`, ErrContradiction, 3},
		{"an accuracy of other picks", MultipleChoice, choiceOutput, "3\t66.66666667", "3\t33.33333333", ErrContradiction, 7},
		{"a missing table row", MultipleChoice, choiceOutput, "3\t66.66666667\n", "", ErrTruncated, 8},
		{"a final result of other picks", MultipleChoice, choiceOutput, "66.6667", "66.7667", ErrContradiction, 8},
		{"an error of other picks", MultipleChoice, choiceOutput, "33.3333", "34.3333", ErrContradiction, 8},
		{"one answer", MultipleChoice, choiceOutput, "[-2.5,-2.25]", "[-2.5]", ErrContradiction, 2},
		{"a score that is no number", MultipleChoice, choiceOutput, "[-2.5,-2.25]", "[-2.5,nan]", ErrNaN, 2},
		{"fewer tasks than announced", MultipleChoice, choiceOutput + "multiple_choice_score : calculating TruthfulQA score over 4 tasks.\n", "", "", ErrTruncated, 3},

		{"a chunk too few", KLDivergence, divergenceOutput(60), "over 2 chunks", "over 3 chunks", ErrTruncated, 3},
		{"a chunk too many", KLDivergence, divergenceOutput(60), "over 2 chunks", "over 1 chunks", ErrContradiction, 3},
		{"a chunk out of order", KLDivergence, divergenceOutput(60), `"chunk":2`, `"chunk":3`, ErrContradiction, 3},
		{"a sum of other values", KLDivergence, divergenceOutput(60), `"kld_values":[0.001,`, `"kld_values":[0.002,`, ErrContradiction, 2},
		{"a value that is no number", KLDivergence, divergenceOutput(60), `"kld_values":[0.001,`, `"kld_values":[nan,`, ErrNaN, 2},
		{"a value too few", KLDivergence, divergenceOutput(60), `"kld_values":[0.001,`, `"kld_values":[`, ErrContradiction, 2},
		{"more modes than tokens", KLDivergence, divergenceOutput(60), `"same_top":57`, `"same_top":61`, ErrContradiction, 2},
		{"other modes than in the table", KLDivergence, divergenceOutput(60), `"same_top":57`, `"same_top":56`, ErrContradiction, 5},
		{"no announcement", KLDivergence, divergenceOutput(60), "computing over", "computing", ErrTruncated, 0},
		{"a statistic of other chunks", KLDivergence, divergenceOutput(60), "Maximum KLD:   0.060000", "Maximum KLD:   0.061000", ErrContradiction, 11},
		{"a statistic that is no number", KLDivergence, divergenceOutput(60), "Maximum KLD:   0.060000", "Maximum KLD:       -nan", ErrNaN, 11},
		{"no statistics", KLDivergence, divergenceOutput(60), "RMS Δp", "Mean Δq", ErrTruncated, 17},

		{"a score that is no number", Winogrande, winograndeOutput, "[-3.5,-3.5]", "[-3.5,nan]", ErrNaN, 2},
		{"scores too far apart for a margin", Winogrande, winograndeOutput, `"corrected":[-2.7,-2.9]`, `"corrected":[1.7e308,-1.7e308]`, ErrNaN, 0},
	} {
		raw := c.raw
		if c.old != "" {
			raw = strings.Replace(raw, c.old, c.new, 1)
			if raw == c.raw {
				t.Fatalf("%s: %q is not in the output", c.name, c.old)
			}
		}
		ms, err := Decode(c.stage, []byte(raw))
		var e *DecodeError
		switch {
		case err == nil:
			t.Errorf("%s is read as %+v", c.name, ms)
		case !errors.As(err, &e) || !errors.Is(err, c.kind):
			t.Errorf("%s: %v, want kind %v", c.name, err, c.kind)
		case e.Line != c.line || e.Expected == "" || e.Found == "" || e.Stage != c.stage:
			t.Errorf("%s: line %d: %v, want line %d", c.name, e.Line, err, c.line)
		}
	}
}

func TestTextFormsAreReadAlike(t *testing.T) {
	for _, o := range ownOutputs {
		want := decode(t, o.stage, o.raw)
		units := utf16.Encode([]rune("\ufeff" + o.raw))
		var little, big []byte
		for _, u := range units {
			little, big = append(little, byte(u), byte(u>>8)), append(big, byte(u>>8), byte(u))
		}
		for name, raw := range map[string]string{
			"CRLF":                 strings.ReplaceAll(o.raw, "\n", "\r\n"),
			"UTF-16 little endian": string(little),
			"UTF-16 big endian":    string(big),
			"byte order mark":      "\ufeff" + o.raw,
			"logs around it":       "0.00.034.331 I loading\n" + o.raw + "0.00.034.340 I done \xff\n",
			"time prefixes":        "0.00.034.331 I " + strings.ReplaceAll(strings.TrimSuffix(o.raw, "\n"), "\n", "\n0.00.034.331 I "),
		} {
			if diff := cmp.Diff(want, decode(t, o.stage, raw)); diff != "" {
				t.Errorf("%s, %s:\n%s", o.stage, name, diff)
			}
		}
	}
}

func TestRunningPerplexityRecoversChunksWithinItsRounding(t *testing.T) {
	raw, err := os.ReadFile("testdata/upstream/llama-perplexity-ppl-F16.log")
	if err != nil {
		t.Fatal(err)
	}
	typed, err := os.ReadFile("testdata/upstream/llama-perplexity-ppl-F16-type1.log")
	if err != nil {
		t.Fatal(err)
	}
	// The same run printed twice: four decimals of the perplexity and six of the mean nll.
	a, b := decode(t, Perplexity, string(raw))[NLL].Chunks, decode(t, Perplexity, string(typed))[NLL].Chunks
	if len(a) != 157 || len(b) != 157 {
		t.Fatalf("%d and %d chunks", len(a), len(b))
	}
	for i := range a {
		if d := math.Abs(a[i].Sum - b[i].Sum); d > a[i].Rounding+b[i].Rounding {
			t.Errorf("chunk %d: %v and %v are %v apart, more than %v and %v allow", i+1, a[i].Sum, b[i].Sum, d, a[i].Rounding, b[i].Rounding)
		}
	}
}

func TestAllFormsOfLlamaBenchDescribeTheSameGrid(t *testing.T) {
	var want []string
	for _, ext := range []string{"jsonl", "json", "csv", "sql", "md"} {
		raw, err := os.ReadFile("testdata/upstream/llama-bench." + ext)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := Decode(Throughput, raw)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range ms {
			got = append(got, m.Labels["test"])
		}
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", ext, diff)
		}
	}
}
