//go:build !unix

package gguf

import "os"

// mapFile reads the whole file: a slower stand-in where there is no mmap.
func mapFile(path string) (b []byte, unmap func() error, err error) {
	b, err = os.ReadFile(path)
	return b, func() error { return nil }, err
}
