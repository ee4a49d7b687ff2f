//go:build !unix

package engine

// willNeed does nothing: the file has been read whole.
func willNeed([]byte) {}
