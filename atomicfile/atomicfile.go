// Package atomicfile writes files whole or not at all. A file that is being written has a temporary name in the folder of the
// one it is to become; when all of it is on the disk it gets its own name in one step. After a crash or a power cut there is
// the old file or the new one, never half of one.
//
// It knows nothing of what is written. It does not append, and does not keep two processes from writing the same file:
// the one that is done last wins.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
)

// temporary matches the names of files that are being written: ".NAME.RANDOM.tmp".
var temporary = regexp.MustCompile(`^\.(.+)\.[0-9a-f]{16}\.tmp$`)

// File is a file that is being written.
//
//	f, err := atomicfile.Create(path)
//	if err != nil { ... }
//	defer f.Abort() // does nothing after Commit
type File struct {
	*os.File
	path  string
	ended bool
}

// Check says whether a file may be given the name path: what stands there must be a file, or nothing. A directory cannot be
// replaced, and a device or pipe (/dev/null, /dev/stdout) must not be.
func Check(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return nil
	}
	kind := "a device or pipe"
	if info.IsDir() {
		kind = "a directory"
	}
	return fmt.Errorf("write %s: it is %s and cannot be replaced by a file: choose another name", path, kind)
}

// Create begins the file that will be called path. One that exists stays until Commit replaces it; what is no file is refused.
func Create(path string) (*File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	name := fmt.Sprintf(".%s.%016x.tmp", filepath.Base(path), rand.Uint64())
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	return &File{File: f, path: path}, nil
}

// Commit makes the file durable and gives it its name.
func (f *File) Commit() error {
	if f.ended {
		return fmt.Errorf("write %s: %w", f.path, fs.ErrClosed)
	}
	err := f.Sync()
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	f.ended = true
	return SyncFolder(filepath.Dir(f.path))
}

// Abort removes the unfinished file. After a successful Commit, or a second time, it does nothing.
func (f *File) Abort() error {
	if f.ended {
		return nil
	}
	f.ended = true
	f.Close() // its data are not wanted; Commit may have closed it
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Write puts at path what write writes, or, when that fails, leaves what is there.
func Write(path string, write func(*os.File) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	if err := write(f.File); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), f.Abort())
	}
	if err := f.Commit(); err != nil {
		return errors.Join(err, f.Abort())
	}
	return nil
}

// WriteBytes puts data at path.
func WriteBytes(path string, data []byte) error {
	return Write(path, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// RemoveLeftovers deletes the temporary files in folder. Nobody may be writing there: it is for what a process that was killed
// has left. A folder that is not there has none.
func RemoveLeftovers(folder string) error {
	return removeLeftovers(folder, func(string) bool { return true })
}

// RemoveLeftoversOf is RemoveLeftovers for one file, whose folder others may be writing to.
func RemoveLeftoversOf(path string) error {
	return removeLeftovers(filepath.Dir(path), func(name string) bool { return name == filepath.Base(path) })
}

// IsLeftover reports whether a file of this name is one that is being written, or that a process that was killed has left.
func IsLeftover(name string) bool { return temporary.MatchString(name) }

func removeLeftovers(folder string, of func(name string) bool) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if m := temporary.FindStringSubmatch(e.Name()); m != nil && of(m[1]) {
			if err := os.Remove(filepath.Join(folder, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
