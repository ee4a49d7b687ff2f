package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// interruptible gives a command a context that ends with Ctrl-C, so that it leaves nothing half done.
func interruptible(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, release := untilInterrupted(c.Context())
		defer release()
		c.SetContext(ctx)
		err := run(c, args)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return fmt.Errorf("interrupted: %w", err)
		}
		return err
	}
	return c
}

// untilInterrupted is a context that ends with the first Ctrl-C or SIGTERM. The second ends the process as if nobody listened.
func untilInterrupted(parent context.Context) (ctx context.Context, release func()) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// outliveReaders lets writes to a pipe that nobody reads any more fail, until release. Otherwise the system would end the process:
// a measurement of hours must not be lost because its progress went to a program that has ended.
func outliveReaders() (release func()) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return func() { signal.Stop(broken) }
}
