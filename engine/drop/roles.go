package drop

import (
	"fmt"
	"strings"

	"attnbudget/engine/gguf"
)

// architectures are the values of general.architecture this engine runs.
var architectures = []string{"llama", "gemma3", "qwen35", "gemma4"}

// UnsupportedError is a model this engine does not run.
type UnsupportedError struct {
	File string
	Arch string // general.architecture, with what sets the model apart where the name alone is supported
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: architecture %s is not supported and nothing in it may be dropped; supported are %s (each without experts)",
		e.File, e.Arch, strings.Join(architectures, ", "))
}

// Roles reads from the metadata what every block of the model is, executed or not. Errors: *UnsupportedError, *gguf.KeyError,
// or a plain error that names the key, what was expected and what was found.
func Roles(f *gguf.File) ([]Role, error) {
	arch, err := f.String("general.architecture")
	if err != nil {
		return nil, err
	}
	m := metadata{f, arch + "."}
	var of func(metadata, []Role) error
	switch arch {
	case "llama":
		of = llamaRoles
	case "gemma3":
		of = gemma3Roles
	case "qwen35":
		of = qwen35Roles
	case "gemma4":
		of = gemma4Roles
	default:
		return nil, &UnsupportedError{f.Path, arch}
	}
	for _, t := range f.Tensors {
		if strings.HasSuffix(t.Name, ".ffn_gate_inp.weight") {
			return nil, &UnsupportedError{f.Path, arch + " with experts (MoE)"}
		}
	}
	roles, err := m.blocks()
	if err != nil {
		return nil, err
	}
	return roles, of(m, roles)
}

func llamaRoles(metadata, []Role) error { return nil }

// gemma3Roles: five local layers, then a full one, unless the file gives another period.
func gemma3Roles(m metadata, roles []Role) error {
	window, err := m.f.UintOr(m.prefix+"attention.sliding_window", 0)
	if err != nil || window == 0 {
		return err
	}
	return m.markLocal(roles, 6)
}

// qwen35Roles: every fourth layer is gated attention, the others are recurrent, unless the file lists them; MTP blocks
// come last.
func qwen35Roles(m metadata, roles []Role) error {
	mtp, err := m.f.UintOr(m.prefix+"nextn_predict_layers", 0)
	if err != nil {
		return err
	}
	if mtp >= uint64(len(roles)) {
		return m.fault("nextn_predict_layers", fmt.Sprintf("fewer than the %d blocks", len(roles)), fmt.Sprint(mtp))
	}
	interval, err := m.f.UintOr(m.prefix+"full_attention_interval", 4)
	if err != nil {
		return err
	}
	if interval == 0 {
		return m.fault("full_attention_interval", "at least 1", "0")
	}
	recurrent := func(layer int) bool { return uint64(layer+1)%interval != 0 }
	if m.f.Has(m.prefix + "attention.recurrent_layers") {
		flags, err := m.flags("attention.recurrent_layers", len(roles)-int(mtp))
		if err != nil {
			return err
		}
		recurrent = func(layer int) bool { return flags[layer] }
	}
	trunk := len(roles) - int(mtp)
	for layer := range roles {
		switch {
		case layer >= trunk:
			roles[layer] = Role{MTP, None}
		case recurrent(layer):
			roles[layer] = Role{Recurrent, None}
		default:
			roles[layer] = Role{Gated, layer}
		}
	}
	return nil
}

// gemma4Roles: the file marks the local layers; the last shared_kv_layers read the keys and values of the last owner of
// their kind, which upstream finds by position: the last owner is full, the one before it local.
func gemma4Roles(m metadata, roles []Role) error {
	if !m.f.Has(m.prefix + "attention.sliding_window_pattern") {
		_, err := m.f.Bools(m.prefix + "attention.sliding_window_pattern")
		return err
	}
	if err := m.markLocal(roles, 0); err != nil {
		return err
	}
	shared, err := m.f.UintOr(m.prefix+"attention.shared_kv_layers", 0)
	if err != nil {
		return err
	}
	if shared == 0 {
		return nil
	}
	if most := max(len(roles)-2, 0); shared > uint64(most) {
		return m.fault("attention.shared_kv_layers", fmt.Sprintf("at most %d, so that two of the %d blocks store keys and values", most, len(roles)), fmt.Sprint(shared))
	}
	owners := len(roles) - int(shared)
	for layer := owners; layer < len(roles); layer++ {
		owner := owners - 1
		if roles[layer].Kind == Local {
			owner = owners - 2
		}
		if roles[owner].Kind != roles[layer].Kind {
			return m.fault("attention.sliding_window_pattern",
				fmt.Sprintf("layer %d, whose keys and values layer %d reads, to be %s as well", owner, layer, roles[layer].Kind), roles[owner].Kind.String())
		}
		roles[layer].Owner = owner
	}
	return nil
}

// metadata reads the keys of one architecture.
type metadata struct {
	f      *gguf.File
	prefix string
}

func (m metadata) fault(key, expected, found string) error {
	return fmt.Errorf("%s: key %s%s: expected %s, found %s", m.f.Path, m.prefix, key, expected, found)
}

// blocks makes a full layer of every block. A block has at least one tensor, which bounds their number.
func (m metadata) blocks() ([]Role, error) {
	n, err := m.f.Uint(m.prefix + "block_count")
	if err != nil {
		return nil, err
	}
	if n == 0 || n > uint64(len(m.f.Tensors)) {
		return nil, m.fault("block_count", fmt.Sprintf("1 to %d, the number of tensors", len(m.f.Tensors)), fmt.Sprint(n))
	}
	roles := make([]Role, n)
	for layer := range roles {
		roles[layer] = Role{Full, layer}
	}
	return roles, nil
}

// markLocal makes local layers of those the sliding-window pattern names: a list of flags, or a period of which all but the
// last layer are local.
func (m metadata) markLocal(roles []Role, period uint64) error {
	key := "attention.sliding_window_pattern"
	v, present := m.f.Value(m.prefix + key)
	local := func(layer int) bool { return period == 0 || uint64(layer)%period < period-1 }
	if present && v.Kind() == gguf.Array {
		flags, err := m.flags(key, len(roles))
		if err != nil {
			return err
		}
		local = func(layer int) bool { return flags[layer] }
	} else if present {
		var err error
		if period, err = m.f.Uint(m.prefix + key); err != nil {
			return err
		}
	}
	for layer := range roles {
		if local(layer) {
			roles[layer].Kind = Local
		}
	}
	return nil
}

// flags reads a list of at least n booleans, written as such or as integers.
func (m metadata) flags(key string, n int) ([]bool, error) {
	flags, err := m.f.Bools(m.prefix + key)
	if err != nil {
		ints, errInts := m.f.Ints(m.prefix + key)
		if errInts != nil {
			return nil, err
		}
		flags = make([]bool, len(ints))
		for i, v := range ints {
			flags[i] = v != 0
		}
	}
	if len(flags) < n {
		return nil, m.fault(key, fmt.Sprintf("a flag for each of %d layers", n), fmt.Sprintf("%d flags", len(flags)))
	}
	return flags, nil
}
