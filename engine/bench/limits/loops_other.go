//go:build !amd64 || purego

package limits

func best() loops { return generic() }
