package campaigns

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"attnbudget/plan"
)

// maxArms bounds the matrix, maxUnits the plan: nobody means more, and a slip of a list must not fill the memory.
const (
	maxArms  = 10_000
	maxUnits = 200_000
)

// arm is a plan.Arm while the matrix is expanded.
type arm struct {
	plan.Arm
	fingerprint string // of the model
	values      [4]string
}

// expandArms makes the arms of the matrix, without the control, and finds the baseline among them. What cannot be is
// noted as a mistake; arms that are the same under two names become one, with a warning.
func (c *Campaign) expandArms() {
	arms := c.product()
	if arms == nil {
		return
	}
	arms = c.filter(arms)
	arms = append(arms, c.included()...)
	if len(arms) == 0 {
		c.doc.wrongKey(at("matrix"), "loosen only or exclude, or include an arm", "the matrix leaves no arm")
		return
	}
	c.checkProfiles(planned(arms))
	c.calibrations = c.calibrationsOf(planned(arms))
	arms = c.unique(arms)
	nameArms(arms)
	c.arms = planned(arms)
	c.findBaseline()
}

func planned(arms []arm) []plan.Arm {
	out := make([]plan.Arm, len(arms))
	for i, a := range arms {
		out[i] = a.Arm
	}
	return out
}

// axes groups the dimensions of arms: zipped ones share an axis, at the place of the first.
func (c *Campaign) axes() [][]string {
	var out [][]string
	placed := map[string]bool{}
	for _, dimension := range armDimensions() {
		axis := []string{dimension}
		for _, group := range c.Matrix.Zip {
			if slices.Contains(group, dimension) {
				axis = group
			}
		}
		if !placed[dimension] {
			out = append(out, axis)
		}
		for _, d := range axis {
			placed[d] = true
		}
	}
	return out
}

// product multiplies the axes, the first one slowest; nil with a mistake when that makes too many arms.
func (c *Campaign) product() []arm {
	axes := c.axes()
	total := 1
	for _, axis := range axes {
		if total *= c.length(axis[0]); total > maxArms {
			c.doc.wrongKey(at("matrix"), "use zip or only, or shorten the lists", "the matrix makes more than %d arms", maxArms)
			return nil
		}
	}
	arms := make([]arm, 0, total)
	index := map[string]int{}
	var walk func(depth int)
	walk = func(depth int) {
		if depth == len(axes) {
			arms = append(arms, c.arm(index))
			return
		}
		for i := range c.length(axes[depth][0]) {
			for _, dimension := range axes[depth] {
				index[dimension] = i
			}
			walk(depth + 1)
		}
	}
	walk(0)
	return arms
}

func (c *Campaign) length(dimension string) int {
	if dimension == plan.DimFormat && len(c.Formats) == 0 {
		return 1 // each model's own
	}
	return len(c.names(dimension))
}

func (c *Campaign) arm(index map[string]int) arm {
	format := ""
	if len(c.Formats) > 0 {
		format = c.Formats[index[plan.DimFormat]]
	}
	return c.armOf(c.models[index[plan.DimModel]], format, c.Masks[index[plan.DimMask]], c.KVTypes[index[plan.DimKV]])
}

// armOf puts an arm together; an empty format is the model's own.
func (c *Campaign) armOf(m *model, format string, mask NamedMask, kv KVType) arm {
	a := plan.Arm{
		Model:  m.Name,
		Format: cmp.Or(format, m.Format),
		Mask:   c.maskOf(m, mask),
		TypeK:  kv.K, TypeV: kv.V,
		Engine: plan.EngineEmbedded,
	}
	return arm{Arm: a, fingerprint: m.Fingerprint, values: [4]string{a.Model, a.Format, a.Mask.Name, a.KV()}}
}

func (f Filter) matches(a arm) bool {
	for i, dimension := range armDimensions() {
		if want := f.part(dimension); len(want) > 0 && !slices.Contains(want, a.values[i]) {
			return false
		}
	}
	return true
}

// filter applies only and exclude, and warns of entries that match nothing.
func (c *Campaign) filter(arms []arm) []arm {
	matched := func(filters []Filter, a arm, hits []int) (any bool) {
		for i, f := range filters {
			if f.matches(a) {
				hits[i]++
				any = true
			}
		}
		return any
	}
	only, excluded := make([]int, len(c.Matrix.Only)), make([]int, len(c.Matrix.Exclude))
	var out []arm
	for _, a := range arms {
		keep := matched(c.Matrix.Only, a, only) || len(only) == 0
		if keep && !matched(c.Matrix.Exclude, a, excluded) {
			out = append(out, a)
		}
	}
	c.warnIdle("only", only)
	c.warnIdle("exclude", excluded)
	return out
}

func (c *Campaign) warnIdle(key string, hits []int) {
	for i, n := range hits {
		if n == 0 {
			c.warn("line %d: entry %d of %q matches no arm", c.doc.node(at("matrix", key, i)).Line, i+1, key)
		}
	}
}

// included makes the arms of matrix.include; parts left out are the baseline's.
func (c *Campaign) included() []arm {
	var out []arm
	base := c.baseline()
	for _, f := range c.Matrix.Include {
		for _, modelName := range or(f.Model, base.Model) {
			m := c.model(modelName)
			for _, format := range or(f.Format, cmp.Or(base.Format, m.Format)) {
				for _, mask := range or(f.Mask, base.Mask) {
					for _, kv := range or(f.KV, base.KV.String()) {
						if len(out) == maxArms {
							c.doc.wrongKey(at("matrix", "include"), "shorten the lists", "the matrix includes more than %d arms", maxArms)
							return out
						}
						out = append(out, c.armOf(m, format, c.mask(mask), parseKV(kv)))
					}
				}
			}
		}
	}
	return out
}

func or(c Choice, fallback string) Choice {
	if len(c) == 0 {
		return Choice{fallback}
	}
	return c
}

func parseKV(name string) KVType {
	k, v, apart := strings.Cut(name, "/")
	if !apart {
		v = k
	}
	return KVType{k, v}
}

// baseline is Spec.Baseline with everything filled in but the format, which stays empty for the model's own.
func (c *Campaign) baseline() Selection {
	b := c.Baseline
	if b.Model == "" {
		b.Model = c.Models[0].Name
	}
	if b.Format == "" && len(c.Formats) > 0 {
		b.Format = c.Formats[0]
	}
	if b.Mask == "" {
		plain := slices.IndexFunc(c.Masks, func(m NamedMask) bool { return len(m.Layers) == 0 && m.Profile == "" })
		b.Mask = c.Masks[max(plain, 0)].Name
	}
	if b.KV == (KVType{}) {
		b.KV = c.KVTypes[0]
	}
	return b
}

func (c *Campaign) model(name string) *model {
	return c.models[slices.IndexFunc(c.models, func(m *model) bool { return m != nil && m.Name == name })]
}

func (c *Campaign) mask(name string) NamedMask {
	return c.Masks[slices.IndexFunc(c.Masks, func(m NamedMask) bool { return m.Name == name })]
}

// same identifies what an arm computes, whatever its parts are called.
func (a arm) same() string {
	return strings.Join([]string{a.fingerprint, a.Format, a.Mask.Drops(), a.Mask.SurrogateHash, a.TypeK, a.TypeV}, " ")
}

// unique keeps the first of arms that compute the same.
func (c *Campaign) unique(arms []arm) []arm {
	first := map[string]arm{}
	var out []arm
	for _, a := range arms {
		kept, twice := first[a.same()]
		switch {
		case !twice:
			first[a.same()] = a
			out = append(out, a)
		case kept.Mask.Name != a.Mask.Name:
			c.warn("mask %q drops the same layers as %q: its arms are left out where the other's exist", a.Mask.Name, kept.Mask.Name)
		case kept.Model != a.Model:
			c.warn("model %q is the same file as %q: its arms are left out where the other's exist", a.Model, kept.Model)
		default:
			c.warn("the included arm %s is in the matrix already", strings.Join(a.values[:], "/"))
		}
	}
	return out
}

// nameArms names arms by the parts in which they differ; a single arm bears the name of its model.
func nameArms(arms []arm) {
	var vary [4]bool
	for _, a := range arms {
		for i := range vary {
			vary[i] = vary[i] || a.values[i] != arms[0].values[i]
		}
	}
	for i := range arms {
		var parts []string
		for j, value := range arms[i].values {
			if vary[j] {
				parts = append(parts, strings.ReplaceAll(value, "/", "-"))
			}
		}
		if arms[i].Name = strings.Join(parts, "/"); len(parts) == 0 {
			arms[i].Name = arms[i].Model
		}
	}
}

// findBaseline notes a baseline that is not among the arms.
func (c *Campaign) findBaseline() {
	b := c.baseline()
	m := c.model(b.Model)
	want := c.armOf(m, b.Format, c.mask(b.Mask), b.KV)
	for i, a := range c.arms {
		here := arm{Arm: a, fingerprint: c.model(a.Model).Fingerprint}
		if here.same() == want.same() {
			c.base = i
			return
		}
	}
	var names []string
	for _, a := range c.arms[:min(len(c.arms), 12)] {
		names = append(names, fmt.Sprintf("%s/%s/%s/%s", a.Model, a.Format, a.Mask.Name, a.KV()))
	}
	c.doc.wrongKey(at("baseline"), choices(names), "the baseline arm %s is not in the matrix", strings.Join(want.values[:], "/"))
}
