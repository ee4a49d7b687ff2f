package calibrate

import (
	"slices"

	"attnbudget/engine/drop"
)

// Unit is what one step of a search drops: a layer and, when others read its keys and values, those of them that are still
// there. Ascending, so that the first is the layer that gives the unit its name.
type Unit []int

// Units lists what may be dropped on top of mask, by the first layer of each. What a mask may hold at all is package drop's
// to say: a unit is listed when mask with it is valid.
func Units(roles []drop.Role, mask drop.Mask) []Unit {
	var out []Unit
	for layer, r := range roles {
		if !r.Attends() || mask.Has(layer) {
			continue
		}
		u := Unit{layer}
		for _, c := range drop.Consumers(roles, layer) {
			if !mask.Has(c) {
				u = append(u, c)
			}
		}
		slices.Sort(u)
		if _, ok := with(roles, mask, u); ok {
			out = append(out, u)
		}
	}
	return out
}

// with is mask and the layers of u, if that is a valid mask.
func with(roles []drop.Role, mask drop.Mask, u Unit) (drop.Mask, bool) {
	m, err := drop.Resolve(roles, append(mask.Layers(), u...))
	return m, err == nil
}

// without is mask less one layer, if that is a valid mask.
func without(roles []drop.Role, mask drop.Mask, layer int) (drop.Mask, bool) {
	m, err := drop.Resolve(roles, slices.DeleteFunc(mask.Layers(), func(l int) bool { return l == layer }))
	return m, err == nil
}

// difference lists the layers of a that b has not.
func difference(a, b drop.Mask) []int {
	return slices.DeleteFunc(a.Layers(), b.Has)
}
