package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"attnbudget/results"
)

// session is a run of the program in the background whose lines of progress can be waited for.
type session struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string

	out bytes.Buffer
}

func startRun(t *testing.T, campaign, dir string, args ...string) *session {
	t.Helper()
	s := &session{t: t, lines: make(chan string, 1000)}
	s.cmd = exec.Command(program, append([]string{"run", campaign, "--dir", dir, "--progress", "json"}, args...)...)
	s.cmd.Env = append(os.Environ(), "ATTNBUDGET_CACHE="+filepath.Join(filepath.Dir(dir), "cache"))
	pipe, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout = &s.out
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill() })
	go func() {
		defer close(s.lines)
		for scan := bufio.NewScanner(pipe); scan.Scan(); {
			s.lines <- scan.Text()
		}
	}()
	return s
}

// await reads lines until one contains text.
func (s *session) await(text string) {
	s.t.Helper()
	timeout := time.After(60 * time.Second)
	for {
		select {
		case line, open := <-s.lines:
			if !open {
				s.t.Fatalf("ended before %q", text)
			}
			if strings.Contains(line, text) {
				return
			}
		case <-timeout:
			s.t.Fatalf("no %q within a minute", text)
		}
	}
}

// exit waits for the end and returns the exit code and the last lines.
func (s *session) exit() (int, string) {
	s.t.Helper()
	var last strings.Builder
	for line := range s.lines {
		last.WriteString(line + "\n")
	}
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode(), last.String()
}

const long = `name: long
models: {glossary: builtin:glossary-5m}
formats: [F16]
masks: {none: [], first: [0], second: [1]}
baseline: {format: F16, mask: none}
stages:
  - perplexity: {text: builtin:evaluation, context: 512, chunks: 12}
`

func longCampaign(t *testing.T) (file, dir string) {
	t.Helper()
	work := t.TempDir()
	file = filepath.Join(work, "long.yaml")
	if err := os.WriteFile(file, []byte(long), 0o644); err != nil {
		t.Fatal(err)
	}
	return file, filepath.Join(work, "run")
}

func goodRecords(t *testing.T, path string) int {
	t.Helper()
	dir, err := results.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for r, err := range dir.Records() {
		if err != nil || r.Outcome != results.OK {
			t.Errorf("a record that is not good: %v, %v", r, err)
		}
		n++
	}
	return n
}

func TestARunGoesOnWhenNobodyReadsItsProgressAnyMore(t *testing.T) {
	for _, way := range []string{"lines", "json"} {
		file, dir := longCampaign(t)
		text := strings.ReplaceAll(strings.ReplaceAll(long, "512", "32"), "chunks: 12", "chunks: 1")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "run", file, "--dir", dir, "--progress", way)
		pipe, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(pipe).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if err := pipe.Close(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", way, err)
		}
		if n := goodRecords(t, dir); n != 3 {
			t.Errorf("%s: %d of 3 units", way, n)
		}
	}
}

func TestASecondRunnerOnTheSameDirectoryExits4AndNamesTheHolder(t *testing.T) {
	file, dir := longCampaign(t)
	first := startRun(t, file, dir)
	first.await(results.EventUnitStart)
	second := startRun(t, file, dir)
	code, said := second.exit()
	if code != exitLocked {
		t.Errorf("exit %d, want %d; it said %s", code, exitLocked, said)
	}
	for _, want := range []string{"in use by process", "run-campaign run"} {
		if !strings.Contains(said, want) {
			t.Errorf("the message does not name %q: %s", want, said)
		}
	}
}

func TestOneInterruptFinishesTheUnitAndStops(t *testing.T) {
	file, dir := longCampaign(t)
	s := startRun(t, file, dir)
	s.await(results.EventUnitStart)
	s.cmd.Process.Signal(syscall.SIGINT)
	if code, said := s.exit(); code != exitInterrupted {
		t.Errorf("exit %d, want %d: %s", code, exitInterrupted, said)
	}
	if n := goodRecords(t, dir); n != 1 {
		t.Errorf("%d records, want the one of the unit that was running", n)
	}
	again := startRun(t, file, dir)
	if code, said := again.exit(); code != exitDone || goodRecords(t, dir) != 3 {
		t.Errorf("the resumed run: exit %d with %d records: %s", code, goodRecords(t, dir), said)
	}
}

func TestAnInterruptedSynthLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(program, "synth", "llama-3.1-8b", "F16", filepath.Join(dir, "large.gguf"))
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if half, _ := filepath.Glob(filepath.Join(dir, ".*")); len(half) == 1 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("nothing was begun within a minute")
		}
	}
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(said.String(), "interrupted") {
		t.Errorf("exit %d, want %d; it said %s", code, exitInterrupted, said.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestAnInterruptedCalibrationSaysWhereItGoesOnFrom(t *testing.T) {
	dir := t.TempDir()
	journal := filepath.Join(dir, "c.journal")
	cmd := exec.Command(program, "calibrate", "-o", filepath.Join(dir, "c.json"), "-c", "64")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if info, err := os.Stat(journal); err == nil && info.Size() > 0 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("nothing was measured within a minute")
		}
	}
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	want := "what was measured is kept in " + journal + ", and the same command goes on from there"
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(said.String(), want) {
		t.Errorf("exit %d, want %d; it said %s", code, exitInterrupted, said.String())
	}
}

func TestHashingAModelStopsWithTheCommand(t *testing.T) {
	model, err := filepath.Abs("../../engine/testdata/conformance/models/llama-tiny.gguf")
	if err != nil {
		t.Fatal(err)
	}
	campaign := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(campaign, []byte("name: hashed\nmodels: {m: "+model+"}\nstages: [{throughput: {prompt: [16]}}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"inspect", model, "--fingerprint"}, {"fetch", campaign}, {"run", campaign, "--dry-run"}} {
		for _, interrupted := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			want := exitDone
			if interrupted {
				want = exitInterrupted
				cancel()
			}
			var out, said bytes.Buffer
			if code := run(ctx, args, nil, &out, &said); code != want || interrupted != (out.Len() == 0 && strings.Contains(said.String(), "context canceled")) {
				t.Errorf("%q, interrupted %v: exit %d, want %d; it printed %q and said %q", args, interrupted, code, want, out.String(), said.String())
			}
			cancel()
		}
	}
}

func TestTwoInterruptsAbortTheUnit(t *testing.T) {
	file, dir := longCampaign(t)
	s := startRun(t, file, dir)
	s.await(`"phase":"perplexity"`)
	s.cmd.Process.Signal(syscall.SIGINT)
	time.Sleep(50 * time.Millisecond)
	s.cmd.Process.Signal(syscall.SIGINT)
	if code, said := s.exit(); code != exitInterrupted {
		t.Errorf("exit %d, want %d: %s", code, exitInterrupted, said)
	}
	if n := goodRecords(t, dir); n != 0 {
		t.Errorf("%d records, want none", n)
	}
}
