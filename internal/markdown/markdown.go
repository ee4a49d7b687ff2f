// Package markdown writes the parts of a document that a program measures: tables, and what stands between
//
//	<!-- NAME -->
//	<!-- end -->
//
// The text around them is written by people, and stays.
package markdown

import (
	"fmt"
	"strings"
)

const end = "<!-- end -->"

func begin(name string) string { return "<!-- " + name + " -->\n" }

// Part is a part as it stands in a document.
func Part(name, content string) string { return begin(name) + content + "\n" + end }

// Fill replaces the content of a part. A document without the part is an error.
func Fill(document, name, content string) (string, error) {
	before, rest, ok := strings.Cut(document, begin(name))
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("no part %q: expected a line <!-- %s --> and behind it a line %s", name, name, end)
	}
	return before + Part(name, content) + after, nil
}

// Parts are the contents of the parts of a document, by name.
func Parts(document string) map[string]string {
	out := map[string]string{}
	for {
		before, rest, ok := strings.Cut(document, " -->\n")
		if !ok {
			return out
		}
		content, after, closed := strings.Cut(rest, end)
		if i := strings.LastIndex(before, "<!-- "); i >= 0 && closed {
			out[before[i+len("<!-- "):]] = strings.TrimSuffix(content, "\n")
			document = after
			continue
		}
		document = rest
	}
}

// Table is a table without an empty line before or behind it.
func Table(head []string, rows [][]string) string {
	lines := []string{row(head), "|" + strings.Repeat("---|", len(head))}
	for _, r := range rows {
		lines = append(lines, row(r))
	}
	return strings.Join(lines, "\n")
}

func row(cells []string) string {
	var b strings.Builder
	b.WriteByte('|')
	for _, c := range cells {
		if c != "" {
			c = " " + c
		}
		b.WriteString(c + " |")
	}
	return b.String()
}
