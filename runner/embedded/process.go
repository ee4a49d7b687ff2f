//go:build unix

package embedded

import (
	"os"
	"syscall"
)

// killGroup kills the child with all processes of its group.
func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
