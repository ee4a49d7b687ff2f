package calibrate

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable prints a report for people.
func WriteTable(w io.Writer, r *Report) error {
	t := &printer{w: w}
	t.line("%s (%s, %s, %d layers), fingerprint %.12s", r.Model.Name, r.Model.Arch, r.Model.FileType, r.Model.Layers, r.Model.Fingerprint)
	t.line("%s: chunks of %d tokens, %d searched, %d held out; undropped %s nats a token held out",
		r.Text.Name, r.Text.NCtx, len(r.Text.Search), len(r.Text.Heldout), plusMinus(r.Undropped.Heldout))
	if r.Surrogate.Search {
		t.line("masks were searched and measured with %s surrogates", r.Surrogate.Kind)
	}
	t.units(r)
	t.steps("Dropped together ("+string(r.Settings.Strategy)+")", r.Steps)
	if len(r.Greedy) > 0 {
		t.steps("Dropped together (greedy)", r.Greedy)
	}
	t.profiles(r)
	t.line("")
	e, search := r.Evaluations, ""
	if r.Settings.Strategy != Greedy {
		search = fmt.Sprintf(", %s %d", r.Settings.Strategy, e.Search)
	}
	t.line("evaluations (one mask on one chunk): every layer alone %d, greedy %d%s, held-out split %d", e.Alone, e.Greedy, search, e.Heldout)
	for _, c := range r.Cautions {
		t.line("caution: %s", c)
	}
	return t.err
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (t *printer) line(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format+"\n", args...)
	}
}

func (t *printer) table(title string, head []string, rows [][]string) {
	t.line("\n%s", title)
	if t.err != nil {
		return
	}
	var buf strings.Builder
	w := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	if t.err = w.Flush(); t.err != nil {
		return
	}
	for line := range strings.Lines(buf.String()) {
		t.line("%s", strings.TrimRight(line, " \n"))
	}
}

func (t *printer) units(r *Report) {
	var rows [][]string
	for _, u := range r.Units {
		note := ""
		if len(u.Ties) > 0 {
			note = "tied with " + strings.Join(u.Ties, "; ")
		}
		if !u.Shortlisted {
			note = strings.TrimPrefix(note+", not shortlisted", ", ")
		}
		rows = append(rows, []string{join(u.Layers), u.Role, plusMinus(u.Search.NLL), plusMinus(u.Search.KL), note})
	}
	t.table("Dropped alone, search split", []string{"layers", "role", "damage, nats", "divergence, nats", ""}, rows)
}

func (t *printer) steps(title string, steps []StepResult) {
	var rows [][]string
	for _, s := range steps {
		rows = append(rows, []string{s.Mask, change(s), plusMinus(s.Search.NLL), plusMinus(s.Heldout.NLL), plusMinus(s.Increment), plusMinus(s.Heldout.KL), strings.Join(s.Cautions, "; ")})
	}
	t.table(title, []string{"mask", "change", "searched, nats", "held out, nats", "step, nats", "divergence, nats", ""}, rows)
}

func change(s StepResult) string {
	out := "+" + join(s.Added)
	if len(s.Removed) > 0 {
		out += " -" + join(s.Removed)
	}
	return out
}

func (t *printer) profiles(r *Report) {
	var rows [][]string
	for _, p := range r.Profiles {
		saved := 0.0
		if p.KV.Undropped > 0 {
			saved = 100 * (1 - float64(p.KV.Dropped)/float64(p.KV.Undropped))
		}
		with := ""
		if p.Surrogate != nil {
			with = plusMinus(p.Surrogate.With.NLL)
		}
		rows = append(rows, []string{p.Name, plusMinus(p.Heldout.NLL), with, fmt.Sprintf("-%.1f%%", saved), p.Flags, strings.Join(p.Cautions, "; ")})
	}
	t.table("Profiles", []string{"profile", "held out, nats", "with surrogates", "KV cache", "flags", ""}, rows)
}

func plusMinus(e Estimate) string { return fmt.Sprintf("%+.4f ± %.4f", e.Mean, e.SE) }

func join(layers []int) string {
	s := make([]string, len(layers))
	for i, l := range layers {
		s[i] = fmt.Sprint(l)
	}
	return strings.Join(s, ",")
}
