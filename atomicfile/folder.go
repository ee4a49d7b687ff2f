package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// MakeFolder makes a folder, and those above it that are missing, as os.MkdirAll does, and makes their names durable: a file in a
// folder that a power cut takes away is not.
func MakeFolder(path string) error {
	if found, err := isFolder(path); found || err != nil {
		return err
	}
	parent := filepath.Dir(path)
	if err := MakeFolder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		if found, _ := isFolder(path); !found { // another process may have been faster
			return err
		}
	}
	return SyncFolder(parent)
}

func isFolder(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	return err == nil, err
}
