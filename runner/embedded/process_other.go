//go:build unix && !linux

package embedded

import "syscall"

// childAttributes: a process group of its own. That the parent died shows in the child's standard input.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
