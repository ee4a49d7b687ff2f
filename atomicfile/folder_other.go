//go:build !unix

package atomicfile

// SyncFolder does nothing: folders cannot be synchronised here.
func SyncFolder(string) error { return nil }
