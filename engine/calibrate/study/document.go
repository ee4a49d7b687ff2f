package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"attnbudget/atomicfile"
	"attnbudget/internal/markdown"
)

// document takes what has been measured.
type document struct {
	path       string // file whose parts are filled; "" = out
	model      string // what the names of parts begin with
	out, notes io.Writer
}

// put prints a part, or writes it at once: what follows may take hours.
func (d document) put(name string, paragraphs ...string) error {
	content := strings.Join(paragraphs, "\n\n")
	name = strings.TrimSpace(d.model + " " + name)
	if d.path == "" {
		_, err := fmt.Fprintln(d.out, markdown.Part(name, content)+"\n")
		return err
	}
	text, err := os.ReadFile(d.path)
	if err != nil {
		return err
	}
	filled, err := markdown.Fill(string(text), name, content)
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	return atomicfile.WriteBytes(d.path, []byte(filled))
}

// skip says what is not measured, and why.
func (d document) skip(what, why string) { fmt.Fprintf(d.notes, "%s skipped: %s\n", what, why) }
