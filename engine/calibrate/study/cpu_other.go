//go:build !unix

package main

import "time"

var start = time.Now()

// cpuTime is the time of day here, so that speed is to be measured on an idle machine.
func cpuTime() time.Duration { return time.Since(start) }
