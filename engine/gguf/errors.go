package gguf

import "fmt"

// FormatError says what is wrong with the bytes of a file: they are not a GGUF file this project reads.
type FormatError struct {
	File     string
	Offset   int64 // byte in the file at which the offending value starts
	What     string
	Expected string
	Found    string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: byte %d: %s: expected %s, found %s", e.File, e.Offset, e.What, e.Expected, e.Found)
}

// KeyError says that a metadata key is absent or does not hold what was asked for.
type KeyError struct {
	File  string
	Key   string
	Want  string
	Found string // what the key holds; empty when it is absent
}

func (e *KeyError) Error() string {
	if e.Missing() {
		return fmt.Sprintf("%s: metadata key %q: expected %s, but the file has no such key", e.File, e.Key, e.Want)
	}
	return fmt.Sprintf("%s: metadata key %q: expected %s, found %s", e.File, e.Key, e.Want, e.Found)
}

// Missing reports whether the key is absent, rather than of another type.
func (e *KeyError) Missing() bool { return e.Found == "" }
