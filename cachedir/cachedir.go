// Package cachedir knows where files are kept that can be had again: models that were downloaded or made up, quantised
// copies. Nothing in it is needed to understand a run, and all of it may be deleted while no run goes on.
//
// It names the folder and keeps two processes from filling the same place at once; what a file is called, and when it is
// whole, is the business of whoever puts it there.
package cachedir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Path is the folder: ATTNBUDGET_CACHE, or attnbudget in the user's cache folder. It need not exist yet.
func Path() (string, error) {
	if dir := os.Getenv("ATTNBUDGET_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder (set ATTNBUDGET_CACHE): %w", err)
	}
	return filepath.Join(dir, "attnbudget"), nil
}

// Lock waits for the exclusive lock on the file at path, which it makes, and which stays. The kernel gives the lock back
// when the process ends, however it ends.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
