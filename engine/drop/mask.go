package drop

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mask is the set of layers whose attention is dropped, checked against the roles of one model. It never changes. The
// zero Mask drops nothing and fits every model. Masks are comparable with ==.
type Mask struct {
	canonical string // ascending layer numbers joined by commas
	bits      string // one byte a layer, 1 = dropped; a string, so that nobody can change it
}

// Error is a mask that a model cannot be run with.
type Error struct {
	Layer  int    // the layer at fault; None when it is the mask as a whole
	Reason string // one sentence: what is wrong and what to do
}

func (e *Error) Error() string { return "attention drop mask: " + e.Reason }

func fault(layer int, format string, args ...any) error {
	return &Error{Layer: layer, Reason: fmt.Sprintf(format, args...)}
}

// ParseMask reads a comma-separated list of layer numbers, "3,0,7". Spaces around numbers are allowed; the empty string
// is the empty list. It does not know the model: Resolve does.
func ParseMask(s string) ([]int, error) {
	layers := []int{}
	if strings.TrimSpace(s) == "" {
		return layers, nil
	}
	for field := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			return nil, fault(None, "%q in %q is not a layer number; write layers as 0,3,7", field, s)
		}
		layers = append(layers, n)
	}
	return layers, nil
}

// Resolve checks that the attention of layers may be dropped in a model with these roles and returns the mask. Every
// failure is an *Error.
func Resolve(roles []Role, layers []int) (Mask, error) {
	if len(layers) == 0 {
		return Mask{}, nil
	}
	dropped := make([]byte, len(roles))
	for _, layer := range layers {
		if err := checkLayer(roles, dropped, layer); err != nil {
			return Mask{}, err
		}
		dropped[layer] = 1
	}
	if err := checkWhole(roles, dropped); err != nil {
		return Mask{}, err
	}
	sorted := slices.Sorted(slices.Values(layers))
	return Mask{canonical: join(sorted), bits: string(dropped)}, nil
}

// checkLayer refuses a layer that cannot be dropped whatever the rest of the mask is.
func checkLayer(roles []Role, dropped []byte, layer int) error {
	if !slices.ContainsFunc(roles, Role.Attends) {
		return fault(None, "the model has no layer whose attention may be dropped")
	}
	if layer < 0 || layer >= len(roles) {
		return fault(layer, "layer %d does not exist; the model has layers 0 to %d", layer, len(roles)-1)
	}
	if dropped[layer] == 1 {
		return fault(layer, "layer %d is named twice", layer)
	}
	switch kind := roles[layer].Kind; kind {
	case Recurrent:
		return fault(layer, "layer %d is recurrent and has no attention to drop; droppable layers: %s", layer, droppable(roles))
	case MTP:
		return fault(layer, "layer %d is a multi-token prediction block, which is never executed; droppable layers: %s", layer, droppable(roles))
	}
	return nil
}

// checkWhole refuses combinations that leave the model without what it needs.
func checkWhole(roles []Role, dropped []byte) error {
	gated, gatedLeft, ownersLeft := 0, 0, 0
	for layer, r := range roles {
		active := dropped[layer] == 0
		if r.Kind == Gated {
			gated++
			if active {
				gatedLeft++
			}
		}
		if r.Owns(layer) && active {
			ownersLeft++
		}
		if r.Consumes(layer) && active && dropped[r.Owner] == 1 {
			return fault(r.Owner, "layer %d is dropped, but layer %d, which is not, reads its keys and values; also drop %s, or keep layer %d",
				r.Owner, layer, join(activeConsumers(roles, dropped, r.Owner)), r.Owner)
		}
	}
	if gated > 0 && gatedLeft == 0 {
		return fault(None, "no gated attention layer is left; keep at least one of %s", droppable(roles))
	}
	if ownersLeft == 0 {
		return fault(None, "no layer that stores keys and values is left; keep at least one of %s", owners(roles))
	}
	return nil
}

func activeConsumers(roles []Role, dropped []byte, owner int) []int {
	return slices.DeleteFunc(Consumers(roles, owner), func(l int) bool { return dropped[l] == 1 })
}

func droppable(roles []Role) string {
	return join(where(roles, func(_ int, r Role) bool { return r.Attends() }))
}

func owners(roles []Role) string {
	return join(where(roles, func(layer int, r Role) bool { return r.Owns(layer) }))
}

func where(roles []Role, keep func(int, Role) bool) []int {
	var out []int
	for layer, r := range roles {
		if keep(layer, r) {
			out = append(out, layer)
		}
	}
	return out
}

func join(layers []int) string {
	s := make([]string, len(layers))
	for i, l := range layers {
		s[i] = strconv.Itoa(l)
	}
	return strings.Join(s, ",")
}

// Has reports whether the attention of layer is dropped.
func (m Mask) Has(layer int) bool { return layer < len(m.bits) && m.bits[layer] == 1 }

// Empty reports whether nothing is dropped.
func (m Mask) Empty() bool { return m.canonical == "" }

// Layers lists the dropped layers, ascending; never nil.
func (m Mask) Layers() []int {
	out := []int{}
	for layer := range len(m.bits) {
		if m.bits[layer] == 1 {
			out = append(out, layer)
		}
	}
	return out
}

// Canonical is the one way to write the mask: ascending layer numbers joined by commas, "" when nothing is dropped.
func (m Mask) Canonical() string { return m.canonical }

// String returns the canonical form, or "none".
func (m Mask) String() string {
	if m.Empty() {
		return "none"
	}
	return m.canonical
}

// Hash is the SHA-256 of the canonical form in lower-case hexadecimal digits.
func (m Mask) Hash() string {
	sum := sha256.Sum256([]byte(m.canonical))
	return hex.EncodeToString(sum[:])
}
