package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteJSON writes the whole report, indented.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes the report for people; the list of tensors only when asked for.
func (r *Report) WriteText(w io.Writer, tensors bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := printer{w: t}
	p.model(r)
	p.metadata(r)
	p.types(r)
	if tensors {
		p.tensors(r)
	}
	if r.NotRunnable != "" {
		p.row("")
		p.row("This engine does not run the model: " + r.NotRunnable)
	}
	p.layers(r)
	p.caches(r)
	if p.err != nil {
		return p.err
	}
	return t.Flush()
}

// printer writes tab-separated rows; the first error sticks.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) row(cells ...any) {
	if p.err != nil {
		return
	}
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = fmt.Sprint(c)
	}
	_, p.err = fmt.Fprintln(p.w, strings.Join(text, "\t"))
}

// heading starts a table: a blank line ends the columns of the one before.
func (p *printer) heading(cells ...any) {
	p.row("")
	p.row(cells...)
}

func (p *printer) model(r *Report) {
	p.row("file", r.Path)
	for _, part := range r.Parts {
		p.row("part", part)
	}
	if r.FileBytes > 0 {
		p.row("size", size(r.FileBytes))
	}
	if r.Fingerprint != "" {
		p.row("fingerprint", r.Fingerprint)
	}
	p.row("GGUF version", r.Version)
	p.row("model", strings.TrimSpace(r.Arch+" "+r.Name))
	p.row("file type", r.FileType)
	p.row("parameters", fmt.Sprintf("%d in %s", r.Parameters, size(r.Bytes)))
}

func (p *printer) metadata(r *Report) {
	p.heading("metadata", "type", "value")
	for _, e := range r.Metadata {
		p.row(e.Key, e.Type, e.text)
	}
}

func (p *printer) types(r *Report) {
	p.heading("tensor type", "tensors", "elements", "size")
	for _, u := range r.Types {
		p.row(u.Type, u.Tensors, u.Elements, size(u.Bytes))
	}
}

func (p *printer) tensors(r *Report) {
	p.heading("tensor", "type", "shape", "size")
	for _, t := range r.Tensors {
		p.row(t.Name, t.Type, strings.Trim(fmt.Sprint(t.Shape), "[]"), size(t.Bytes))
	}
}

func (p *printer) layers(r *Report) {
	if len(r.Layers) == 0 {
		return
	}
	p.heading("layer", "role", "window", "weights", "attention weights", "KV per token (f16)", "state")
	var kv, state int64
	for _, l := range r.Layers {
		p.row(l.Layer, l.Role, some(l.Window > 0, fmt.Sprint(l.Window)), size(l.Bytes), some(l.AttentionBytes > 0, size(l.AttentionBytes)),
			some(l.KVPerToken > 0, size(l.KVPerToken)), some(l.StateBytes > 0, size(l.StateBytes)))
		kv += l.KVPerToken
		state += l.StateBytes
	}
	p.row("all", "", "", "", "", some(kv > 0, size(kv)), some(state > 0, size(state)))
}

// some is text, or a dash for what a layer does not have.
func some(has bool, text string) string {
	if has {
		return text
	}
	return "-"
}

func (p *printer) caches(r *Report) {
	if len(r.Caches) == 0 {
		return
	}
	p.heading("context", "cache type", "size of all caches")
	for _, c := range r.Caches {
		p.row(c.Context, strings.ToLower(c.Type), size(c.Bytes))
	}
}

// size renders bytes in the unit that leaves at most four digits in front of the point.
func size(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10_000<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 10_000<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
