//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime is what the process has computed so far. Unlike the time of day it does not pass while others use the processor.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
