package campaigns

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"attnbudget/campaigns/fetch"
)

// Mistake is one thing that is wrong in a campaign file.
type Mistake struct {
	File         string
	Line, Column int    // counted from 1, columns in characters; Line 0 = the file as a whole
	Message      string // what is wrong: expected and found
	Hint         string // the way out, may be empty
	Snippet      string // the source line with its number and, below it, a caret; empty when Line is 0

	node    *yaml.Node   // what it is about, nil for the text as a whole
	missing fetch.Source // what has to be fetched, if that is all that is wrong
}

// Error returns `file:line:column: message`, the snippet and the hint, on lines of their own.
func (m *Mistake) Error() string {
	var b strings.Builder
	b.WriteString(m.File)
	if m.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", m.Line, m.Column)
	}
	fmt.Fprintf(&b, ": %s", m.Message)
	if m.Snippet != "" {
		b.WriteString("\n" + m.Snippet)
	}
	if m.Hint != "" {
		b.WriteString("\n  hint: " + m.Hint)
	}
	return b.String()
}

// Mistakes is everything that is wrong in a campaign file, in the order of the file.
type Mistakes []*Mistake

// Error joins the mistakes with blank lines and counts them when there are several.
func (ms Mistakes) Error() string {
	text := make([]string, 0, len(ms)+1)
	for _, m := range ms {
		text = append(text, m.Error())
	}
	switch {
	case len(ms) >= maxMistakes:
		text = append(text, fmt.Sprintf("the first %d mistakes; there may be more", len(ms)))
	case len(ms) > 1:
		text = append(text, fmt.Sprintf("%d mistakes", len(ms)))
	}
	return strings.Join(text, "\n\n")
}

// Unwrap gives errors.As and errors.Is each single mistake.
func (ms Mistakes) Unwrap() []error {
	out := make([]error, len(ms))
	for i, m := range ms {
		out[i] = m
	}
	return out
}

func (ms Mistakes) sort() {
	slices.SortStableFunc(ms, func(a, b *Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// maxMistakes bounds the report on a file that is no campaign at all.
const maxMistakes = 100

// maxSnippet is the number of characters of a source line that a snippet shows.
const maxSnippet = 120

// sourceText is a campaign file, by lines.
type sourceText struct {
	file  string
	lines []string
}

// snippet shows line (from 1) with a caret under width characters from column (from 1) on.
func (s *sourceText) snippet(line, column, width int) string {
	if line < 1 || line > len(s.lines) {
		return ""
	}
	text := []rune(s.lines[line-1])
	at := min(max(column-1, 0), len(text))
	width = max(1, min(width, len(text)-at))
	dots := ""
	if cut := at - maxSnippet/3; cut > 0 && at+width > maxSnippet {
		text, at, dots = text[cut:], at-cut, "…"
	}
	if len(text) > maxSnippet {
		text = append(slices.Clone(text[:maxSnippet]), '…')
		width = max(1, min(width, maxSnippet-at))
	}
	pad := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(text[:at]))
	if dots != "" {
		pad += " "
	}
	number := fmt.Sprintf("%5d | ", line)
	return number + dots + string(text) + "\n      | " + pad + strings.Repeat("^", width)
}

// width is the number of characters that a scalar takes in the source, 1 for lists and mappings.
func width(n *yaml.Node) int {
	if n.Kind != yaml.ScalarNode {
		return 1
	}
	w := utf8.RuneCountInString(n.Value)
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		w += 2
	}
	return max(w, 1)
}
