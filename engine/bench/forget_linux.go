package bench

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget makes the system drop the pages of a file that it holds in memory; pages that some process has mapped stay.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fdatasync(int(f.Fd())); err != nil { // pages not yet written cannot be dropped
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
