package embedded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/builtin"
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel"
	"attnbudget/parsers"
	"attnbudget/plan"
	"attnbudget/results"
	"attnbudget/runner"

	"github.com/google/go-cmp/cmp"
)

// job is a unit of an arm of the shipped model.
func job(t *testing.T, format string, mask []int, c plan.Condition) runner.Job {
	t.Helper()
	sum, err := builtin.SHA256("glossary-5m")
	if err != nil {
		t.Fatal(err)
	}
	c.Batch, c.UBatch, c.Name = 512, 128, c.Stage
	if builtin.IsName(c.Input) {
		if c.SHA256, err = builtin.SHA256(c.Input); err != nil {
			t.Fatal(err)
		}
	} else if c.Input != "" {
		data, err := os.ReadFile(c.Input)
		if err != nil {
			t.Fatal(err)
		}
		c.SHA256 = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	return runner.Job{
		Kind: runner.JobUnit, Unit: plan.Unit{ID: "u1", Name: c.Stage, Key: plan.Key{Stage: c.Stage, Trace: "seed 1 block 0"}},
		Arm:       plan.Arm{Name: "a", Format: format, Mask: plan.Mask{Layers: mask}, TypeK: "f16", TypeV: "f16"},
		Condition: c, Model: plan.Model{Name: "glossary", Source: "builtin:glossary-5m", Fingerprint: sum, Format: "F16"},
		Threads: 2, Environment: "e1", DepthTrace: "seed 1 depth 64",
	}
}

func perplexityJob(t *testing.T) runner.Job {
	j := job(t, "F16", nil, plan.Condition{Stage: plan.Perplexity, Input: "builtin:evaluation", Context: 64, Chunks: 8})
	j.Checkpoint = filepath.Join(t.TempDir(), "u1.jsonl")
	return j
}

// succeed executes a job in a child process and decodes what it printed.
func succeed(t *testing.T, x Executor, j runner.Job) (runner.Output, []parsers.Measurement) {
	t.Helper()
	out, err := x.Execute(t.Context(), j, func(runner.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	if out.Failure != nil {
		t.Fatalf("failure %+v, stderr %s", out.Failure, out.Stderr)
	}
	if j.Kind != runner.JobUnit {
		return out, nil
	}
	m, err := parsers.Decode(j.Condition.Stage, out.Stdout)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.Stdout)
	}
	return out, m
}

func TestEveryStagePrintsWhatItsParserReads(t *testing.T) {
	x := executor(t, "child")
	for _, c := range []struct {
		condition plan.Condition
		metrics   []string
	}{
		{plan.Condition{Stage: plan.Throughput, Prompt: 16}, []string{parsers.TokensPerSecond}},
		{plan.Condition{Stage: plan.Throughput, Generate: 2}, []string{parsers.TokensPerSecond}},
		{plan.Condition{Stage: plan.KV, Context: 512}, []string{parsers.KVBytes, parsers.KVBytesK, parsers.KVBytesV, parsers.KVCells}},
		{plan.Condition{Stage: plan.Perplexity, Input: "builtin:evaluation", Context: 64, Chunks: 3}, []string{parsers.NLL, parsers.PerplexityMetric}},
		{plan.Condition{Stage: plan.HellaSwag, Input: "builtin:gloss-swag", Context: 128, Tasks: 3}, []string{parsers.HellaSwagAccuracy}},
		{plan.Condition{Stage: plan.Winogrande, Input: "builtin:gloss-grande", Context: 128, Tasks: 3}, []string{parsers.WinograndeAccuracy, parsers.WinograndeFixed}},
		{plan.Condition{Stage: plan.MultipleChoice, Input: questions(t), Context: 128, Tasks: 3}, []string{parsers.ChoiceAccuracy}},
		{plan.Condition{Stage: plan.KLDivergence, Input: "builtin:evaluation", Context: 64, Chunks: 4}, []string{
			parsers.MeanKLD, parsers.MedianKLD, parsers.P99KLD, parsers.MaxKLD, parsers.SameTop, parsers.MeanDeltaP, parsers.RMSDeltaP}},
	} {
		j := job(t, "F16", []int{1, 3}, c.condition)
		if c.condition.Input != "" {
			j.Checkpoint = filepath.Join(t.TempDir(), "u1.jsonl")
		}
		if c.condition.Stage == plan.KLDivergence {
			j.State = baseLogits(t, x, j)
		}
		out, ms := succeed(t, x, j)
		var metrics []string
		for _, m := range ms {
			metrics = append(metrics, m.Metric)
		}
		if diff := cmp.Diff(c.metrics, metrics); diff != "" {
			t.Errorf("%s:\n%s", c.condition.Stage, diff)
		}
		if out.ModelSHA256 != j.Model.Fingerprint {
			t.Errorf("%s: model %q", c.condition.Stage, out.ModelSHA256)
		}
	}
}

// questions writes a file of multiple choice.
func questions(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for i := range 12 {
		fmt.Fprintf(&b, `{"question": "What is number %d?", "choices": ["a large bird", "wood", "the sea of number %d"], "gold": %d}`+"\n", i, i, i%3)
	}
	path := filepath.Join(t.TempDir(), "questions.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// baseLogits makes the logits that a kl-divergence job compares with: those of the unmasked model in F16.
func baseLogits(t *testing.T, x Executor, j runner.Job) string {
	t.Helper()
	j.Kind, j.Arm = runner.JobState, job(t, "F16", nil, j.Condition).Arm
	j.State = filepath.Join(t.TempDir(), "base.state")
	if out, _ := succeed(t, x, j); len(out.Stdout) != 0 {
		t.Errorf("the base printed %s", out.Stdout)
	}
	return j.State
}

func TestDivergenceIsFromTheArmThatMadeTheLogits(t *testing.T) {
	x := executor(t, "child")
	c := plan.Condition{Stage: plan.KLDivergence, Input: "builtin:evaluation", Context: 64, Chunks: 4}
	means := map[string]float64{}
	base := baseLogits(t, x, job(t, "F16", nil, c))
	for name, mask := range map[string][]int{"base": nil, "masked": {1, 3}} {
		j := job(t, "F16", mask, c)
		j.State, j.Checkpoint = base, filepath.Join(t.TempDir(), "u1.jsonl")
		out, ms := succeed(t, x, j)
		if bytes.Contains(bytes.ToLower(out.Stdout), []byte("nan")) {
			t.Errorf("%s: %s", name, out.Stdout)
		}
		means[name] = ms[0].Value
		if top := ms[4]; (name == "base") != (top.Value == 1) {
			t.Errorf("%s: %s is %v", name, top.Metric, top.Value)
		}
	}
	// What the base has against itself is the rounding of the logits to 16 bits.
	if math.Abs(means["base"]) > 1e-5 || means["masked"] < 1e-3 {
		t.Errorf("divergences %v", means)
	}
}

func TestExactBaseLogitsSayWhatTheyAreOfAndHaveNoFloor(t *testing.T) {
	x := executor(t, "child")
	c := plan.Condition{Stage: plan.KLDivergence, Input: "builtin:evaluation", Context: 64, Chunks: 4}
	coded := baseLogits(t, x, job(t, "F16", nil, c))
	c.LogitsFormat = "float32"
	exact := baseLogits(t, x, job(t, "F16", nil, c))
	head, err := os.ReadFile(exact)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(coded); err != nil || int64(len(head)) < info.Size()*19/10 {
		t.Errorf("%d bytes, %v; in upstream's format %v", len(head), err, info.Size())
	}
	j := job(t, "F16", nil, c)
	origin := fmt.Sprintf(`"model_sha256":%q,"mask":"","type_k":"f16","type_v":"f16","engine":%q}`, j.Model.Fingerprint, engine.ResultVersion(kernel.Name()))
	if !bytes.HasPrefix(head, []byte("_logp32_")) || !bytes.Contains(head[:4096], []byte(origin)) {
		t.Errorf("the head is %q, want %s in it", bytes.TrimRight(head[:4096], " "), origin)
	}
	for name, mask := range map[string][]int{"base": nil, "masked": {1, 3}} {
		means := map[string]float64{}
		for format, base := range map[string]string{"float32": exact, "upstream": coded} {
			j := job(t, "F16", mask, c)
			j.State, j.Checkpoint = base, filepath.Join(t.TempDir(), "u1.jsonl")
			_, ms := succeed(t, x, j)
			means[format] = ms[0].Value
		}
		if rounding := math.Abs(means["float32"] - means["upstream"]); rounding == 0 || rounding > 1e-4 {
			t.Errorf("%s: means %v", name, means)
		}
		if (means["float32"] == 0) != (name == "base") {
			t.Errorf("%s: mean divergence %g", name, means["float32"])
		}
	}

	c.LogitsFormat = "float16"
	j = job(t, "F16", nil, c)
	j.Kind, j.State = runner.JobState, filepath.Join(t.TempDir(), "base.state")
	out, err := x.Execute(t.Context(), j, func(runner.Progress) {})
	if err != nil || out.Failure == nil || !strings.Contains(out.Failure.Message, `logits format "float16" is not known: it must be upstream or float32`) {
		t.Errorf("%+v, %v", out.Failure, err)
	}
}

func TestDivergenceNeedsWholeLogits(t *testing.T) {
	x := executor(t, "child")
	j := job(t, "F16", nil, plan.Condition{Stage: plan.KLDivergence, Input: "builtin:evaluation", Context: 64, Chunks: 2})
	j.Checkpoint = filepath.Join(t.TempDir(), "u1.jsonl")
	base := baseLogits(t, x, j)
	if err := os.Truncate(base, 3000); err != nil {
		t.Fatal(err)
	}
	for path, message := range map[string]string{base: "cut off", base + ".absent": "base logits"} {
		j.State = path
		out, err := x.Execute(t.Context(), j, func(runner.Progress) {})
		if err != nil || out.Failure == nil || out.Failure.Kind != results.Crash || !strings.Contains(out.Failure.Message, message) {
			t.Errorf("%s: %+v, %v", message, out.Failure, err)
		}
	}
	j.State = filepath.Join(t.TempDir(), "base.state")
	j.Kind, j.Condition.SHA256 = runner.JobState, strings.Repeat("0", 64)
	if out, err := x.Execute(t.Context(), j, func(runner.Progress) {}); err != nil || out.Failure == nil || out.Failure.Kind != results.Unavailable {
		t.Errorf("a text that has changed: %+v, %v", out.Failure, err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(j.State), "*")); err != nil || len(left) != 0 {
		t.Errorf("a base that could not be made leaves %v, %v", left, err)
	}
}

func TestADepthUnitLoadsThePrefilledState(t *testing.T) {
	x := executor(t, "child")
	j := job(t, "F16", nil, plan.Condition{Stage: plan.Depth, Generate: 2, Depth: 64})
	j.State = filepath.Join(t.TempDir(), "s.state")

	without, err := x.Execute(t.Context(), j, func(runner.Progress) {})
	if err != nil || without.Failure == nil || without.Failure.Kind != results.Crash || !strings.Contains(without.Failure.Message, "prefilled cache") {
		t.Errorf("without the state: %+v, %v", without.Failure, err)
	}
	prefill := j
	prefill.Kind = runner.JobState
	if out, _ := succeed(t, x, prefill); len(out.Stdout) != 0 {
		t.Errorf("the prefill printed %s", out.Stdout)
	}
	if _, ms := succeed(t, x, j); ms[0].Labels["n_state_loaded"] != "64" || ms[0].Labels["n_depth"] != "64" {
		t.Errorf("labels %v", ms[0].Labels)
	}
}

func TestAnEvaluationGoesOnFromWhatAKillHasLeftToTheSameOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("it evaluates whole units, which takes a minute under the race detector")
	}
	x := executor(t, "child")
	for name, c := range map[string]plan.Condition{
		"perplexity":      {Stage: plan.Perplexity, Input: "builtin:evaluation", Context: 64, Chunks: 20},
		"hellaswag":       {Stage: plan.HellaSwag, Input: "builtin:gloss-swag", Context: 128, Tasks: 10},
		"winogrande":      {Stage: plan.Winogrande, Input: "builtin:gloss-grande", Context: 128, Tasks: 10},
		"multiple-choice": {Stage: plan.MultipleChoice, Input: questions(t), Context: 128},
		"kl-divergence":   {Stage: plan.KLDivergence, Input: "builtin:evaluation", Context: 64, Chunks: 20},
	} {
		t.Run(name, func(t *testing.T) {
			j := job(t, "F16", nil, c)
			j.Checkpoint = filepath.Join(t.TempDir(), "u1.jsonl")
			if c.Stage == plan.KLDivergence {
				j.State = baseLogits(t, x, j)
			}
			whole, _ := succeed(t, x, j)
			text, err := os.ReadFile(j.Checkpoint)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.SplitAfter(text, []byte("\n"))
			kept := slices.Concat(lines[0], lines[1], lines[2][:20]) // a header, a batch, a torn line
			if err := os.WriteFile(j.Checkpoint, kept, 0o644); err != nil {
				t.Fatal(err)
			}
			resumed, _ := succeed(t, x, j)
			if whole.Resumed != 0 || resumed.Resumed != 1 {
				t.Errorf("resumed %d and %d times", whole.Resumed, resumed.Resumed)
			}
			if diff := cmp.Diff(string(whole.Stdout), string(resumed.Stdout)); diff != "" {
				t.Errorf("the resumed one differs:\n%s", diff)
			}
		})
	}
}

func TestAKilledEvaluationKeepsItsFinishedChunks(t *testing.T) {
	if testing.Short() {
		t.Skip("it evaluates whole units, which takes a minute under the race detector")
	}
	x := executor(t, "child")
	j := perplexityJob(t)
	j.Condition.Chunks = 24
	ctx, cancel := context.WithCancel(t.Context())
	_, err := x.Execute(ctx, j, func(p runner.Progress) {
		if p.Phase == plan.Perplexity && p.Done > 1 {
			cancel()
		}
	})
	if err == nil {
		t.Fatal("it ended before it could be killed")
	}
	if out, _ := succeed(t, x, j); out.Resumed != 1 {
		t.Errorf("resumed %d times", out.Resumed)
	}
}

func TestAFinishedPartIsNotEvaluatedAgain(t *testing.T) {
	x := executor(t, "child")
	j := perplexityJob(t)
	whole, _ := succeed(t, x, j)
	again, _ := succeed(t, x, j)
	if again.Resumed != 1 || !bytes.Equal(whole.Stdout, again.Stdout) {
		t.Errorf("resumed %d times, equal %v", again.Resumed, bytes.Equal(whole.Stdout, again.Stdout))
	}
}

func TestACheckpointOfOtherTasksIsStartedAfresh(t *testing.T) {
	x := executor(t, "child")
	j := job(t, "F16", nil, plan.Condition{Stage: plan.HellaSwag, Input: "builtin:gloss-swag", Context: 128, Tasks: 3})
	j.Checkpoint = filepath.Join(t.TempDir(), "u1.jsonl")
	header := fmt.Sprintf(`{"schema":%q,"unit":"u1","environment":"e1"}`, checkpointSchema)
	if err := os.WriteFile(j.Checkpoint, []byte(header+"\n"+`{"items":[{"kind":"hellaswag_task","n":1,"hash":"0123456789abcdef"}]}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, notes := noted(t, x, j)
	if !strings.Contains(string(out.Stderr), "checkpoint") {
		t.Errorf("stderr %q says nothing of the checkpoint", out.Stderr)
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "what was finished is not used but evaluated again: entry 1 is number ") {
		t.Errorf("notes %q", notes)
	}
}

// noted executes a job and returns what people were told at once.
func noted(t *testing.T, x Executor, j runner.Job) (out runner.Output, notes []string) {
	t.Helper()
	out, err := x.Execute(t.Context(), j, func(p runner.Progress) {
		if p.Note != "" {
			notes = append(notes, p.Note)
		}
	})
	if err != nil || out.Failure != nil {
		t.Fatalf("%+v, %v", out.Failure, err)
	}
	return out, notes
}

func TestAnEvaluationThatCannotGoOnFromItsCheckpointSaysWhy(t *testing.T) {
	x := executor(t, "child")
	j := perplexityJob(t)
	whole, notes := noted(t, x, j)
	if notes != nil {
		t.Errorf("the first process says %q", notes)
	}
	j.Environment = "e2"
	again, notes := noted(t, x, j)
	want := []string{"8 finished items are not used but evaluated again: another machine, program or set of kernels computed them (environment e1, this is e2)"}
	if diff := cmp.Diff(want, notes); diff != "" || again.Resumed != 0 || !bytes.Contains(again.Stderr, []byte("warning: "+want[0])) {
		t.Errorf("resumed %d, stderr %q\n%s", again.Resumed, again.Stderr, diff)
	}
	if !bytes.Equal(whole.Stdout, again.Stdout) {
		t.Error("the output differs")
	}
}

func TestFailuresOfAJobHaveTheirKind(t *testing.T) {
	x := executor(t, "child")
	changedInput := perplexityJob(t)
	changedInput.Condition.SHA256 = strings.Repeat("0", 64)
	noInput := perplexityJob(t)
	noInput.Condition.Input = "/nonexistent/text.txt"
	noModel := perplexityJob(t)
	noModel.Model.Source, noModel.Model.Path = "gone.gguf", "/nonexistent/gone.gguf"
	noFormat := perplexityJob(t)
	noFormat.Arm.Format = "Q9_9"
	noMask := perplexityJob(t)
	noMask.Arm.Mask.Layers = []int{99}
	for name, c := range map[string]struct {
		job     runner.Job
		kind    string
		message string
	}{
		"changed input": {changedInput, results.Unavailable, "has changed since the plan was made"},
		"absent input":  {noInput, results.Unavailable, "/nonexistent/text.txt"},
		"absent model":  {noModel, results.Unavailable, "/nonexistent/gone.gguf"},
		"no format":     {noFormat, results.Crash, "Q9_9"},
		"no such layer": {noMask, results.Crash, "99"},
		"unknown kind":  {runner.Job{Kind: "dance", Model: changedInput.Model, Arm: changedInput.Arm}, results.Crash, "dance"},
	} {
		out, err := x.Execute(t.Context(), c.job, func(runner.Progress) {})
		if err != nil || out.Failure == nil || out.Failure.Kind != c.kind || !strings.Contains(out.Failure.Message, c.message) || out.Failure.ExitCode != 1 {
			t.Errorf("%s: %+v, %v", name, out.Failure, err)
		}
	}
}

func TestAQuantisedModelIsMadeOnceByProcessesThatWantItAtTheSameTime(t *testing.T) {
	x := executor(t, "child")
	cache := t.TempDir()
	t.Setenv("ATTNBUDGET_CACHE", cache)
	j := job(t, "Q4_0", nil, plan.Condition{Stage: plan.KV, Context: 256})
	j.Kind = runner.JobPrepare
	path := filepath.Join(cache, "quantized", j.Model.Fingerprint+"-Q4_0-v"+engine.Version+".gguf")
	half := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".0123456789abcdef.tmp")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(half, []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}

	var wait sync.WaitGroup
	var mu sync.Mutex
	made, sums := 0, map[string]int{}
	for range 3 {
		wait.Go(func() {
			quantized := false
			out, err := x.Execute(t.Context(), j, func(p runner.Progress) { quantized = quantized || p.Phase == "quantize Q4_0" })
			mu.Lock()
			defer mu.Unlock()
			if err != nil || out.Failure != nil {
				t.Errorf("%+v, %v", out.Failure, err)
			}
			sums[out.ModelSHA256]++
			if quantized {
				made++
			}
		})
	}
	wait.Wait()
	if made != 1 {
		t.Errorf("it was made %d times", made)
	}
	sum, err := gguf.Fingerprint(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{sum: 3}, sums); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(half); err == nil {
		t.Error("the half-made file of a dead process is still there")
	}

	// A file that is not as long as it says is made again.
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	if out, _ := succeed(t, x, j); out.ModelSHA256 != sum {
		t.Errorf("made again: %s, before %s", out.ModelSHA256, sum)
	}
	if again, err := gguf.Fingerprint(t.Context(), path); err != nil || again != sum {
		t.Errorf("made again: %s, %v", again, err)
	}
}

func TestTheSourceItselfIsUsedForItsOwnFormat(t *testing.T) {
	x := executor(t, "child")
	cache := filepath.Join(t.TempDir(), "cache")
	t.Setenv("ATTNBUDGET_CACHE", cache)
	succeed(t, x, job(t, "F16", nil, plan.Condition{Stage: plan.KV, Context: 256}))
	if _, err := os.Stat(cache); err == nil {
		t.Error("something was put into the cache")
	}
}
