package campaigns

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"attnbudget/engine/builtin"
	"attnbudget/plan"
)

// check finds what is wrong without looking at any other file: names that nothing bears, numbers that contradict each
// other.
func (c *Campaign) check() {
	c.checkFormats(c.Formats, at("formats"))
	c.checkModels()
	for i, t := range c.KVTypes {
		c.checkKVType(t, at("kv_types", i))
		if slices.Contains(c.KVTypes[:i], t) {
			c.doc.wrong(at("kv_types", i), "", `"kv_types" lists %s twice`, t)
		}
	}
	for _, m := range c.Masks {
		c.checkMask(m, at("masks", m.Name))
	}
	c.checkBaseline()
	c.checkMatrix()
	c.checkRun()
	c.checkStages()
	c.expandConditions()
	c.checkTables()
}

var sha256Digits = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (c *Campaign) checkModels() {
	for _, m := range c.Models {
		p := at("models", m.Name)
		if name, is := strings.CutPrefix(m.Source.Path, builtin.Prefix); is {
			c.checkBuiltin(name, p, builtin.Model)
		}
		if c.doc.clean(at("formats")) {
			c.checkFetched(m.Source, p)
		}
	}
}

func (c *Campaign) checkBuiltin(name string, p path, kind builtin.Kind) {
	known := builtin.Names(kind)
	if slices.Contains(known, name) {
		return
	}
	hint := suggestion(builtin.Prefix+name, prefixed(known))
	if other, err := builtin.KindOf(name); err == nil {
		c.doc.wrong(p, hint, "%s%s is a %s, not a %s", builtin.Prefix, name, other, kind)
		return
	}
	c.doc.wrong(p, hint, "unknown builtin %q", name)
}

func prefixed(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = builtin.Prefix + name
	}
	return out
}

func (c *Campaign) checkFormats(formats []string, p path) {
	for i, f := range formats {
		if known := Formats(); !slices.Contains(known, f) {
			c.doc.wrong(p.item(i), suggestion(f, known), "unknown format %q", f)
		}
	}
}

func (c *Campaign) checkKVType(t KVType, p path) {
	known := KVTypes()
	if t.K != "" && !slices.Contains(known, t.K) {
		c.doc.wrong(p.key("k"), suggestion(t.K, known), "unknown KV type %q", t.K)
	}
	if t.V != "" && t.V != t.K && !slices.Contains(known, t.V) {
		c.doc.wrong(p.key("v"), suggestion(t.V, known), "unknown KV type %q", t.V)
	}
}

// names lists what a dimension of arms may be called in this campaign; for formats that are not listed, all there are.
func (c *Campaign) names(dimension string) []string {
	var out []string
	switch dimension {
	case plan.DimModel:
		for _, m := range c.Models {
			out = append(out, m.Name)
		}
	case plan.DimFormat:
		if len(c.Formats) == 0 {
			return Formats()
		}
		return c.Formats
	case plan.DimMask:
		for _, m := range c.Masks {
			out = append(out, m.Name)
		}
	case plan.DimKV:
		for _, t := range c.KVTypes {
			out = append(out, t.String())
		}
	}
	return out
}

// known notes a name that is none of the campaign's for the dimension.
func (c *Campaign) known(dimension, name string, p path) {
	if name == "" {
		return
	}
	if known := c.names(dimension); !slices.Contains(known, name) {
		what := dimension
		if dimension == plan.DimKV {
			what = "KV type"
		}
		c.doc.wrong(p, suggestion(name, known), "unknown %s %q: it is not one of this campaign's", what, name)
	}
}

func (c *Campaign) checkBaseline() {
	b, p := c.Baseline, at("baseline")
	c.known(plan.DimModel, b.Model, p.key("model"))
	c.known(plan.DimFormat, b.Format, p.key("format"))
	c.known(plan.DimMask, b.Mask, p.key("mask"))
	if b.KV != (KVType{}) {
		c.known(plan.DimKV, b.KV.String(), p.key("kv"))
	}
}

func (c *Campaign) checkMatrix() {
	c.checkZip()
	for i, f := range c.Matrix.Only {
		c.checkFilter(f, at("matrix", "only", i))
	}
	for i, f := range c.Matrix.Exclude {
		c.checkFilter(f, at("matrix", "exclude", i))
	}
	for i, f := range c.Matrix.Include {
		p := at("matrix", "include", i)
		c.checkFormats(f.Format, p.key("format"))
		for j, name := range f.KV {
			c.checkKVType(parseKV(name), p.key("kv").item(j))
		}
		f.Format, f.KV = nil, nil // an included arm may have others than the lists
		c.checkFilter(f, p)
		if len(f.Model)+len(f.Mask)+len(c.Matrix.Include[i].Format)+len(c.Matrix.Include[i].KV) == 0 {
			c.doc.wrong(p, choices(armDimensions()), "an included arm needs at least one part")
		}
	}
}

func (c *Campaign) checkFilter(f Filter, p path) {
	for _, dimension := range armDimensions() {
		for i, name := range f.part(dimension) {
			c.known(dimension, name, p.key(dimension).item(i))
		}
	}
}

func armDimensions() []string {
	return []string{plan.DimModel, plan.DimFormat, plan.DimMask, plan.DimKV}
}

// part is what the filter says of a dimension; empty = everything.
func (f Filter) part(dimension string) Choice {
	switch dimension {
	case plan.DimModel:
		return f.Model
	case plan.DimFormat:
		return f.Format
	case plan.DimMask:
		return f.Mask
	case plan.DimKV:
		return f.KV
	}
	panic("campaigns: arms have no dimension " + dimension)
}

func (c *Campaign) checkZip() {
	group := map[string]int{}
	for i, dimensions := range c.Matrix.Zip {
		p := at("matrix", "zip", i)
		if len(dimensions) < 2 {
			c.doc.wrong(p, "write zip: [[format, mask]]", "a zip group must have at least two dimensions")
		}
		var lengths []int
		var words []string
		for j, dimension := range dimensions {
			first, twice := group[dimension]
			switch {
			case !slices.Contains(armDimensions(), dimension):
				c.doc.wrong(p.item(j), suggestion(dimension, armDimensions()), "unknown dimension %q in a zip group", dimension)
				continue
			case twice:
				c.doc.wrong(p.item(j), "", "dimension %q is already in zip group %d", dimension, first+1)
				continue
			case dimension == plan.DimFormat && len(c.Formats) == 0:
				c.doc.wrong(p.item(j), "list the formats", `zipping formats needs "formats"`)
				continue
			}
			group[dimension] = i
			lengths = append(lengths, len(c.names(dimension)))
			words = append(words, fmt.Sprintf("%d of %s", lengths[len(lengths)-1], dimension))
		}
		if len(slices.Compact(lengths)) > 1 {
			c.doc.wrong(p, "zipped lists are walked together and must be equally long", "zip lengths differ: %s", strings.Join(words, ", "))
		}
	}
}

func (c *Campaign) checkRun() {
	if text := c.Run.Timeout; text != "" {
		if d, err := time.ParseDuration(text); err != nil || d <= 0 {
			c.doc.wrong(at("run", "timeout"), "write 90s, 30m or 2h", `"timeout" must be a duration, found %q`, clip(text))
		}
	}
	if _, err := plan.Deadline(c.Run.Until, time.Time{}); err != nil {
		c.doc.wrong(at("run", "until"), "write 07:00 or 2026-01-31T07:00:00+01:00", `"until" must be a time, found %q`, clip(c.Run.Until))
	}
}

func (c *Campaign) checkStages() {
	for i, s := range c.Stages {
		if !c.doc.clean(at("stages", i)) {
			continue
		}
		switch {
		case s.Calibrate != nil:
			c.checkCalibrate(i)
		case s.Throughput != nil && len(s.Throughput.Prompt)+len(s.Throughput.Generate) == 0:
			c.doc.wrong(at("stages", i, plan.Throughput), "write prompt: [512] or generate: [32]", "throughput needs prompt or generate")
		case s.Depth != nil && s.Depth.Prompt+s.Depth.Generate == 0:
			c.doc.wrong(at("stages", i, plan.Depth), "write generate: 16 or prompt: 128", "depth needs prompt or generate")
		case s.Perplexity != nil:
			c.checkInput(s.Perplexity.Text, at("stages", i, plan.Perplexity, "text"), builtin.Text)
		case s.HellaSwag != nil:
			c.checkInput(s.HellaSwag.Tasks, at("stages", i, plan.HellaSwag, "tasks"), builtin.HellaSwag)
		case s.Winogrande != nil:
			c.checkInput(s.Winogrande.Tasks, at("stages", i, plan.Winogrande, "tasks"), builtin.Winogrande)
		case s.KLDivergence != nil:
			c.checkInput(s.KLDivergence.Text, at("stages", i, plan.KLDivergence, "text"), builtin.Text)
		case s.MultipleChoice != nil && builtin.IsName(s.MultipleChoice.Tasks):
			c.doc.wrong(at("stages", i, plan.MultipleChoice, "tasks"), "give a file", "there are no builtin tasks of multiple choice")
		}
	}
}

func (c *Campaign) checkInput(source string, p path, kind builtin.Kind) {
	if name, ok := strings.CutPrefix(source, builtin.Prefix); ok {
		c.checkBuiltin(name, p, kind)
	}
}
