package eval

import (
	"encoding/json"
	"fmt"
	"io"
)

// printer writes lines and remembers the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, a ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, a...)
	}
}

// json writes v as one line.
func (p *printer) json(v any) {
	if p.err == nil {
		p.err = json.NewEncoder(p.w).Encode(v)
	}
}
