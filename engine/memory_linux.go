package engine

import (
	"bytes"
	"math"
	"os"
	"strconv"
)

// availableMemory is what the system, or the control group of a container, has left for new memory; 0 = not known.
func availableMemory() int64 { return memory("MemAvailable:") }

// installedMemory is what the system has, or the control group allows; 0 = not known.
func installedMemory() int64 { return memory("MemTotal:") }

// memory is a figure of /proc/meminfo, at most what the control group allows.
func memory(field string) int64 {
	meminfo, _ := os.ReadFile("/proc/meminfo")
	_, after, _ := bytes.Cut(meminfo, []byte(field))
	line, _, _ := bytes.Cut(after, []byte("kB"))
	found := number(line) << 10
	limit, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil || bytes.HasPrefix(limit, []byte("max")) {
		return found
	}
	return min(found, number(limit))
}

// number is 0 where there is none.
func number(b []byte) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil || n > math.MaxInt64>>10 {
		return 0
	}
	return n
}
