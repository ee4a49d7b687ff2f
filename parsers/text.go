package parsers

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// text is an output cut into lines.
type text struct {
	lines []line
}

type line struct {
	n     int    // from 1
	text  string // without line end and without upstream's time prefix
	level byte   // I, W, E, D of the time prefix; 0: there was none
}

// timePrefix is what upstream puts before log lines: minutes, seconds, milliseconds, microseconds and a level.
var timePrefix = regexp.MustCompile(`^\d+\.\d\d\.\d{3}\.\d{3} ([A-Z]) `)

// newText accepts UTF-8 and, by its byte order mark, UTF-16, which PowerShell writes when it redirects an output.
func newText(raw []byte) (*text, error) {
	s, err := toUTF8(raw)
	if err != nil {
		return nil, err
	}
	t := &text{}
	for raw := range strings.Lines(s) {
		l := line{n: len(t.lines) + 1, text: strings.TrimRight(raw, "\r\n")}
		if m := timePrefix.FindStringSubmatch(l.text + " "); m != nil {
			l.level = m[1][0]
			l.text = l.text[min(len(m[0]), len(l.text)):]
		}
		t.lines = append(t.lines, l)
	}
	return t, nil
}

func toUTF8(raw []byte) (string, error) {
	if len(raw) >= 2 {
		switch {
		case raw[0] == 0xff && raw[1] == 0xfe:
			return fromUTF16(raw[2:], 0)
		case raw[0] == 0xfe && raw[1] == 0xff:
			return fromUTF16(raw[2:], 1)
		}
	}
	// Upstream cuts metadata strings between the bytes of a character, so stray bytes are no reason to refuse a log.
	return strings.ToValidUTF8(strings.TrimPrefix(string(raw), "\ufeff"), "\ufffd"), nil
}

// fromUTF16 decodes two-byte units whose low byte is at offset low.
func fromUTF16(b []byte, low int) (string, error) {
	if len(b)%2 != 0 {
		return "", truncated(0, "an even number of bytes in UTF-16 text", strconv.Itoa(len(b)))
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = uint16(b[2*i+low]) | uint16(b[2*i+1-low])<<8
	}
	return string(utf16.Decode(units)), nil
}

// has tells whether a line contains s.
func (t *text) has(s string) bool {
	return t.any(func(l line) bool { return strings.Contains(l.text, s) })
}

// first returns the first match of re in any line, with the line's number, or nil.
func (t *text) first(re *regexp.Regexp) ([]string, int) {
	for _, l := range t.lines {
		if m := re.FindStringSubmatch(l.text); m != nil {
			return m, l.n
		}
	}
	return nil, 0
}

// matches tells whether a line matches re.
func (t *text) matches(re *regexp.Regexp) bool {
	m, _ := t.first(re)
	return m != nil
}

// notANumber is how C libraries print values that are none: nan, -nan, nan(ind), inf, 1.#IND.
var notANumber = regexp.MustCompile(`(?i)^[-+]?(nan|inf|infinity|1\.#[a-z]+)(\([a-z]*\))?$`)

// number reads a finite number in C's notation.
func number(l int, what, s string) (float64, error) {
	s = strings.TrimSpace(s)
	if notANumber.MatchString(s) {
		return 0, &DecodeError{Line: l, Kind: ErrNaN, Expected: what + " as a finite number", Found: quote(s)}
	}
	v, err := strconv.ParseFloat(s, 64)
	if math.IsInf(v, 0) {
		return 0, &DecodeError{Line: l, Kind: ErrNaN, Expected: what + " as a finite number", Found: quote(s)}
	}
	if err != nil || strings.ContainsAny(s, "xXpP_") {
		return 0, malformed(l, what+" as a number", quote(s))
	}
	return v, nil
}

// whole reads a non-negative whole number.
func whole(l int, what, s string) (int, error) {
	v, err := strconv.ParseUint(strings.TrimSpace(s), 10, 31)
	if err != nil {
		return 0, malformed(l, what+" as a whole number", quote(s))
	}
	return int(v), nil
}

// agrees tells whether a value printed with so many decimals is the rounding of exact. The slack beyond half a unit
// of the last place is for the order in which the two were summed.
func agrees(printed, exact float64, decimals int) bool {
	return math.Abs(printed-exact) <= 0.5*math.Pow10(-decimals)*(1+1e-6)+1e-9*math.Abs(exact)
}

// any tells whether a line is such a one.
func (t *text) any(such func(line) bool) bool { return slices.ContainsFunc(t.lines, such) }
