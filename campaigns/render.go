package campaigns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"attnbudget/plan"
)

// WriteJSON writes the plan and its estimate as one indented JSON object with the keys `plan` and `estimate`.
func WriteJSON(w io.Writer, p *plan.Plan, e plan.Estimate) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(struct {
		Plan     *plan.Plan    `json:"plan"`
		Estimate plan.Estimate `json:"estimate"`
	}{p, e})
}

// WriteText writes the plan for people: models, arms, what is executed in which order (block by block, or unit by unit), the
// estimate and the warnings.
func WriteText(w io.Writer, p *plan.Plan, e plan.Estimate, units bool) error {
	var t textWriter
	t.printf("Campaign %s: %s, %s, %s\n", p.Campaign, count(len(p.Arms), "arm"), count(len(p.Conditions), "condition"), count(len(p.Units), "unit"))
	t.printf("order %s, seed %d, %s of the speed stages, %s%s\n", p.Order, p.Seed, count(p.Repetitions, "repetition"), count(p.Threads, "thread"), limits(p))
	t.models(p)
	t.calibrations(p)
	t.arms(p)
	if units {
		t.units(p)
	} else {
		t.blocks(p)
	}
	t.printf("\nTime about %s, memory %s, disk %s\n(%s)\n", roundTime(e.Time), Size(e.Memory), Size(e.Disk), e.Method)
	for _, warning := range p.Warnings {
		t.printf("warning: %s\n", warning)
	}
	if t.err != nil {
		return t.err
	}
	for line := range strings.Lines(t.text.String()) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil { // tables pad their last column
			return err
		}
	}
	return nil
}

// textWriter gathers the text and keeps the first error.
type textWriter struct {
	text strings.Builder
	err  error
}

func (t *textWriter) printf(format string, args ...any) { fmt.Fprintf(&t.text, format, args...) }

// table writes rows under a heading, without lines.
func (t *textWriter) table(title string, header []string, rows [][]string, align ...tw.Align) {
	t.printf("\n%s\n", title)
	none := tw.Rendition{
		Borders:  tw.BorderNone,
		Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.LinesNone},
	}
	table := tablewriter.NewTable(&t.text,
		tablewriter.WithRenderer(renderer.NewBlueprint(none)),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone), tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithAlignment(align))
	table.Header(header)
	t.err = errors.Join(t.err, table.Bulk(rows), table.Render())
}

func (t *textWriter) models(p *plan.Plan) {
	var rows [][]string
	for _, m := range p.Models {
		rows = append(rows, []string{m.Name, m.Source, m.Format, Size(m.Bytes), m.Fingerprint[:16]})
	}
	t.table("Models", []string{"name", "source", "format", "size", "SHA-256"}, rows, tw.AlignLeft, tw.AlignLeft, tw.AlignLeft, tw.AlignRight, tw.AlignLeft)
}

func (t *textWriter) calibrations(p *plan.Plan) {
	var rows [][]string
	for _, c := range p.Calibrations {
		masks, model, stands := strings.Join(c.Masks, ", "), c.Model, "done"
		switch {
		case c.Key == nil:
			model, stands = "-", "given: "+c.Report
		case c.SHA256 == "":
			stands = "runs first"
		}
		rows = append(rows, []string{c.ID, model, masks, stands})
	}
	if len(rows) > 0 {
		t.table("Calibrations", []string{"id", "model", "masks", "report"}, rows, tw.AlignLeft, tw.AlignLeft, tw.AlignLeft, tw.AlignLeft)
	}
}

func (t *textWriter) arms(p *plan.Plan) {
	var rows [][]string
	for i, a := range p.Arms {
		role := ""
		switch {
		case a.Control:
			role = "control"
		case a.Name == p.Baseline:
			role = "baseline"
		}
		dropped := "-"
		switch {
		case a.Mask.Pending:
			dropped = "?"
		case len(a.Mask.Layers) > 0:
			dropped = plan.CanonicalMask(a.Mask.Layers)
		}
		if a.Mask.Surrogate != "" || a.Mask.Pending && a.Mask.Fitted {
			dropped += " with surrogate"
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), a.Name, a.Model, a.Format, a.Mask.Name, dropped, a.KV(), role})
	}
	t.table("Arms", []string{"#", "arm", "model", "format", "mask", "dropped", "kv", ""}, rows, tw.AlignRight, tw.AlignLeft)
}

// blocks summarises units that are executed one after the other for the same condition: a block, or in the sequential order
// all repetitions of an arm. Arms are given by their numbers.
func (t *textWriter) blocks(p *plan.Plan) {
	number := map[string]int{}
	for i, a := range p.Arms {
		number[a.Name] = i + 1
	}
	together := func(a, b plan.Unit) bool {
		if p.Order == plan.OrderSequential {
			return a.Condition == b.Condition && a.Arm == b.Arm
		}
		return a.Condition == b.Condition && a.Block == b.Block
	}
	var rows [][]string
	for i := 0; i < len(p.Units); {
		first, n := p.Units[i], 1
		order := []string{strconv.Itoa(number[first.Arm])}
		for ; i+n < len(p.Units) && together(first, p.Units[i+n]); n++ {
			order = append(order, strconv.Itoa(number[p.Units[i+n].Arm]))
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), first.Key.Stage, strings.TrimPrefix(first.Condition, first.Key.Stage+" "), strconv.Itoa(first.Block + 1), fold(order)})
		i += n
	}
	t.table("Blocks, in the order of execution", []string{"unit", "stage", "condition", "block", "arms"}, rows,
		tw.AlignRight, tw.AlignLeft, tw.AlignLeft, tw.AlignRight, tw.AlignLeft)
}

// fold joins the arms of a block and cuts long lists short.
func fold(arms []string) string {
	const most = 24
	if len(arms) <= most {
		return strings.Join(arms, " ")
	}
	return fmt.Sprintf("%s … and %d more", strings.Join(arms[:most], " "), len(arms)-most)
}

func (t *textWriter) units(p *plan.Plan) {
	var rows [][]string
	for i, u := range p.Units {
		rows = append(rows, []string{strconv.Itoa(i + 1), u.ID, u.Name})
	}
	t.table("Units, in the order of execution", []string{"unit", "id", "name"}, rows, tw.AlignRight, tw.AlignLeft)
}

func limits(p *plan.Plan) string {
	out := ""
	if p.Timeout > 0 {
		out += fmt.Sprintf(", at most %s a unit", p.Timeout)
	}
	if p.Until != "" {
		out += ", until " + p.Until
	}
	return out
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func roundTime(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(100 * time.Millisecond)
}

// Size is a number of bytes for people: "7.3 MiB".
func Size(bytes int64) string {
	value, unit := float64(bytes), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}
