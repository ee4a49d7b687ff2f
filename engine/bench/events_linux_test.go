package bench

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The events the kernel counts by itself go the same way as those of the processor, which many virtual machines lack.
func TestEventsOfAllThreadsAreCounted(t *testing.T) {
	clock := eventID{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK}
	faults := eventID{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS}
	c, err := openEvents(clock, faults)
	if err != nil {
		t.Skipf("no event counters here: %v", err)
	}
	defer c.Close()
	before := c.read()
	after := before
	// Some systems count the faults of a thread only from when it next gets a processor, and the heap hands out memory that was
	// touched before: fresh memory is touched until a fault is counted.
	for start := processorTime(t); processorTime(t)-start < 20*time.Millisecond || after.Cycles == before.Cycles && processorTime(t)-start < 5*time.Second; after = c.read() {
		touchFreshMemory(t, 8<<20)
	}
	if ns := after.Instructions - before.Instructions; ns < 10e6 {
		t.Errorf("%d ns of processor time counted in 20 ms of it", ns)
	}
	if n := after.Cycles - before.Cycles; n < 1 {
		t.Errorf("%d page faults counted while memory was touched for the first time", n)
	}
}

// touchFreshMemory touches every page of memory that this process has not had before.
func touchFreshMemory(t *testing.T, n int) {
	memory, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < n; i += 4096 {
		memory[i] = 1
	}
	if err := unix.Munmap(memory); err != nil {
		t.Fatal(err)
	}
}

// processorTime is what this process has used so far; wall time says nothing on a busy machine.
func processorTime(t *testing.T) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func TestARefusalSaysWhy(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{unix.ENOENT, "offers none"}, {unix.EACCES, "perf_event_paranoid"}, {unix.ENOSYS, "perf_event_open"},
	} {
		if err := refusal(c.err); !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.err) {
			t.Errorf("%v becomes %q, want %q in it", c.err, err, c.want)
		}
	}
}
