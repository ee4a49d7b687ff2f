//go:build !linux

package bench

import (
	"errors"

	"attnbudget/engine/meter"
)

// eventCounter reads event counters of the processor; here there is no way to them.
type eventCounter struct{}

func openHardware() (*eventCounter, error) {
	return nil, errors.New("they are read through perf_event_open, which only Linux has")
}

func (*eventCounter) read() meter.Events { return meter.Events{} }

// Close ends the counting.
func (*eventCounter) Close() {}
