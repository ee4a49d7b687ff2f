package parsers

import (
	"encoding/csv"
	"fmt"
	"strings"
)

// llama-bench -o csv: a header and one row per configuration, every value in quotes. Samples are not written.

const csvMark = "build_commit,build_number,"

func matchBenchCSV(t *text) bool {
	return t.any(func(l line) bool { return strings.HasPrefix(l.text, csvMark) })
}

func decodeBenchCSV(t *text) ([]Measurement, error) {
	var header []string
	var rows []*benchRow
	for _, l := range t.lines {
		switch {
		case strings.HasPrefix(l.text, csvMark):
			header = strings.Split(l.text, ",")
		case header != nil && strings.HasPrefix(l.text, `"`):
			r, err := csvRow(l, header)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
	}
	return measurements(rows)
}

func csvRow(l line, header []string) (*benchRow, error) {
	values, err := csv.NewReader(strings.NewReader(l.text)).Read()
	if err != nil {
		return nil, truncated(l.n, "a row of quoted values", err.Error())
	}
	return columns(l, header, values)
}

// columns pairs values with the names of a header.
func columns(l line, header, values []string) (*benchRow, error) {
	want, found := fmt.Sprintf("%d values, as there are columns", len(header)), fmt.Sprint(len(values))
	switch {
	case len(values) < len(header):
		return nil, truncated(l.n, want, found)
	case len(values) > len(header):
		return nil, contradiction(l.n, want, found)
	}
	fields := make(map[string]string, len(header))
	for i, name := range header {
		fields[strings.TrimSpace(name)] = values[i]
	}
	return newBenchRow(l.n, fields)
}
