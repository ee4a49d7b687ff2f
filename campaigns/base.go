package campaigns

import (
	"fmt"
	"slices"
	"strings"

	"attnbudget/plan"
)

// baseArm is the arm that all arms of a model are compared with by kl-divergence: it has the baseline's mask and KV type, and
// the baseline's format or, where the model has no arm of that, the format of the model's own file. It is nil where the
// matrix has left that out.
func (c *Campaign) baseArm(model string) *plan.Arm {
	base := c.arms[c.base]
	for _, format := range []string{base.Format, c.model(model).Format} {
		i := slices.IndexFunc(c.arms, func(a plan.Arm) bool {
			return a.Model == model && a.Format == format && a.Mask.Same(base.Mask) && a.KV() == base.KV()
		})
		if i >= 0 {
			return &c.arms[i]
		}
	}
	return nil
}

// checkBases notes models whose arms kl-divergence has nothing to compare with.
func (c *Campaign) checkBases() {
	i := slices.IndexFunc(c.conditions, func(cond condition) bool { return cond.Stage == plan.KLDivergence })
	if i < 0 || c.arms == nil {
		return
	}
	var without []string
	for _, m := range c.models {
		has := slices.ContainsFunc(c.arms, func(a plan.Arm) bool { return a.Model == m.Name })
		if has && c.baseArm(m.Name) == nil {
			without = append(without, fmt.Sprintf("%q", m.Name))
		}
	}
	if len(without) > 0 {
		base := c.arms[c.base]
		c.doc.wrong(c.conditions[i].at, `add it with matrix: {include: [...]}`,
			"kl-divergence compares every arm with its model's arm of format %s, mask %s and KV type %s; there is none of model %s",
			base.Format, base.Mask.Name, base.KV(), strings.Join(without, ", "))
	}
}
