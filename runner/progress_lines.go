package runner

import (
	"fmt"
	"io"
)

// NewLines reports one line per finished unit, for logs and pipes.
func NewLines(w io.Writer, colour bool) Reporter { return &lines{w, newPalette(colour)} }

type lines struct {
	w io.Writer
	c palette
}

// Report ignores errors of the writer: a closed pipe is no reason to end a measurement.
func (l *lines) Report(e Event) {
	if s := l.c.line(e); s != "" {
		fmt.Fprintln(l.w, s)
	}
}

func (l *lines) Close() {}
