package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"attnbudget/results"
	"attnbudget/runner"
)

// TestMain lets this test binary be the child process: a real one, or one that misbehaves.
func TestMain(m *testing.M) {
	switch role := os.Getenv("ATTNBUDGET_TEST_ROLE"); role {
	case "":
		os.Exit(m.Run())
	case "child":
		err := Child(context.Background(), os.Stdin, os.Stdout, os.Stderr, os.NewFile(ProgressFD, "progress"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "parent":
		beParent()
	default:
		misbehave(role)
	}
}

// executor runs this test binary in a role.
func executor(t *testing.T, role string) Executor {
	t.Setenv("ATTNBUDGET_TEST_ROLE", role)
	return Executor{Command: []string{os.Args[0]}}
}

func misbehave(role string) {
	progress := os.NewFile(ProgressFD, "progress")
	var job runner.Job
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stdout, "printed before")
	fmt.Fprintln(os.Stderr, "warning: about to misbehave")
	if role == "hang" {
		fmt.Fprintf(progress, `{"progress":{"phase":"%d"}}`+"\n", os.Getpid())
		time.Sleep(time.Hour)
	}
	fmt.Fprintln(progress, `{"progress":{"phase":"load","done":1,"total":2}}`)
	switch role {
	case "panic":
		panic("index out of range")
	case "exit":
		os.Exit(7)
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "memory":
		fmt.Fprintln(os.Stderr, "fatal error: runtime: out of memory")
		os.Exit(2)
	case "told":
		fmt.Fprintln(progress, `{"failure":{"kind":"nan","message":"chunk 3 is not finite"}}`)
		os.Exit(1)
	case "long":
		fmt.Fprintf(progress, `{"failure":{"kind":"crash","message":"%s"}}`+"\n", strings.Repeat("x", longMessage))
		os.Exit(1)
	case "garbage":
		fmt.Fprint(progress, "not JSON\n{\"progress\":")
	case "grandchild":
		sleep := exec.Command("sleep", "3600")
		if err := sleep.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintf(progress, `{"progress":{"phase":"%d"}}`+"\n", sleep.Process.Pid)
		time.Sleep(time.Hour)
	}
}

func TestAChildThatFailsIsDescribed(t *testing.T) {
	for role, want := range map[string]results.Failure{
		"panic":  {Kind: results.Crash, Message: "panic: index out of range", ExitCode: 2},
		"exit":   {Kind: results.Crash, Message: "warning: about to misbehave", ExitCode: 7},
		"kill":   {Kind: results.Crash, Message: "ended by signal: killed; warning: about to misbehave", ExitCode: -1, Signal: "killed"},
		"memory": {Kind: results.OutOfMemory, Message: "fatal error: runtime: out of memory", ExitCode: 2},
		"told":   {Kind: results.NaN, Message: "chunk 3 is not finite", ExitCode: 1},
	} {
		t.Run(role, func(t *testing.T) {
			var seen []runner.Progress
			out, err := executor(t, role).Execute(t.Context(), runner.Job{}, func(p runner.Progress) { seen = append(seen, p) })
			if err != nil {
				t.Fatal(err)
			}
			if out.Failure == nil || *out.Failure != want {
				t.Errorf("failure %+v, expected %+v", out.Failure, want)
			}
			if string(out.Stdout) != "printed before\n" || !strings.HasPrefix(string(out.Stderr), "warning: about to misbehave\n") {
				t.Errorf("stdout %q, stderr %q", out.Stdout, out.Stderr)
			}
			if len(seen) != 1 || seen[0] != (runner.Progress{Phase: "load", Done: 1, Total: 2}) {
				t.Errorf("progress %v", seen)
			}
		})
	}
}

func TestGarbageAmongTheMessagesIsSkipped(t *testing.T) {
	out, err := executor(t, "garbage").Execute(t.Context(), runner.Job{}, func(runner.Progress) {})
	if err != nil || out.Failure != nil || string(out.Stdout) != "printed before\n" {
		t.Errorf("%+v, %v", out, err)
	}
}

// longMessage is more than a pipe and a line reader hold together.
const longMessage = 1 << 20

func TestALongMessageNeitherBlocksTheChildNorIsLost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := executor(t, "long").Execute(ctx, runner.Job{}, func(runner.Progress) {})
	if err != nil || out.Failure == nil || len(out.Failure.Message) != longMessage {
		t.Errorf("error %v, failure %.100v", err, out.Failure)
	}
}

func TestABinaryThatIsNotThereIsAnErrorOfTheExecutor(t *testing.T) {
	_, err := Executor{Command: []string{"/nonexistent/binary"}}.Execute(t.Context(), runner.Job{}, nil)
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/binary") {
		t.Errorf("got %v", err)
	}
}

func TestACancelledChildIsKilledWithItsWholeGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	grandchild := 0
	start := time.Now()
	out, err := executor(t, "grandchild").Execute(ctx, runner.Job{}, func(p runner.Progress) {
		if pid, err := strconv.Atoi(p.Phase); err == nil {
			grandchild = pid
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || string(out.Stdout) != "printed before\n" {
		t.Errorf("stdout %q, error %v", out.Stdout, err)
	}
	if took := time.Since(start); took > childGrace {
		t.Errorf("it took %v", took)
	}
	waitForEnd(t, grandchild)
}

func TestADeadlineEndsAChild(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if out, err := executor(t, "hang").Execute(ctx, runner.Job{}, func(runner.Progress) {}); !errors.Is(err, context.DeadlineExceeded) || out.Failure != nil {
		t.Errorf("%+v, %v", out, err)
	}
}

// beParent starts a child that hangs and tells its process id.
func beParent() {
	os.Setenv("ATTNBUDGET_TEST_ROLE", "hang")
	_, err := Executor{Command: []string{os.Args[0]}}.Execute(context.Background(), runner.Job{}, func(p runner.Progress) { fmt.Println(p.Phase) })
	fmt.Println("the child ended:", err)
}

func TestAChildEndsWithItsParent(t *testing.T) {
	read, write := io.Pipe()
	defer write.Close()
	done := make(chan error)
	go func() {
		done <- Child(t.Context(), read, io.Discard, io.Discard, io.Discard)
	}()
	job := perplexityJob(t)
	job.Condition.Chunks = 0
	if err := json.NewEncoder(write).Encode(job); err != nil {
		t.Fatal(err)
	}
	write.Close()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "the parent process is gone") {
			t.Errorf("got %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the child works on after its parent closed the pipe")
	}
}

func TestTheKernelKillsTheChildOfADeadParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux does")
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "ATTNBUDGET_TEST_ROLE=parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent says %q", line)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	waitForEnd(t, child)
}

// waitForEnd fails unless the process ends within a few seconds. A zombie has ended.
func waitForEnd(t *testing.T, pid int) {
	t.Helper()
	if pid == 0 {
		t.Fatal("no process was started")
	}
	for range 100 {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(b), ") Z ") {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

func TestOutOfMemoryIsRecognised(t *testing.T) {
	for name, c := range map[string]struct {
		stderr string
		killed bool
		want   string
	}{
		"killed while the kernel ran out":         {"", true, results.OutOfMemory},
		"killed by someone":                       {"", false, results.Crash},
		"the runtime's own words":                 {"fatal error: runtime: cannot allocate memory\n", false, results.OutOfMemory},
		"words of a library that mentions memory": {"warning: out of memory is unlikely\n", false, results.Crash},
	} {
		cmd := exec.Command("sh", "-c", "kill -9 $$")
		_ = cmd.Run()
		if f := classify(cmd.ProcessState, nil, c.stderr, c.killed); f.Kind != c.want {
			t.Errorf("%s: %+v, expected %s", name, f, c.want)
		}
	}
	if f := describe(fmt.Errorf("map the model: %w", syscall.ENOMEM)); f.Kind != results.OutOfMemory {
		t.Errorf("ENOMEM: %+v", f)
	}
}
