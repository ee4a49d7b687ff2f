package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Formats are llama-bench's output formats, by their names for -o.
func Formats() []string { return []string{"md", "csv", "json", "jsonl", "sql"} }

// Write prints results in a format of Formats. The field names, their order and their number formats are llama-bench's;
// json and jsonl carry more at the end, from engine on; docs/format/output.md describes them.
func Write(w io.Writer, format string, results []Result) error {
	switch format {
	case "md":
		return writeMarkdown(w, results)
	case "csv":
		return writeCSV(w, results)
	case "json":
		return writeJSON(w, results)
	case "jsonl":
		return writeJSONL(w, results)
	case "sql":
		return writeSQL(w, results)
	}
	return CheckFormat(format)
}

// CheckFormat returns an error that lists Formats when there is no format of that name.
func CheckFormat(format string) error {
	if slices.Contains(Formats(), format) {
		return nil
	}
	return fmt.Errorf("unknown output format %q; there are %s", format, strings.Join(Formats(), ", "))
}

// kind is a column's type in SQL and its quoting in JSON.
type kind string

const (
	text    kind = "TEXT"
	integer kind = "INTEGER"
	real    kind = "REAL"
	boolean kind = "BOOLEAN" // true/false in JSON, 0/1 elsewhere
)

// field is one column of a row.
type field struct {
	name  string
	kind  kind
	value string
}

// fields are the columns common to all formats, in llama-bench's order. Options that an embedded CPU engine does not
// have are given llama-bench's defaults, so that scripts which group by them still work.
func (r Result) fields() []field {
	ns := make([]float64, len(r.SamplesNS))
	for i, v := range r.SamplesNS {
		ns[i] = float64(v)
	}
	avgNS, sdNS := meanSD(ns)
	avgTS, sdTS := meanSD(r.SamplesTS())
	return []field{
		{"build_commit", text, r.BuildCommit},
		{"build_number", integer, "0"},
		{"cpu_info", text, r.CPU},
		{"gpu_info", text, ""},
		{"backends", text, "CPU"},
		{"model_filename", text, r.ModelFilename},
		{"model_type", text, r.ModelType},
		{"model_size", integer, decimal(r.ModelBytes)},
		{"model_n_params", integer, decimal(r.ModelParams)},
		{"n_batch", integer, strconv.Itoa(r.Batch)},
		{"n_ubatch", integer, strconv.Itoa(r.UBatch)},
		{"n_threads", integer, strconv.Itoa(r.Threads)},
		{"cpu_mask", text, "0x0"},
		{"cpu_strict", boolean, "false"},
		{"poll", integer, "50"},
		{"type_k", text, r.TypeK},
		{"type_v", text, r.TypeV},
		{"n_gpu_layers", integer, "-1"},
		{"n_cpu_moe", integer, "0"},
		{"split_mode", text, "layer"},
		{"main_gpu", integer, "0"},
		{"no_kv_offload", boolean, "false"},
		{"flash_attn", integer, "-1"},
		{"devices", text, "auto"},
		{"tensor_split", text, "0.00"},
		{"tensor_buft_overrides", text, "none"},
		{"load_mode", text, "auto"},
		{"lazy_mode", text, "auto"},
		{"embeddings", boolean, "false"},
		{"no_op_offload", integer, "0"},
		{"no_host", boolean, "false"},
		{"fit_target", integer, "0"},
		{"fit_min_ctx", integer, "0"},
		{"n_prompt", integer, strconv.Itoa(r.Prompt)},
		{"n_gen", integer, strconv.Itoa(r.Generate)},
		{"n_depth", integer, strconv.Itoa(r.Depth)},
		{"test_time", text, r.Time.UTC().Format(time.RFC3339)},
		{"avg_ns", integer, decimal(int64(avgNS))},
		{"stddev_ns", integer, decimal(int64(sdNS))},
		{"avg_ts", real, fmt.Sprintf("%.6f", avgTS)},
		{"stddev_ts", real, fmt.Sprintf("%.6f", sdTS)},
	}
}

func decimal(v int64) string { return strconv.FormatInt(v, 10) }

// jsonFields are the name-value pairs of the JSON forms, values already in JSON.
func (r Result) jsonFields() []field {
	var out []field
	for _, f := range r.fields() {
		if f.kind == text {
			f.value = quoteJSON(f.value)
		}
		out = append(out, f)
	}
	ts := make([]string, len(r.SamplesNS))
	for i, v := range r.SamplesTS() {
		ts[i] = strconv.FormatFloat(v, 'g', 6, 64)
	}
	if r.Surrogate != "" {
		out = append(out, field{"attention_surrogate", text, quoteJSON(r.Surrogate)})
	}
	return append(out,
		field{"samples_ns", text, list(r.SamplesNS)},
		field{"samples_ts", text, "[ " + strings.Join(ts, ", ") + " ]"},
		field{"engine", text, quoteJSON("embedded")},
		field{"attention_drop_layers", text, quoteJSON(r.Mask)},
		field{"trace", text, quoteJSON(r.Trace)},
		field{"n_state_loaded", integer, strconv.Itoa(r.StateLoaded)},
		field{"samples_gc", text, list(r.Collections)},
		field{"samples_minor_faults", text, list(r.MinorFaults)},
		field{"samples_major_faults", text, list(r.MajorFaults)},
		field{"bytes_per_token", real, strconv.FormatFloat(r.BytesPerToken(), 'f', -1, 64)},
		field{"operations_per_token", real, strconv.FormatFloat(r.OperationsPerToken(), 'f', -1, 64)},
		field{"work", text, marshal(r.Work)},
	)
}

func list(values []int64) string {
	s := make([]string, len(values))
	for i, v := range values {
		s[i] = decimal(v)
	}
	return "[ " + strings.Join(s, ", ") + " ]"
}

func quoteJSON(s string) string { return marshal(s) }

// marshal is for values of which every one can be written.
func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("bench: %T cannot be written as JSON: %v", v, err))
	}
	return string(b)
}

func writeJSONL(w io.Writer, results []Result) error {
	for _, r := range results {
		var pairs []string
		for _, f := range r.jsonFields() {
			pairs = append(pairs, fmt.Sprintf("%q: %s", f.name, f.value))
		}
		if _, err := fmt.Fprintf(w, "{%s}\n", strings.Join(pairs, ", ")); err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(w io.Writer, results []Result) error {
	var objects []string
	for _, r := range results {
		var pairs []string
		for _, f := range r.jsonFields() {
			pairs = append(pairs, fmt.Sprintf("    %q: %s", f.name, f.value))
		}
		objects = append(objects, "  {\n"+strings.Join(pairs, ",\n")+"\n  }")
	}
	_, err := fmt.Fprintf(w, "[\n%s\n]\n", strings.Join(objects, ",\n"))
	return err
}

// plain is a value as csv and sql have it: booleans as 0 and 1.
func (f field) plain() string {
	if f.kind == boolean {
		return strconv.Itoa(map[string]int{"true": 1}[f.value])
	}
	return f.value
}

func writeCSV(w io.Writer, results []Result) error {
	for i, r := range results {
		var names, values []string
		for _, f := range r.fields() {
			names = append(names, f.name)
			values = append(values, `"`+strings.ReplaceAll(f.plain(), `"`, `""`)+`"`)
		}
		if i == 0 {
			if _, err := fmt.Fprintln(w, strings.Join(names, ",")); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(w, strings.Join(values, ",")); err != nil {
			return err
		}
	}
	return nil
}

func writeSQL(w io.Writer, results []Result) error {
	for i, r := range results {
		var columns, names, values []string
		for _, f := range r.fields() {
			k := f.kind
			if k == boolean {
				k = integer
			}
			columns = append(columns, fmt.Sprintf("  %s %s", f.name, k))
			names = append(names, f.name)
			values = append(values, "'"+strings.ReplaceAll(f.plain(), "'", "''")+"'")
		}
		if i == 0 {
			if _, err := fmt.Fprintf(w, "CREATE TABLE IF NOT EXISTS llama_bench (\n%s\n);\n\n", strings.Join(columns, ",\n")); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "INSERT INTO llama_bench (%s) VALUES (%s);\n", strings.Join(names, ", "), strings.Join(values, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// column is one column of the Markdown table.
type column struct {
	name  string
	width int // llama-bench's
	right bool
	value func(Result) string
	vary  func(Result) bool // shown only when true for some row; nil = always shown
}

// rule is the line under the header, with the colon that Markdown aligns by.
func (c column) rule() string {
	if c.right {
		return strings.Repeat("-", c.width-1) + ":"
	}
	return strings.Repeat("-", c.width)
}

// writeMarkdown prints the columns that llama-bench always shows and those of ours whose value varies or is not the default.
func writeMarkdown(w io.Writer, results []Result) error {
	columns := []column{
		{"model", 30, false, func(r Result) string { return r.ModelType }, nil},
		{"size", 10, true, func(r Result) string { return sizeText(r.ModelBytes) }, nil},
		{"params", 10, true, func(r Result) string { return paramsText(r.ModelParams) }, nil},
		{"backend", 10, false, func(Result) string { return "CPU" }, nil},
		{"threads", 7, true, func(r Result) string { return strconv.Itoa(r.Threads) }, nil},
		{"type_k", 6, true, func(r Result) string { return r.TypeK }, func(r Result) bool { return r.TypeK != "f16" }},
		{"type_v", 6, true, func(r Result) string { return r.TypeV }, func(r Result) bool { return r.TypeV != "f16" }},
		{"n_batch", 7, true, func(r Result) string { return strconv.Itoa(r.Batch) }, func(r Result) bool { return r.Batch != 2048 }},
		{"n_ubatch", 8, true, func(r Result) string { return strconv.Itoa(r.UBatch) }, func(r Result) bool { return r.UBatch != 512 }},
		{"drop", 10, true, func(r Result) string { return r.Mask }, func(r Result) bool { return r.Mask != "" }},
		{"surrogate", 12, true, func(r Result) string { return r.Surrogate[:min(12, len(r.Surrogate))] }, func(r Result) bool { return r.Surrogate != "" }},
		{"test", 15, true, Result.Test, nil},
		{"t/s", 20, true, func(r Result) string {
			avg, sd := meanSD(r.SamplesTS())
			return fmt.Sprintf("%.2f ± %.2f", avg, sd)
		}, nil},
	}
	columns = slices.DeleteFunc(columns, func(c column) bool {
		return c.vary != nil && !slices.ContainsFunc(results, c.vary)
	})
	line := func(cell func(c column) string) error {
		var cells []string
		for _, c := range columns {
			cells = append(cells, cell(c))
		}
		_, err := fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
		return err
	}
	pad := func(c column, s string) string {
		if c.right {
			return fmt.Sprintf("%*s", c.width, s)
		}
		return fmt.Sprintf("%-*s", c.width, s)
	}
	if err := line(func(c column) string { return pad(c, c.name) }); err != nil {
		return err
	}
	if err := line(column.rule); err != nil {
		return err
	}
	for _, r := range results {
		if err := line(func(c column) string { return pad(c, c.value(r)) }); err != nil {
			return err
		}
	}
	commit := "unknown"
	if len(results) > 0 {
		commit = results[0].BuildCommit
	}
	_, err := fmt.Fprintf(w, "\nbuild: %s (embedded)\n", commit)
	return err
}

func sizeText(bytes int64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.2f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
}

func paramsText(n int64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.2f M", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f B", float64(n)/1e9)
}
