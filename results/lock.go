//go:build unix

package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Holder is who holds the lock of a run directory.
type Holder struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Since   time.Time `json:"since"`
	Command string    `json:"command"`
}

// LockedError reports a run directory that another process is writing.
type LockedError struct {
	Path   string
	Holder Holder // zero if it has not written its name yet
}

func (e *LockedError) Error() string {
	if e.Holder.PID == 0 {
		return fmt.Sprintf("%s is in use by another process", e.Path)
	}
	return fmt.Sprintf("%s is in use by process %d on %s since %s (%s): wait for it or stop it",
		e.Path, e.Holder.PID, e.Holder.Host, e.Holder.Since.Local().Format(time.DateTime), e.Holder.Command)
}

// Lock is the right to write in a run directory. The kernel takes it back when the process ends, however it ends.
type Lock struct{ f *os.File }

// Lock takes the run's lock without waiting; command says what for. The error is a *LockedError when another process,
// or another Lock of this one, holds it.
func (d *Dir) Lock(command string) (*Lock, error) {
	path := d.file(lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		locked := &LockedError{Path: d.path}
		if b, readErr := io.ReadAll(io.LimitReader(f, 1<<16)); readErr == nil {
			// Its holder may be just writing it; then its name is not known, which the error can say.
			_ = json.Unmarshal(b, &locked.Holder)
		}
		return nil, locked
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := writeHolder(f, command); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Lock{f}, nil
}

func writeHolder(f *os.File, command string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	b, err := json.Marshal(Holder{os.Getpid(), host, time.Now().UTC().Truncate(time.Second), command})
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(b, '\n'), 0)
	return err
}

// Unlock gives the lock back. The file stays: removing it would let two processes lock two files of one name.
func (l *Lock) Unlock() error {
	return errors.Join(l.f.Truncate(0), l.f.Close())
}
