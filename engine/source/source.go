// Package source opens what flags and campaigns name: a file by its path, or one that the binary holds by builtin:NAME. Nobody
// else tells the two apart.
//
// It downloads nothing and caches nothing.
package source

import (
	"context"
	"fmt"
	"os"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/builtin"
	"attnbudget/engine/gguf"
)

// KindError is a builtin file that is not a model, named where one is expected.
type KindError struct {
	Name string
	Kind builtin.Kind
}

func (e *KindError) Error() string {
	return fmt.Sprintf("%s is a %s file, not a model; models: %s", e.Name, e.Kind, strings.Join(builtin.Names(builtin.Model), ", "))
}

// Model opens a model to compute with; closing it closes its file. Errors are those of File and engine.OpenFile.
func Model(name string, o engine.Options) (*engine.Model, error) {
	if !builtin.IsName(name) {
		return engine.Open(name, o)
	}
	f, err := File(name)
	if err != nil {
		return nil, err
	}
	return engine.OpenFile(f, o) // a file in memory needs no closing
}

// File opens the GGUF file of a model, the first part of a split one. Errors are a *builtin.UnknownError, a *KindError, or
// those of gguf.Open.
func File(name string) (*gguf.File, error) {
	if !builtin.IsName(name) {
		return gguf.Open(name)
	}
	kind, err := builtin.KindOf(name)
	if err != nil {
		return nil, err
	}
	if kind != builtin.Model {
		return nil, &KindError{name, kind}
	}
	data, err := builtin.Open(name)
	if err != nil {
		return nil, err
	}
	return gguf.OpenBytes(name, data)
}

// Read returns the bytes of a text or task file, which must not be changed.
func Read(name string) ([]byte, error) {
	if builtin.IsName(name) {
		return builtin.Open(name)
	}
	return os.ReadFile(name)
}

// Fingerprint is the identity of a model's bytes, those of all its parts, in lower-case hexadecimal digits.
func Fingerprint(ctx context.Context, name string) (string, error) {
	if builtin.IsName(name) {
		return builtin.SHA256(name)
	}
	return gguf.Fingerprint(ctx, name)
}
