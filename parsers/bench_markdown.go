package parsers

import (
	"regexp"
	"strconv"
	"strings"
)

// llama-bench -o md, its default: a Markdown table and a build line behind it. A log may hold several tables.

var (
	testColumn = regexp.MustCompile(`^(?:pp\s?(\d+))?\+?(?:tg\s?(\d+))?(?: @ d(\d+))?$`)
	meanColumn = regexp.MustCompile(`^(\S+) ± (\S+)$`)
	buildLine  = regexp.MustCompile(`^build: (\S+) \((\d+)\)$`)
)

func cells(l line) []string {
	s := strings.TrimSpace(l.text)
	if len(s) < 2 || s[0] != '|' || s[len(s)-1] != '|' {
		return nil
	}
	out := strings.Split(s[1:len(s)-1], "|")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// tableHeader tells whether cells are the header of a llama-bench table.
func tableHeader(c []string) bool {
	return len(c) > 2 && c[0] == "model" && c[len(c)-2] == "test" && c[len(c)-1] == "t/s"
}

func matchBenchMarkdown(t *text) bool {
	return t.any(func(l line) bool { return tableHeader(cells(l)) })
}

func decodeBenchMarkdown(t *text) ([]Measurement, error) {
	var header []string
	var all, table []*benchRow
	open := 0 // line of a header whose table has no build line yet
	for _, l := range t.lines {
		c := cells(l)
		build := buildLine.FindStringSubmatch(l.text)
		switch {
		case tableHeader(c):
			if open > 0 {
				return nil, truncated(l.n, "the build line of the table before", "another table")
			}
			header, table, open = c, nil, l.n
		case open > 0 && build != nil:
			if len(table) == 0 {
				return nil, truncated(l.n, "at least one row before the build line", "none")
			}
			for _, r := range table {
				r.fields["build_commit"], r.fields["build_number"] = build[1], build[2]
			}
			all, open = append(all, table...), 0
		case open > 0 && c != nil && !strings.HasPrefix(c[0], "---"):
			r, err := markdownRow(l, header, c)
			if err != nil {
				return nil, err
			}
			table = append(table, r)
		case open > 0 && strings.HasPrefix(l.text, "|") && c == nil:
			return nil, truncated(l.n, "a table row that ends in |", quote(l.text))
		}
	}
	if open > 0 {
		return nil, truncated(open, "rows and a build line behind the table", strconv.Itoa(len(table))+" rows and no build line")
	}
	return measurements(all)
}

func markdownRow(l line, header, c []string) (*benchRow, error) {
	if len(c) != len(header) {
		return nil, malformed(l.n, strconv.Itoa(len(header))+" cells, as in the header", strconv.Itoa(len(c)))
	}
	r := &benchRow{line: l.n, fields: map[string]string{}, decimals: 2}
	for i, name := range header[:len(header)-2] {
		r.fields[name] = c[i]
	}
	test := testColumn.FindStringSubmatch(c[len(c)-2])
	if test == nil {
		return nil, malformed(l.n, "a test such as pp512, tg128 or pp512 @ d1024", quote(c[len(c)-2]))
	}
	for i, dst := range []*int{&r.prompt, &r.gen, &r.depth} {
		if test[i+1] == "" {
			continue
		}
		v, err := whole(l.n, "test", test[i+1])
		if err != nil {
			return nil, err
		}
		*dst = v
	}
	mean := meanColumn.FindStringSubmatch(c[len(c)-1])
	if mean == nil {
		return nil, malformed(l.n, "mean ± deviation", quote(c[len(c)-1]))
	}
	var err error
	if r.avg, err = number(l.n, "t/s", mean[1]); err != nil {
		return nil, err
	}
	r.stddev, err = number(l.n, "t/s deviation", mean[2])
	return r, err
}
