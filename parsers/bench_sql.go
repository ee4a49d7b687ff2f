package parsers

import "strings"

// llama-bench -o sql: CREATE TABLE, then one INSERT a line. The table was called test before it was llama_bench.

func sqlInsert(l line) bool {
	return strings.HasPrefix(l.text, "INSERT INTO llama_bench (") || strings.HasPrefix(l.text, "INSERT INTO test (")
}

func matchBenchSQL(t *text) bool {
	return t.has("CREATE TABLE IF NOT EXISTS llama_bench (") || t.has("CREATE TABLE IF NOT EXISTS test (")
}

func decodeBenchSQL(t *text) ([]Measurement, error) {
	return benchLines(t, sqlInsert, sqlRow)
}

func sqlRow(l line) (*benchRow, error) {
	if !strings.HasSuffix(l.text, ");") {
		return nil, truncated(l.n, `an INSERT that ends in ");"`, quote(l.text))
	}
	names, values, ok := strings.Cut(l.text, ") VALUES (")
	if !ok {
		return nil, malformed(l.n, "INSERT ... (names) VALUES (values);", quote(l.text))
	}
	_, names, _ = strings.Cut(names, "(")
	v, err := sqlStrings(l.n, strings.TrimSuffix(values, ");"))
	if err != nil {
		return nil, err
	}
	return columns(l, strings.Split(names, ", "), v)
}

// sqlStrings cuts 'a', 'b' at its commas. llama-bench does not double quotes inside values, so a value ends where a
// quote is followed by a comma or the end.
func sqlStrings(l int, s string) ([]string, error) {
	if len(s) < 2 || s[0] != '\'' || s[len(s)-1] != '\'' {
		return nil, malformed(l, "values in single quotes", quote(s))
	}
	return strings.Split(s[1:len(s)-1], "', '"), nil
}
