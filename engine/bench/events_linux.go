package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"attnbudget/engine/meter"

	"golang.org/x/sys/unix"
)

// eventCounter reads two event counters of every thread that the process had when it was opened.
type eventCounter struct {
	leaders, members []int // file descriptors; reading a leader gives both
	buffer           [24]byte
}

// eventID is what perf_event_open counts.
type eventID struct {
	kind   uint32
	config uint64
}

var (
	instructions = eventID{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS}
	cycles       = eventID{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES}
)

// openEvents starts counting. The error says for people why this system does not let it.
func openEvents(first, second eventID) (*eventCounter, error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, fmt.Errorf("the threads of this process are not listed: %w", err)
	}
	c := &eventCounter{}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := c.add(id, first, second); errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		} else if err != nil {
			c.Close()
			return nil, refusal(err)
		}
	}
	return c, nil
}

func (c *eventCounter) add(thread int, first, second eventID) error {
	leader, err := openEvent(thread, -1, first)
	if err != nil {
		return err
	}
	c.leaders = append(c.leaders, leader)
	member, err := openEvent(thread, leader, second)
	if err == nil {
		c.members = append(c.members, member)
	}
	return err
}

func openEvent(thread, group int, e eventID) (int, error) {
	attr := unix.PerfEventAttr{
		Type: e.kind, Config: e.config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_GROUP,
		Bits:        unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv, // what an unprivileged process may count
	}
	return unix.PerfEventOpen(&attr, thread, -1, group, unix.PERF_FLAG_FD_CLOEXEC)
}

func refusal(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("the processor, or the virtual machine it is in, offers none (perf_event_open: %w)", err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		level, _ := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
		return fmt.Errorf("the system forbids them (perf_event_open: %w; kernel.perf_event_paranoid is %q, a process may count itself up to 2)",
			err, strings.TrimSpace(string(level)))
	}
	return fmt.Errorf("perf_event_open: %w", err)
}

// read is what has been counted so far. A thread that cannot be read counts as it did at none.
func (c *eventCounter) read() meter.Events {
	var e meter.Events
	for _, fd := range c.leaders {
		if n, err := unix.Read(fd, c.buffer[:]); err != nil || n < len(c.buffer) {
			continue
		}
		e.Instructions += int64(binary.NativeEndian.Uint64(c.buffer[8:])) // after the number of counters
		e.Cycles += int64(binary.NativeEndian.Uint64(c.buffer[16:]))
	}
	return e
}

// Close ends the counting.
func (c *eventCounter) Close() {
	for _, fd := range append(c.members, c.leaders...) {
		unix.Close(fd)
	}
	c.leaders, c.members = nil, nil
}

// openHardware counts instructions and cycles.
func openHardware() (*eventCounter, error) { return openEvents(instructions, cycles) }
