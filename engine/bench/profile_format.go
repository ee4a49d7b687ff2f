package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"attnbudget/engine/bench/limits"
	"attnbudget/engine/meter"
)

// ProfileFormats are the forms WriteProfiles knows.
func ProfileFormats() []string { return []string{"md", "json", "jsonl"} }

// WriteProfiles prints profiles as tables for people or as JSON; all amounts are totals of all samples in JSON, and a token's share
// in the tables.
func WriteProfiles(w io.Writer, format string, profiles []Profile) error {
	switch format {
	case "md":
		for i, p := range profiles {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := p.writeText(w); err != nil {
				return err
			}
		}
		return nil
	case "json", "jsonl":
		return writeRecords(w, format, profiles)
	}
	return fmt.Errorf("a profile has no output format %q; there are %s", format, strings.Join(ProfileFormats(), ", "))
}

// writeRecords prints an array, or an object a line.
func writeRecords[T any](w io.Writer, format string, records []T) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if format == "json" {
		e.SetIndent("", "  ")
		return e.Encode(records)
	}
	for _, r := range records {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// profileJSON is the JSON form of a Profile.
type profileJSON struct {
	Kind    string        `json:"kind"`
	Model   string        `json:"model_filename"`
	Type    string        `json:"model_type"`
	CPU     string        `json:"cpu_info"`
	Threads int           `json:"n_threads"`
	TypeK   string        `json:"type_k"`
	TypeV   string        `json:"type_v"`
	Mask    string        `json:"attention_drop_layers"`
	Test    string        `json:"test"`
	Tokens  int           `json:"tokens"` // of all samples
	Samples []int64       `json:"samples_ns"`
	GC      []int64       `json:"samples_gc"`
	Minor   []int64       `json:"samples_minor_faults"`
	Major   []int64       `json:"samples_major_faults"`
	Outside time.Duration `json:"outside_ns"`
	Work    meter.Work    `json:"work"`
	Parts   []partJSON    `json:"layers"`
	Limits  limits.Limits `json:"limits"`
	NoEvent string        `json:"no_events,omitempty"`
}

type partJSON struct {
	Layer   int        `json:"layer"`
	Name    string     `json:"name"`
	Dropped bool       `json:"dropped"`
	Work    meter.Work `json:"work"`
}

// MarshalJSON writes the form that docs/profile.md describes.
func (p Profile) MarshalJSON() ([]byte, error) {
	out := profileJSON{
		Kind: "profile", Model: p.ModelFilename, Type: p.ModelType, CPU: p.CPU, Threads: p.Threads, TypeK: p.TypeK, TypeV: p.TypeV,
		Mask: p.Mask, Test: p.Test(), Tokens: p.tokens(), Samples: p.SamplesNS, GC: p.Collections, Minor: p.MinorFaults, Major: p.MajorFaults,
		Outside: p.Outside, Work: p.Work, Limits: p.Limits,
	}
	if p.NoEvent != nil {
		out.NoEvent = p.NoEvent.Error()
	}
	for _, part := range p.Parts {
		out.Parts = append(out.Parts, partJSON(part))
	}
	return json.Marshal(out)
}

// tokens of all samples.
func (r Result) tokens() int { return len(r.SamplesNS) * (r.Prompt + r.Generate) }

func (p Profile) writeText(w io.Writer) error {
	mean, _ := meanSD(p.SamplesTS())
	drop := "nothing dropped"
	if p.Mask != "" {
		drop = "attention of layers " + p.Mask + " dropped"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, KV %s/%s, %d threads, %s: %.2f tokens/s in %d samples\n",
		p.ModelType, p.Test(), p.TypeK, p.TypeV, p.Threads, drop, mean, len(p.SamplesNS))
	p.writeKinds(&b)
	p.writeParts(&b)
	fmt.Fprintf(&b, "\nlimits of the machine (%s loops, %d threads): %.1f GB/s read from memory, %.1f float32 GFLOP/s\n",
		p.Limits.Loops, p.Limits.Threads, p.Limits.ReadBytes/1e9, p.Limits.MultiplyAdd/1e9)
	fmt.Fprintf(&b, "in the samples: garbage collections %v, minor page faults %v, major %v\n", p.Collections, p.MinorFaults, p.MajorFaults)
	if p.NoEvent != nil {
		fmt.Fprintf(&b, "no instructions and cycles: %v\n", p.NoEvent)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeKinds is the table of kinds of work.
func (p Profile) writeKinds(b *strings.Builder) {
	total := p.Work.Total()
	all := total.Time + p.Outside
	tokens := float64(max(1, p.tokens()))
	head := []string{"a token", "calls", "µs", "share", "MB", "GB/s", "M operations", "G operations/s"}
	if p.NoEvent == nil {
		head = append(head, "M instructions", "M cycles", "IPC")
	}
	row := func(name string, c meter.Count) []string {
		cells := []string{
			name, number(float64(c.Calls) / tokens), number(c.Time.Seconds() * 1e6 / tokens), percent(c.Time, all),
			number(float64(c.Bytes) / 1e6 / tokens), rate(c.Bytes, c.Time), number(float64(c.Operations) / 1e6 / tokens), rate(c.Operations, c.Time),
		}
		if e := c.Events; e != nil {
			cells = append(cells, number(float64(e.Instructions)/1e6/tokens), number(float64(e.Cycles)/1e6/tokens), fmt.Sprintf("%.2f", float64(e.Instructions)/float64(max(1, e.Cycles))))
		}
		return cells
	}
	rows := [][]string{head}
	for k, c := range p.Work {
		if c.Calls > 0 {
			rows = append(rows, row(meter.Kind(k).String(), c))
		}
	}
	rows = append(rows, []string{"between passes", "", number(p.Outside.Seconds() * 1e6 / tokens), percent(p.Outside, all)}, row("all", total))
	writeColumns(b, rows)
}

// writeParts is the table of layers. Calls are those of all samples, so that they are whole numbers.
func (p Profile) writeParts(b *strings.Builder) {
	tokens := float64(max(1, p.tokens()))
	mixing := []meter.Kind{meter.Attention}
	if p.Work[meter.Recurrence].Calls > 0 {
		mixing = append(mixing, meter.Recurrence)
	}
	head := []string{"layer", ""}
	for _, k := range mixing {
		head = append(head, k.String()+" calls", "MB/token", "µs/token")
	}
	rows := [][]string{append(head, "matrices calls", "MB/token", "µs/token", "rest µs/token")}
	for _, part := range p.Parts {
		name, label := fmt.Sprint(part.Layer), part.Name
		if part.Layer < 0 || part.Layer == len(p.Parts)-2 {
			name = ""
		}
		if part.Dropped {
			label += ", dropped"
		}
		cells := []string{name, label}
		total := part.Work.Total()
		rest := total.Time
		for _, k := range append(mixing, meter.Matrices) {
			c := part.Work[k]
			rest -= c.Time
			cells = append(cells, fmt.Sprint(c.Calls), number(float64(c.Bytes)/1e6/tokens), number(c.Time.Seconds()*1e6/tokens))
		}
		rows = append(rows, append(cells, number(rest.Seconds()*1e6/tokens)))
	}
	writeColumns(b, rows)
}

// writeColumns aligns rows, after an empty line.
func writeColumns(b *strings.Builder, rows [][]string) {
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	t.Flush() // to memory
	b.WriteByte('\n')
	for line := range strings.Lines(table.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// number has three digits or all those before the point.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.01:
		return fmt.Sprintf("%.1g", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func percent(part, all time.Duration) string {
	return fmt.Sprintf("%.1f%%", 100*part.Seconds()/max(all.Seconds(), 1e-9))
}

// rate is in thousand millions a second.
func rate(n int64, d time.Duration) string {
	if n == 0 || d <= 0 {
		return ""
	}
	return number(float64(n) / float64(d))
}
