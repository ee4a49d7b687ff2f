package results

import (
	"fmt"
	"strconv"
	"strings"
)

// SchemaError reports a file whose schema this program does not read.
type SchemaError struct {
	Path  string
	Want  string // "attnbudget/record/1"
	Found string
}

// Newer reports whether the file is of the wanted kind but of a later version.
func (e *SchemaError) Newer() bool {
	kind, version := splitSchema(e.Found)
	wantKind, wantVersion := splitSchema(e.Want)
	return kind == wantKind && version > wantVersion
}

func (e *SchemaError) Error() string {
	if e.Newer() {
		return fmt.Sprintf("%s has schema %s and this program reads %s: it was written by a newer version, use that one", e.Path, e.Found, e.Want)
	}
	return fmt.Sprintf("%s has schema %q, expected %q", e.Path, e.Found, e.Want)
}

// splitSchema cuts "attnbudget/record/1" into its kind and version; the version is -1 when there is none.
func splitSchema(s string) (kind string, version int) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, -1
	}
	v, err := strconv.Atoi(s[i+1:])
	if err != nil || v < 0 {
		return s, -1
	}
	return s[:i], v
}

func checkSchema(path, want, found string) error {
	if found == want {
		return nil
	}
	return &SchemaError{path, want, found}
}
