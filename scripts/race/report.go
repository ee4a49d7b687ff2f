package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"

	"attnbudget/engine/bench"
	"attnbudget/engine/bench/limits"
)

//go:embed speed.md.tmpl
var speed string

// page is what the template shows.
type page struct {
	Machine         []string
	MemoryBar       float64
	Raced           bool // there is anything to compare with
	Rows            []row
	Missed          []string
	Others          string // how much of the machine went to something else
	Disturbed       bool   // so much that no figure means much
	Collections     int64
	Loads           []loadRow
	LoadModel       string
	LoadPrompt      string
	LoadRepetitions int
}

// row is a line of the table.
type row struct{ Model, KV, Test, Ours, Theirs, Ratio, Pairs, Bar, Memory, Reached string }

// loadRow is a line of the table of loading.
type loadRow struct{ From, Touched, Open, Context, Touch, Compute, Total string }

// report prints the table and writes the document.
func report(s settings, m machine, j *journal, w io.Writer) error {
	p := describe(s, m, j)
	if err := p.print(w); err != nil {
		return err
	}
	if s.report == "" {
		return nil
	}
	document, err := p.document()
	if err != nil {
		return err
	}
	return os.WriteFile(s.report, document, 0o644)
}

// document is the page in Markdown.
func (p page) document() ([]byte, error) {
	var b bytes.Buffer
	err := template.Must(template.New("speed.md").Parse(speed)).Execute(&b, p)
	return b.Bytes(), err
}

func describe(s settings, m machine, j *journal) page {
	l, _ := j.limits()
	p := page{MemoryBar: memoryBar, Machine: m.lines(s, l)}
	var others []float64
	for _, c := range cells(s.full) {
		rounds := j.rounds(c.key())
		if len(rounds) == 0 {
			continue
		}
		r := compare(c, rounds)
		p.Raced = p.Raced || r.theirs > 0
		p.Collections += r.collections
		p.Rows = append(p.Rows, r.row(l))
		others = append(others, r.others...)
		name := fmt.Sprintf("%s, %s KV, %s", c.Model, c.KV, c.Test.Name)
		if short := r.missed(); short != "" {
			p.Missed = append(p.Missed, fmt.Sprintf("%s: %s; we reach %s", name, short, r.reached(l)))
		}
		if r.memory > memoryBar {
			p.Missed = append(p.Missed, fmt.Sprintf("%s: %.2f times upstream's memory (%.0f MiB), at most %.1f", name, r.memory, float64(r.oursPeak)/(1<<20), memoryBar))
		}
	}
	if len(others) > 0 {
		usual := median(others)
		p.Others = fmt.Sprintf("%.0f %% of the processors' time usually and %.0f %% at most", 100*usual, 100*slices.Max(others))
		p.Disturbed = usual > disturbed
	}
	p.load(j.loads())
	return p
}

// disturbed is how much of the machine others may take before the report warns.
const disturbed = 0.03

// lines describe the machine and the programs.
func (m machine) lines(s settings, l limits.Limits) []string {
	out := []string{
		fmt.Sprintf("%s, %d cores, %d logical, %d GiB, %s, kernel %s", m.CPU, m.Cores, m.Environment.Threads, m.MemoryGiB, m.OS, m.Kernel),
		fmt.Sprintf("read from memory at most %.1f GB/s, float32 multiply-adds %.1f GFLOP/s (%d threads, %s), measured in the same run", l.ReadBytes/1e9, l.MultiplyAdd/1e9, l.Threads, l.Loops),
		fmt.Sprintf("%d threads, %s kernels, %s, commit %s", s.threads, m.Kernels, m.GoVersion, m.commit),
	}
	if s.upstream != "" {
		out = append(out, "upstream's build for processors: "+s.build)
	}
	if m.Governor != "" {
		out = append(out, "frequency governor "+m.Governor)
	}
	return out
}

func (c comparison) row(l limits.Limits) row {
	r := row{
		Model: c.cell.Model.String(), KV: c.cell.KV, Test: c.cell.Test.Name, Ours: speedText(c.ours), Reached: c.reached(l),
		Theirs: "-", Ratio: "-", Pairs: c.spread(), Memory: "-", Bar: "-",
	}
	if c.theirs > 0 {
		r.Theirs, r.Ratio = speedText(c.theirs), fmt.Sprintf("%.2f", c.medians())
	}
	if c.memory > 0 {
		r.Memory = fmt.Sprintf("%.2f", c.memory)
	}
	if least, aim := c.cell.bar(); least > 0 {
		r.Bar = fmt.Sprintf("%.1f, aim %.1f", least, aim)
		switch {
		case c.theirs > 0 && c.missed() != "":
			r.Bar += ": missed"
		case c.theirs > 0 && c.medians() >= aim:
			r.Bar += ": aim reached"
		case c.theirs > 0:
			r.Bar += ": reached"
		}
	}
	return r
}

// reached is the rate of the work that limits the test.
func (c comparison) reached(l limits.Limits) string {
	what, rate, limit := "GB/s", c.bytes*c.ours, l.ReadBytes
	if c.cell.Test.Prompt > 0 {
		what, rate, limit = "G operations/s", c.ops*c.ours, l.MultiplyAdd
	}
	if limit <= 0 {
		return fmt.Sprintf("%.1f %s", rate/1e9, what)
	}
	return fmt.Sprintf("%.1f %s, %.0f %%", rate/1e9, what, 100*rate/limit)
}

func speedText(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// load makes a row of each way of loading.
func (p *page) load(loads []bench.Load) {
	type way struct{ cold, touched bool }
	var order []way
	grouped := map[way][]bench.Load{}
	for _, l := range loads {
		w := way{l.Cold, l.Touched}
		if grouped[w] == nil {
			order = append(order, w)
		}
		grouped[w] = append(grouped[w], l)
		p.LoadModel, p.LoadPrompt = fmt.Sprintf("%s, %.0f MiB, %d threads", l.Type, float64(l.Bytes)/(1<<20), l.Threads), plural(l.Prompt)
	}
	for _, w := range order {
		middle := func(step func(bench.Load) int64) string {
			var ms []float64
			for _, l := range grouped[w] {
				ms = append(ms, float64(step(l))/1e6)
			}
			return fmt.Sprintf("%.0f", median(ms))
		}
		r := loadRow{
			From: "memory", Touched: "no", Touch: "-",
			Open: middle(func(l bench.Load) int64 { return l.Open }), Context: middle(func(l bench.Load) int64 { return l.Context }),
			Compute: middle(func(l bench.Load) int64 { return l.Compute }), Total: middle(func(l bench.Load) int64 { return l.Total }),
		}
		if w.cold {
			r.From = "disk"
		}
		if w.touched {
			r.Touched, r.Touch = "yes", middle(func(l bench.Load) int64 { return l.Touch })
		}
		p.Loads, p.LoadRepetitions = append(p.Loads, r), len(grouped[w])
	}
}

func plural(tokens int) string {
	if tokens == 1 {
		return "1 token"
	}
	return fmt.Sprintf("%d tokens", tokens)
}

// print shows the table on a terminal.
func (p page) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }
	line("model", "KV", "test", "ours", "upstream", "ratio", "pairs", "bar", "memory", "reached")
	for _, r := range p.Rows {
		line(r.Model, r.KV, r.Test, r.Ours, r.Theirs, r.Ratio, r.Pairs, r.Bar, r.Memory, r.Reached)
	}
	return t.Flush()
}
