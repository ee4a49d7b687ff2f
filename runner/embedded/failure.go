package embedded

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"attnbudget/engine/eval"
	"attnbudget/results"
)

// UnavailableError reports a model or input file that is gone or not the one the plan was made with.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// describe is what the child tells its parent about an error.
func describe(err error) *results.Failure {
	var unavailable *UnavailableError
	var notFinite *eval.NotFiniteError
	f := &results.Failure{Kind: results.Crash, Message: err.Error()}
	switch {
	case errors.As(err, &notFinite):
		f.Kind = results.NaN
	case errors.Is(err, syscall.ENOMEM):
		f.Kind = results.OutOfMemory
	case errors.As(err, &unavailable):
		f.Kind = results.Unavailable
	}
	return f
}

// classify says why a child that did not end well failed: told is what it said itself, nil if it did not come to that.
// oomKilled: the kernel has meanwhile killed some process for want of memory.
func classify(state *os.ProcessState, told *results.Failure, stderr string, oomKilled bool) *results.Failure {
	if told != nil && state.Exited() {
		told.ExitCode = state.ExitCode()
		return told
	}
	f := &results.Failure{Kind: results.Crash, Message: reason(stderr), ExitCode: state.ExitCode()}
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case runtimeOutOfMemory(stderr):
		f.Kind = results.OutOfMemory
	case ok && status.Signaled() && status.Signal() == syscall.SIGKILL && oomKilled:
		f.Kind, f.Message = results.OutOfMemory, "killed by the kernel for want of memory"
	case ok && status.Signaled():
		f.Message = strings.TrimSuffix("ended by signal: "+status.Signal().String()+"; "+f.Message, "; ")
	}
	if ok && status.Signaled() {
		f.Signal = status.Signal().String()
	}
	if f.Message == "" {
		f.Message = state.String()
	}
	return f
}

// runtimeOutOfMemory recognises the Go runtime's own words when the system gives it no more memory.
func runtimeOutOfMemory(stderr string) bool {
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "fatal error:") && (strings.Contains(line, "out of memory") || strings.Contains(line, "cannot allocate memory")) {
			return true
		}
	}
	return false
}

// reason is the line of stderr that says why a process ended: the runtime's if there is one, else the last.
func reason(stderr string) string {
	last := ""
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return line
		}
		if line != "" {
			last = line
		}
	}
	return last
}

// oomKills counts the processes that the kernel has killed for want of memory since it started, in any cgroup; 0 where
// the system does not tell. A container may see only the count of its own cgroup.
func oomKills() int {
	return counter("/proc/vmstat", "oom_kill") + counter("/sys/fs/cgroup/memory.events", "oom_kill")
}

// counter reads the number behind a name in a file of lines "name number".
func counter(path, name string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}
