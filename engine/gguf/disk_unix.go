//go:build unix

package gguf

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps a file into memory, read only. unmap releases it.
func mapFile(path string) (b []byte, unmap func() error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // the mapping outlives the descriptor
	s, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	size := s.Size()
	if size == 0 {
		return nil, func() error { return nil }, nil // an empty mapping is an error of the system
	}
	if size > math.MaxInt {
		return nil, nil, fmt.Errorf("%s: %d bytes are more than this system can address", path, size)
	}
	b, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	return b, func() error { return unix.Munmap(b) }, nil
}
