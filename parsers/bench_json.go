package parsers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// llama-bench -o json: one array over many lines, "[" alone on its first.

func openingBracket(t *text) int {
	for i, l := range t.lines {
		if l.text == "[" && i+1 < len(t.lines) && strings.TrimSpace(t.lines[i+1].text) == "{" {
			return i
		}
	}
	return -1
}

func matchBenchJSON(t *text) bool { return openingBracket(t) >= 0 }

func decodeBenchJSON(t *text) ([]Measurement, error) {
	from := openingBracket(t)
	var b bytes.Buffer
	for _, l := range t.lines[from:] {
		b.WriteString(l.text)
		b.WriteByte('\n')
	}
	at := func(offset int64) int {
		return t.lines[from].n + bytes.Count(b.Bytes()[:offset], []byte("\n"))
	}
	// opens is the line on which the object behind an offset begins: there may be a comma and a line end before it.
	opens := func(offset int64) int {
		return at(offset + max(0, int64(bytes.IndexByte(b.Bytes()[offset:], '{'))))
	}
	d := json.NewDecoder(bytes.NewReader(b.Bytes()))
	if _, err := d.Token(); err != nil {
		return nil, malformed(t.lines[from].n, "a JSON array", err.Error())
	}
	var rows []*benchRow
	for d.More() {
		o := &object{line: opens(d.InputOffset())}
		if err := d.Decode(&o.fields); err != nil {
			return nil, arrayError(err, o.line, b.Bytes()[d.InputOffset():])
		}
		r, err := benchObject(o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	if _, err := d.Token(); err != nil {
		return nil, truncated(at(d.InputOffset()), `"]" at the end of the array`, "the end of the output")
	}
	return measurements(rows)
}

func arrayError(err error, l int, rest []byte) error {
	switch {
	case nanInJSON.Match(rest):
		return &DecodeError{Line: l, Kind: ErrNaN, Expected: "finite numbers", Found: quote(string(nanInJSON.Find(rest)))}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return truncated(l, "a whole JSON array", "the end of the output")
	}
	return malformed(l, "a JSON object", err.Error())
}
