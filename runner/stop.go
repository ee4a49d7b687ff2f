package runner

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// NotifyStop turns signals into what Run understands. The first Ctrl-C closes stop: the running unit is finished. The
// second, or SIGTERM at any time, cancels the context: the unit is given up. said is called with one line for the user
// each time. release ends the watching.
func NotifyStop(parent context.Context, said func(string)) (ctx context.Context, stop <-chan struct{}, release func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	asked := make(chan struct{})
	go func() {
		for first := true; ; first = false {
			select {
			case <-ctx.Done():
				return
			case sig := <-signals:
				if first && sig == os.Interrupt {
					said("stopping after this unit; once more gives it up")
					close(asked)
					continue
				}
				said("giving up the running unit")
				cancel()
				return
			}
		}
	}()
	return ctx, asked, func() { signal.Stop(signals); cancel() }
}
