// Package embedded executes units on the engine inside this binary, each in a fresh child process of it, so that a unit
// that crashes, runs out of memory or leaves the heap in disorder touches neither the runner nor the next unit.
//
// Parent and child speak as follows. The parent starts `BINARY unit`, writes the job as one JSON object to standard
// input and keeps it open: when it closes, the parent is gone and the child gives up. The child prints the raw output
// on standard output and everything for people on standard error. On file descriptor 3 it writes one JSON message per
// line: progress, what people should know at once, the fingerprint of the model file, how often it was resumed, and at last why it failed, if it did.
// Its exit code is 0 if it did what the job asks and 1 if not. Any other ending, by a signal or with the Go runtime's
// exit code 2, is a crash, or a want of memory if the kernel or the runtime says so.
//
// The child has a process group of its own, so that Ctrl-C reaches the parent alone, and on Linux the kernel kills it
// when its parent dies.
//
// The package evaluates nothing itself: packages engine, bench and eval do.
package embedded

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"attnbudget/results"
	"attnbudget/runner"
)

// Subcommand is the command of the binary that runs Child.
const Subcommand = "unit"

// ProgressFD is the file descriptor on which the child writes its messages.
const ProgressFD = 3

// Executor is a runner.Executor. The zero value runs the `unit` command of the running binary.
type Executor struct {
	// Command starts a child; empty: the running binary with Subcommand.
	Command []string
}

// childGrace is how long a killed child's pipes may stay open, which only a grandchild could cause.
const childGrace = 5 * time.Second

// message is one line of file descriptor 3.
type message struct {
	Progress    *runner.Progress `json:"progress,omitempty"` // or a note
	ModelSHA256 string           `json:"model_sha256,omitempty"`
	Resumed     int              `json:"resumed,omitempty"`
	Failure     *results.Failure `json:"failure,omitempty"`
}

// Execute implements runner.Executor.
func (x Executor) Execute(ctx context.Context, job runner.Job, progress func(runner.Progress)) (runner.Output, error) {
	// The kernel kills the child when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG), not only when the
	// process does; the thread therefore stays until the child has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd, err := x.command(ctx)
	if err != nil {
		return runner.Output{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var out runner.Output
	var told *results.Failure
	kills := oomKills()
	err = speak(cmd, job, func(m message) {
		switch {
		case m.Progress != nil:
			progress(*m.Progress)
		case m.ModelSHA256 != "":
			out.ModelSHA256 = m.ModelSHA256
		case m.Resumed > 0:
			out.Resumed = m.Resumed
		case m.Failure != nil:
			told = m.Failure
		}
	})
	out.Stdout, out.Stderr = stdout.Bytes(), stderr.Bytes()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return out, ctx.Err()
	case errors.As(err, &exit):
		out.Failure = classify(exit.ProcessState, told, stderr.String(), oomKills() > kills)
		return out, nil
	}
	return out, fmt.Errorf("child process: %w", err)
}

func (x Executor) command(ctx context.Context) (*exec.Cmd, error) {
	command := x.Command
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("child process: %w", err)
		}
		command = []string{self, Subcommand}
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.SysProcAttr = childAttributes()
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	cmd.WaitDelay = childGrace
	return cmd, nil
}

// speak starts the child, sends the job, hands its messages on, and waits for its end.
func speak(cmd *exec.Cmd, job runner.Job, on func(message)) error {
	text, err := json.Marshal(job)
	if err != nil {
		return err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd.ExtraFiles = []*os.File{write} // the first extra file is descriptor ProgressFD
	err = cmd.Start()
	write.Close()
	if err != nil {
		return err
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		listen(read, on)
	}()
	// A child that died before reading says so by its exit status.
	_, _ = stdin.Write(append(text, '\n'))
	err = cmd.Wait()
	read.SetReadDeadline(time.Now().Add(childGrace))
	<-heard
	return err
}

// listen reads messages, of any length, until the child's end of the pipe is closed: a child whose messages are not read
// would wait for ever. A line that is none is skipped: it can only be the last one of a killed child.
func listen(r io.Reader, on func(message)) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		var m message
		if json.Unmarshal(line, &m) == nil {
			on(m)
		}
		if err != nil {
			return
		}
	}
}
