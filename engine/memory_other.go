//go:build !linux

package engine

// installedMemory is not known.
func installedMemory() int64 { return 0 }
