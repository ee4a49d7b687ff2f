package parsers

import (
	"errors"
	"fmt"
	"strconv"
)

// Kinds of DecodeError.
var (
	ErrForm          = errors.New("not in a form this project reads")
	ErrTruncated     = errors.New("output is cut short")
	ErrContradiction = errors.New("output contradicts itself")
	ErrNaN           = errors.New("value is not a finite number")
)

// DecodeError says where an output is not what its stage prints.
type DecodeError struct {
	Stage    string
	Form     string // empty: no form was recognised
	Line     int    // from 1; 0: the output as a whole
	Expected string
	Found    string
	Kind     error // ErrForm, ErrTruncated, ErrContradiction or ErrNaN
}

func (e *DecodeError) Error() string {
	s := e.Stage + " output"
	if e.Form != "" {
		s += " (" + e.Form + ")"
	}
	if e.Line > 0 {
		s += ", line " + strconv.Itoa(e.Line)
	}
	return fmt.Sprintf("%s: %v: expected %s, found %s", s, e.Kind, e.Expected, e.Found)
}

func (e *DecodeError) Unwrap() error { return e.Kind }

// inStage completes an error of a decoder with what only Decode knows.
func inStage(err error, stage, form string) error {
	var e *DecodeError
	if errors.As(err, &e) {
		e.Stage, e.Form = stage, form
		return e
	}
	return err
}

func malformed(l int, expected, found string) error {
	return &DecodeError{Line: l, Kind: ErrForm, Expected: expected, Found: found}
}

func truncated(l int, expected, found string) error {
	return &DecodeError{Line: l, Kind: ErrTruncated, Expected: expected, Found: found}
}

func contradiction(l int, expected, found string) error {
	return &DecodeError{Line: l, Kind: ErrContradiction, Expected: expected, Found: found}
}

// quote shows a piece of output in a message, shortened.
func quote(s string) string {
	const most = 120
	if r := []rune(s); len(r) > most {
		return strconv.Quote(string(r[:most])) + "..."
	}
	return strconv.Quote(s)
}

func formatFloat(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
