package parsers

import (
	"encoding/json"
	"strings"
)

// llama-bench -o jsonl: one object a line. The embedded engine writes the same with fields of its own at the end.

const benchMark = `{"build_commit":`

func benchLine(l line) bool {
	return strings.HasPrefix(strings.Replace(strings.TrimSpace(l.text), " ", "", 1), benchMark)
}

func matchBenchJSONL(t *text) bool {
	return t.any(func(l line) bool { return benchLine(l) })
}

func decodeBenchJSONL(t *text) ([]Measurement, error) {
	return benchLines(t, benchLine, func(l line) (*benchRow, error) {
		o, err := newObject(l)
		if err != nil {
			return nil, err
		}
		return benchObject(o)
	})
}

// benchLines reads a form that has a configuration on every line of a kind.
func benchLines(t *text, is func(line) bool, read func(line) (*benchRow, error)) ([]Measurement, error) {
	var rows []*benchRow
	for _, l := range t.lines {
		if !is(l) {
			continue
		}
		r, err := read(l)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return measurements(rows)
}

// benchObject reads one object of either JSON form.
func benchObject(o *object) (*benchRow, error) {
	fields := map[string]string{}
	for name, raw := range o.fields {
		fields[name] = plain(raw)
	}
	for _, name := range []string{"n_prompt", "n_gen", "avg_ts", "stddev_ts"} {
		o.raw(name)
	}
	ns := o.floats("samples_ns")
	ts := o.floats("samples_ts")
	if o.err != nil {
		return nil, o.err
	}
	if len(ns) == 0 {
		return nil, truncated(o.line, "samples_ns with at least one sample", "an empty list")
	}
	r, err := newBenchRow(o.line, fields)
	if err != nil {
		return nil, err
	}
	r.samplesNS, r.samplesTS = ns, ts
	r.counted = counted(o, len(ns), r.prompt+r.gen)
	return r, o.err
}

// plain is a JSON value as text: strings without quotes, everything else as written.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
