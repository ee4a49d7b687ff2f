//go:build unix

package engine

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// willNeed asks the system to start reading b from its file. It is advice: nothing follows from a refusal.
func willNeed(b []byte) {
	page := uintptr(os.Getpagesize())
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (page - 1) // madvise wants whole pages
	if skip < uintptr(len(b)) {
		_ = unix.Madvise(b[skip:], unix.MADV_WILLNEED)
	}
}
