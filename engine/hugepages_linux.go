package engine

import (
	"bytes"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of the pages weights are moved to.
const hugePage = 2 << 20

// hugePagesFor reports whether the system hands out huge pages on request and n bytes are at most half of the memory that
// can be had: memory of the process's own cannot be dropped and read again from the file when it becomes short.
func hugePagesFor(n int64) bool {
	enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil || bytes.Contains(enabled, []byte("[never]")) {
		return false
	}
	return n <= availableMemory()/2
}

// moveToHugePages replaces the pages of b, which is part of the read-only mapping of a file and begins and ends at bounds of
// huge pages, by huge pages with the same content at the same addresses. It reports whether it did; if not, b is as before.
func moveToHugePages(b []byte) bool {
	n := uintptr(len(b))
	room, err := unix.MmapPtr(-1, 0, nil, n+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false
	}
	head := uintptr(toBound(unsafe.Slice((*byte)(room), 1), hugePage))
	fresh := unsafe.Add(room, head)
	copied := unsafe.Slice((*byte)(fresh), n)
	moved := unix.Madvise(copied, unix.MADV_HUGEPAGE) == nil
	if moved {
		copy(copied, b)
		moved = unix.Mprotect(copied, unix.PROT_READ) == nil
	}
	if moved {
		_, err := unix.MremapPtr(fresh, n, unsafe.Pointer(unsafe.SliceData(b)), n, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
		moved = err == nil
	}
	if !moved {
		_ = unix.MunmapPtr(room, n+hugePage) // address space nobody uses is all that a failure would leave
		return false
	}
	for _, rest := range []struct {
		at   unsafe.Pointer
		size uintptr
	}{{room, head}, {unsafe.Add(fresh, n), hugePage - head}} {
		if rest.size > 0 {
			_ = unix.MunmapPtr(rest.at, rest.size)
		}
	}
	return true
}
