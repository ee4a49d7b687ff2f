package campaigns

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"

	"attnbudget/engine/builtin"
	"attnbudget/engine/drop"
	"attnbudget/engine/source"
	"attnbudget/plan"
)

// resolve opens what the campaign names and checks the campaign against it. Checks whose ground is missing because of an
// earlier mistake are left out: they would only repeat it.
func (c *Campaign) resolve(ctx context.Context) {
	for _, named := range c.Models {
		var m *model
		if c.doc.clean(at("models", named.Name)) {
			m = c.openModel(ctx, named)
		}
		c.models = append(c.models, m)
	}
	c.resolveInputs()
	c.resolveProfiles()
	complete := len(c.Models) > 0 && len(c.Masks) > 0 && len(c.KVTypes) > 0 && !slices.Contains(c.models, nil)
	if complete && c.doc.clean(at("models"), at("formats"), at("masks"), at("kv_types"), at("baseline"), at("matrix")) {
		c.expandArms()
	}
	c.checkArms()
	c.checkBases()
	c.checkContexts()
	c.checkPlanSize()
	c.checkArmNames()
}

// input is a text or task file.
type input struct {
	text []byte
	sum  string
}

// maxInput bounds texts and task files, which are held in memory to be tokenised.
const maxInput = 1 << 30

func (c *Campaign) resolveInputs() {
	read := map[string]input{}
	for i := range c.conditions {
		cond := &c.conditions[i]
		if cond.Input == "" || !c.doc.clean(at("stages", cond.stage)) {
			continue
		}
		in, known := read[cond.Input]
		if !known {
			in = c.readInput(cond.Input, cond.inputPath(), c.Stages[cond.stage].input())
			read[cond.Input] = in
		}
		cond.SHA256 = in.sum
		if in.text != nil {
			c.measureInput(*cond, in.text)
		}
	}
}

// inputPath is where the condition's file is named.
func (cond condition) inputPath() path {
	if cond.Stage == plan.Perplexity || cond.Stage == plan.KLDivergence {
		return cond.at.key("text")
	}
	return cond.at.key("tasks")
}

// readInput reads a text or task file; the zero input when that fails, with the reason noted.
func (c *Campaign) readInput(file string, p path, written string) input {
	if !builtin.IsName(file) && !c.readable(file, p, written) {
		return input{}
	}
	text, err := source.Read(file)
	if err != nil {
		c.doc.wrong(p, "", "%s cannot be read: %s", written, c.shorten(err, written))
		return input{}
	}
	sum := sha256.Sum256(text)
	return input{text, hex.EncodeToString(sum[:])}
}

// readable checks that a file can be held in memory, and notes what is wrong with it.
func (c *Campaign) readable(file string, p path, written string) bool {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: file, Err: errors.New("not a regular file")}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.doc.wrong(p, "paths start from the folder of the campaign file", "there is no file %s", written)
	case err != nil:
		c.doc.wrong(p, "", "%s cannot be read: %s", written, c.shorten(err, written))
	case info.Size() == 0:
		c.doc.wrong(p, "", "%s is empty", written)
	case info.Size() > maxInput:
		c.doc.wrong(p, "", "%s has %d bytes; a text or task file has at most %d", written, info.Size(), maxInput)
	default:
		return true
	}
	return false
}

// checkArms checks masks, formats and cache types against the models they are combined with.
func (c *Campaign) checkArms() {
	checked := map[string]bool{}
	once := func(key string) bool {
		first := !checked[key]
		checked[key] = true
		return first
	}
	combinations := c.combinations()
	if c.arms == nil {
		c.checkProfiles(combinations)
	}
	for _, a := range combinations {
		m := c.model(a.Model)
		maskFits := true
		if a.Mask.Surrogate != "" && once("surrogate "+a.Model+" "+a.Mask.Name) {
			c.checkSurrogate(m, a)
		}
		if _, err := drop.Resolve(m.engine.Roles(), a.Mask.Layers); err != nil {
			maskFits = false
			if once("mask " + a.Model + " " + a.Mask.Name) {
				c.noteMask(a, err)
			}
		}
		if a.Format != m.Format && once("format "+a.Model+" "+a.Format) {
			c.checkQuantisable(m, a.Format)
		}
		if !maskFits || !once("kv "+a.Model+" "+a.KV()) {
			continue
		}
		if _, err := m.caches(a, ubatch); err != nil {
			p := at("matrix")
			if i := slices.Index(c.names(plan.DimKV), a.KV()); i >= 0 {
				p = at("kv_types", i)
			}
			c.doc.wrong(p, "",
				"model %q cannot have a cache of %s: %v", a.Model, a.KV(), err)
		}
	}
}

// combinations are the arms; where they could not be expanded, those that the lists would make.
func (c *Campaign) combinations() []plan.Arm {
	if c.arms != nil {
		return c.arms
	}
	var out []plan.Arm
	if _, given := c.doc.values[at("matrix")]; given {
		return nil
	}
	for _, m := range c.models {
		if m == nil || !c.doc.clean(at("formats"), at("kv_types")) {
			continue
		}
		formats := c.Formats
		if len(formats) == 0 {
			formats = []string{m.Format}
		}
		for _, format := range formats {
			for _, mask := range c.Masks {
				for _, kv := range c.KVTypes {
					if c.doc.clean(at("masks", mask.Name)) && len(out) < maxArms {
						out = append(out, c.armOf(m, format, mask, kv).Arm)
					}
				}
			}
		}
	}
	return out
}

func (c *Campaign) noteMask(a plan.Arm, err error) {
	p := at("masks", a.Mask.Name)
	var fault *drop.Error
	if !errors.As(err, &fault) {
		c.doc.wrong(p, "", "mask %q does not fit model %q: %v", a.Mask.Name, a.Model, err)
		return
	}
	if i := slices.Index(c.mask(a.Mask.Name).Layers, fault.Layer); i >= 0 {
		if _, mapping := c.doc.values[p.key("layers")]; mapping {
			p = p.key("layers")
		}
		p = p.item(i)
	}
	c.doc.wrong(p, "", "mask %q does not fit model %q: %s", a.Mask.Name, a.Model, fault.Reason)
}

func (c *Campaign) checkQuantisable(m *model, format string) {
	p := at("models", m.Name)
	if i := slices.Index(c.Formats, format); i >= 0 {
		p = at("formats", i)
	}
	if tensor := m.quantised(); tensor != "" {
		c.doc.wrong(p, "give the model in F16, BF16 or F32; rounding twice adds up errors",
			"model %q cannot become %s: it is quantised already (%s)", m.Name, format, tensor)
		return
	}
	if _, err := m.bytes(format); err != nil {
		c.doc.wrong(p, "", "model %q cannot become %s: %s", m.Name, format, c.shorten(err, m.Source))
	}
}

// checkContexts notes conditions that are longer than a model was trained for. A cache can be sized beyond that, which is
// only worth a warning.
func (c *Campaign) checkContexts() {
	for _, m := range c.models {
		if m == nil {
			continue
		}
		trained := m.engine.Info().ContextTrain
		for _, cond := range c.conditions {
			need := max(cond.Context, cond.Prompt+cond.Generate+cond.Depth)
			switch {
			case need <= trained:
			case cond.Stage == plan.KV:
				c.warn("line %d: %s is longer than the %d tokens that model %q was trained for", c.doc.node(cond.at).Line, cond.Name, trained, m.Name)
			default:
				p := cond.at
				if cond.Context > 0 {
					p = p.key("context")
				}
				c.doc.wrong(p, "", "%s needs a context of %d tokens; model %q was trained for %d", cond.Name, need, m.Name, trained)
			}
		}
	}
}

// checkPlanSize bounds the number of units, and refuses an order that makes no sense for the number of arms.
func (c *Campaign) checkPlanSize() {
	if c.arms == nil {
		return
	}
	arms := len(c.plannedArms())
	if c.Run.Order == plan.OrderABBA && arms == 1 {
		c.doc.wrong(at("run", "order"), "add an arm, or control: aa", "abba needs at least two arms; this campaign has one")
	}
	units := 0
	for _, cond := range c.conditions {
		units += cond.Repetitions * arms
	}
	if units > maxUnits {
		c.doc.wrongKey(at("stages"), "fewer arms, conditions or repetitions", "the plan has %d units; at most %d are possible", units, maxUnits)
	}
}

// checkArmNames checks the names of arms in tables, which are known only now.
func (c *Campaign) checkArmNames() {
	if c.arms == nil {
		return
	}
	var names []string
	for _, a := range c.plannedArms() {
		names = append(names, a.Name)
	}
	for i, t := range c.Tables {
		for key, values := range map[string]map[string]string{"where": t.Where, "against": t.Against} {
			if name, given := values[plan.DimArm]; given && !slices.Contains(names, name) {
				c.doc.wrong(at("tables", i, key, plan.DimArm), suggestion(name, names), "unknown arm %q", name)
			}
		}
	}
}
