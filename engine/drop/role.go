// Package drop says which layers of a model may lose their attention, and holds the mask that says which did.
//
// Roles describes every logical layer of a GGUF file from its metadata alone; Resolve checks a list of layers against
// those roles and makes the immutable Mask that a context is built with. The package knows nothing of weights, caches or
// forward passes: they ask the Mask and obey.
package drop

import "fmt"

// Kind is what the token mixing of a layer is.
type Kind int

const (
	Full      Kind = iota // attends to every earlier position
	Local                 // attends to a sliding window of positions
	Gated                 // full attention whose output is multiplied by a gate computed from the query projection
	Recurrent             // a recurrent state instead of attention; nothing to drop
	MTP                   // a block for multi-token prediction, never executed here; nothing to drop
)

// String returns the word used in messages and documents.
func (k Kind) String() string {
	switch k {
	case Full:
		return "full"
	case Local:
		return "local"
	case Gated:
		return "gated"
	case Recurrent:
		return "recurrent"
	case MTP:
		return "MTP"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// None is the Owner of a layer that reads no keys and values.
const None = -1

// Role is what the attention of one logical layer is.
type Role struct {
	Kind Kind
	// Owner is the layer whose keys and values this layer reads: its own number when it stores its own, an earlier layer's
	// when it shares (a consumer), None for recurrent and MTP layers.
	Owner int
}

// Attends reports whether the layer has attention that could be dropped.
func (r Role) Attends() bool { return r.Kind == Full || r.Kind == Local || r.Kind == Gated }

// Owns reports whether layer, which has this role, stores keys and values of its own.
func (r Role) Owns(layer int) bool { return r.Owner == layer }

// Consumes reports whether layer, which has this role, reads the keys and values of another layer.
func (r Role) Consumes(layer int) bool { return r.Owner != None && r.Owner != layer }

// Describe names the role of layer in words: "local", "full, reads the keys and values of layer 23".
func (r Role) Describe(layer int) string {
	if r.Consumes(layer) {
		return fmt.Sprintf("%s, reads the keys and values of layer %d", r.Kind, r.Owner)
	}
	return r.Kind.String()
}

// Consumers lists the layers that read the keys and values of owner, without owner itself.
func Consumers(roles []Role, owner int) []int {
	var out []int
	for layer, r := range roles {
		if r.Owner == owner && layer != owner {
			out = append(out, layer)
		}
	}
	return out
}
