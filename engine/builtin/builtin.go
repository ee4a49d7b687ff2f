// Package builtin holds the model this project ships, Glossary 5M, with its texts and task files, embedded in the
// binary. A campaign names them `builtin:NAME`. How they were made and under which licence: MODEL.md and
// WORDNET-LICENSE.txt in this folder, the scripts under scripts/.
//
// It only hands out bytes: it opens no model and tokenises no text.
package builtin

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Prefix marks a builtin name in campaigns and flags.
const Prefix = "builtin:"

// Kind says what a builtin file is.
type Kind string

// Kinds of builtin files.
const (
	Model      Kind = "model"      // a GGUF file
	Text       Kind = "text"       // plain text for perplexity or calibration
	HellaSwag  Kind = "hellaswag"  // upstream's six-line text format
	Winogrande Kind = "winogrande" // upstream's csv format
)

//go:embed glossary-5m-f16.gguf
var glossary []byte

//go:embed calibration.txt
var calibration []byte

//go:embed evaluation.txt
var evaluation []byte

//go:embed gloss-swag.txt
var glossSwag []byte

//go:embed gloss-grande.csv
var glossGrande []byte

type file struct {
	name string
	kind Kind
	data []byte
}

func files() []file {
	return []file{
		{"glossary-5m", Model, glossary},
		{"calibration", Text, calibration},
		{"evaluation", Text, evaluation},
		{"gloss-swag", HellaSwag, glossSwag},
		{"gloss-grande", Winogrande, glossGrande},
	}
}

// UnknownError is returned for a name that is not builtin.
type UnknownError struct {
	Name  string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("no builtin file %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// Names lists the builtin names of the given kinds (all when none is given), without the prefix, in a fixed order.
func Names(kinds ...Kind) []string {
	var out []string
	for _, f := range files() {
		if len(kinds) == 0 || slices.Contains(kinds, f.kind) {
			out = append(out, f.name)
		}
	}
	return out
}

// IsName reports whether s is written as a builtin name: it begins with Prefix.
func IsName(s string) bool { return strings.HasPrefix(s, Prefix) }

// Open returns the bytes of a builtin file, with or without Prefix. They are shared and must not be changed.
// The error is an *UnknownError.
func Open(name string) ([]byte, error) {
	f, err := find(name)
	return f.data, err
}

// KindOf returns what a builtin file is. The error is an *UnknownError.
func KindOf(name string) (Kind, error) {
	f, err := find(name)
	return f.kind, err
}

// SHA256 is the fingerprint of a builtin file in lower-case hexadecimal digits, computed once per process.
func SHA256(name string) (string, error) {
	f, err := find(name)
	if err != nil {
		return "", err
	}
	sums.Lock()
	defer sums.Unlock()
	if s, ok := sums.of[f.name]; ok {
		return s, nil
	}
	sum := sha256.Sum256(f.data)
	sums.of[f.name] = hex.EncodeToString(sum[:])
	return sums.of[f.name], nil
}

var sums = struct {
	sync.Mutex
	of map[string]string
}{of: map[string]string{}}

func find(name string) (file, error) {
	short := strings.TrimPrefix(name, Prefix)
	for _, f := range files() {
		if f.name == short {
			return f, nil
		}
	}
	return file{}, &UnknownError{short, Names()}
}
