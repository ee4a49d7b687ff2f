package parsers

import (
	"encoding/json"
	"regexp"
	"strings"
)

// object is one JSON object of an output. Its getters remember the first mistake, so that a decoder reads all fields
// and asks for err once.
type object struct {
	line   int
	fields map[string]json.RawMessage
	err    error
}

// nanInJSON finds what programs that print JSON by hand write for a value that is no number.
var nanInJSON = regexp.MustCompile(`(?i)[:,\[]\s*[-+]?(nan|inf|infinity)\b`)

func newObject(l line) (*object, error) {
	s := strings.TrimSpace(l.text)
	o := &object{line: l.n}
	if err := json.Unmarshal([]byte(s), &o.fields); err != nil {
		switch {
		case nanInJSON.MatchString(s):
			return nil, &DecodeError{Line: l.n, Kind: ErrNaN, Expected: "finite numbers", Found: quote(nanInJSON.FindString(s))}
		case !strings.HasSuffix(s, "}"):
			return nil, truncated(l.n, "a whole JSON object", quote(s))
		}
		return nil, malformed(l.n, "a JSON object", err.Error()+" in "+quote(s))
	}
	return o, nil
}

func (o *object) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *object) raw(name string) (string, bool) {
	r, ok := o.fields[name]
	if !ok {
		o.fail(malformed(o.line, "field "+quote(name), "no such field"))
	}
	return string(r), ok
}

func (o *object) float(name string) float64 { return field(o, name, number) }

func (o *object) int(name string) int { return field(o, name, whole) }

func (o *object) string(name string) string { return field(o, name, parseAs[string]("a string")) }

func (o *object) list(name string) []json.RawMessage {
	return field(o, name, parseAs[[]json.RawMessage]("a list"))
}

// field reads a field with a parser that gets the line, the field's name and its JSON text.
func field[T any](o *object, name string, parse func(line int, name, s string) (T, error)) (v T) {
	s, ok := o.raw(name)
	if !ok {
		return v
	}
	v, err := parse(o.line, name, s)
	if err != nil {
		o.fail(err)
	}
	return v
}

func parseAs[T any](what string) func(line int, name, s string) (T, error) {
	return func(line int, name, s string) (v T, err error) {
		if json.Unmarshal([]byte(s), &v) != nil {
			return v, malformed(line, name+" as "+what, quote(s))
		}
		return v, nil
	}
}

func (o *object) floats(name string) []float64 {
	var out []float64
	for _, r := range o.list(name) {
		v, err := number(o.line, name, string(r))
		if err != nil {
			o.fail(err)
		}
		out = append(out, v)
	}
	return out
}

// ofKind tells whether a line is one of this project's JSON lines of that kind.
func (l line) ofKind(kind string) bool {
	s := strings.TrimSpace(l.text)
	return strings.HasPrefix(s, `{"kind":"`+kind+`"`)
}
