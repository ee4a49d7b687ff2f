//go:build !amd64 || purego

package kernel

func available() []kernels { return []kernels{generic()} }

// pause does what a processor has to offer for waiting loops.
func pause() {}
