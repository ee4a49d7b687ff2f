package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"attnbudget/engine/builtin"
	"attnbudget/plan"
	"attnbudget/results"

	"github.com/google/go-cmp/cmp"
)

// killed is a campaign that touches every stage and whose evaluations are long enough to be killed inside.
const killed = `name: killed
models: {glossary: builtin:glossary-5m}
formats: [F16, Q8_0]
masks: {none: [], first: [0]}
baseline: {format: F16, mask: none}
run: {threads: 2, repetitions: 2, seed: 7}
stages:
  - throughput: {prompt: [32], generate: [4]}
  - depth: {depths: [128], generate: 4}
  - kv: {contexts: [512]}
  - perplexity: {text: part.txt, context: 128, chunks: 24}
  - hellaswag: {tasks: builtin:gloss-swag, limit: 60}
  - winogrande: {tasks: builtin:gloss-grande, limit: 60}
  - kl-divergence: {text: part.txt, context: 128, chunks: 12}
`

// kills is how many times the run is killed before it may finish.
const kills = 32

// TestARunKilledAtRandomMomentsEqualsAnUnbrokenOne kills the runner, the unit it is executing, or both, and resumes
// each time. A killed unit alone is a failure that --retry-failed runs again.
func TestARunKilledAtRandomMomentsEqualsAnUnbrokenOne(t *testing.T) {
	work := t.TempDir()
	file := filepath.Join(work, "killed.yaml")
	if err := os.WriteFile(file, []byte(killed), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := builtin.Open("evaluation")
	if err != nil {
		t.Fatal(err)
	}
	// As much as is evaluated: a start that reads the whole text is killed while it does, and not at work.
	if err := os.WriteFile(filepath.Join(work, "part.txt"), text[:24<<10], 0o644); err != nil {
		t.Fatal(err)
	}
	start := func(dir string) (*exec.Cmd, *bytes.Buffer) {
		c := exec.Command(program, "run", file, "--dir", filepath.Join(work, dir), "--retry-failed", "--progress", "lines")
		c.Env = append(os.Environ(), "ATTNBUDGET_CACHE="+filepath.Join(work, "cache"))
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c, &out
	}
	whole, out := start("whole")
	if err := whole.Wait(); err != nil {
		t.Fatalf("the unbroken run: %v\n%s", err, out)
	}

	r := rand.New(rand.NewPCG(1, 2))
	hit := map[string]int{}
	for hit["parent"]+hit["child"]+hit["both"] < kills {
		c, out := start("broken")
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("a resumed run: %v\n%s", err, out)
			}
			// It finished between two kills: begin again, so that every kill hits a run at work.
			if err := os.RemoveAll(filepath.Join(work, "broken")); err != nil {
				t.Fatal(err)
			}
			continue
		case <-time.After(time.Duration(20+r.IntN(700)) * time.Millisecond):
		}
		children := childrenOf(t, c.Process.Pid)
		switch r.IntN(3) {
		case 0:
			hit["parent"]++
			c.Process.Kill()
			<-ended
		case 1:
			if len(children) == 0 {
				c.Process.Kill()
				<-ended
				continue
			}
			hit["child"]++
			kill(children)
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			c.Process.Kill()
			<-ended
		case 2:
			hit["both"]++
			c.Process.Kill()
			kill(children)
			<-ended
		}
	}
	t.Logf("killed %v", hit)
	last, out := start("broken")
	if err := last.Wait(); err != nil {
		t.Fatalf("the last run: %v\n%s", err, out)
	}

	want, got := records(t, filepath.Join(work, "whole")), records(t, filepath.Join(work, "broken"))
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("records of the unbroken (-) and the killed run (+):\n%s", d)
	}
	noLeftovers(t, filepath.Join(work, "broken"))
	rebuildsEqually(t, filepath.Join(work, "broken"))
}

// childrenOf lists the processes that pid has started, where the system tells.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	tasks, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, f := range tasks {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has just ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if id, err := strconv.Atoi(field); err == nil {
				out = append(out, id)
			}
		}
	}
	return out
}

func kill(pids []int) {
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// records maps the name of every unit with a good record to what of it must not depend on interruptions: everything
// but the timings.
func records(t *testing.T, path string) map[string]string {
	t.Helper()
	dir, err := results.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r, err := range dir.Records() {
		if err != nil {
			t.Fatal(err)
		}
		text := r.Stdout
		if slices.Contains([]string{plan.Throughput, plan.Depth}, r.Condition.Stage) {
			text = "timed"
		}
		out[r.Unit.Name+" "+r.Unit.ID] = r.Outcome + "\n" + text
	}
	if len(out) == 0 {
		t.Fatalf("no records in %s", path)
	}
	return out
}

// noLeftovers checks that states, checkpoints and temporary files are gone after a finished run.
func noLeftovers(t *testing.T, path string) {
	t.Helper()
	err := filepath.WalkDir(path, func(file string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(path, file)
		if err == nil && !d.IsDir() && (strings.HasPrefix(rel, "work") || strings.Contains(d.Name(), ".tmp")) {
			t.Errorf("left over: %s", rel)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// rebuildsEqually checks that summary.json is the same after a second rebuild and that --check agrees.
func rebuildsEqually(t *testing.T, path string) {
	t.Helper()
	var texts [2][]byte
	for i := range texts {
		if out, err := exec.Command(program, "summarize", path).CombinedOutput(); err != nil {
			t.Fatalf("summarize: %v\n%s", err, out)
		}
		text, err := os.ReadFile(filepath.Join(path, "summary.json"))
		if err != nil || !json.Valid(text) {
			t.Fatalf("summary.json: %v, %d bytes", err, len(text))
		}
		texts[i] = text
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("summary.json differs between two rebuilds")
	}
	if out, err := exec.Command(program, "summarize", path, "--check").CombinedOutput(); err != nil {
		t.Errorf("summarize --check: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(path, "summary.json"), append(texts[0], ' '), 0o644); err != nil {
		t.Fatal(err)
	}
	err := exec.Command(program, "summarize", path, "--check").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("summarize --check of a changed summary.json: %v, want exit %d", err, exitFailed)
	}
}
