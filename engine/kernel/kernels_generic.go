//go:build !amd64 || purego

package kernel

func choose() kernels { return generic() }

func available() []kernels { return []kernels{generic()} }
