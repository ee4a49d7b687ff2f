//go:build unix

package bench

import "golang.org/x/sys/unix"

// faults are the page faults of this process so far: minor ones were served from memory, major ones from a disk.
func faults() (minor, major int64) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	return int64(u.Minflt), int64(u.Majflt)
}
