package model

import (
	"fmt"
	"math"
	"slices"

	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/kvcache"
)

// Config is what the metadata of a file say of its model, checked.
type Config struct {
	Arch         string
	Name         string
	ContextTrain int
	Embd         int // width of the residual stream
	Vocab        int // rows of the token embedding
	Eps          float32
	Softcap      float32     // of the logits, 0 = none
	Roles        []drop.Role // of every block, MTP blocks included
	Layers       []Layer     // of the executed layers
}

// Layer is the shape of one executed layer.
type Layer struct {
	drop.Role
	Heads, HeadsKV int // of layers that attend
	DimK, DimV     int // elements of one head
	FF             int
	Window         int // positions a query sees, 0 = all earlier ones
	Conv, State    int // float32 that a recurrent layer remembers
}

// Layout is what the layers store of a sequence when the attention of mask is dropped.
func (c *Config) Layout(mask drop.Mask) kvcache.Layout {
	var out kvcache.Layout
	for i, l := range c.Layers {
		switch {
		case l.Kind == drop.Recurrent:
			out.Recurrent = append(out.Recurrent, kvcache.RecurrentLayer{Index: i, Conv: l.Conv, State: l.State})
		case l.Owns(i) && !mask.Has(i):
			out.Attention = append(out.Attention, kvcache.Layer{Index: i, Heads: l.HeadsKV, DimK: l.DimK, DimV: l.DimV, Window: l.Window})
		}
	}
	return out
}

// KeyFault is a metadata key whose value does not fit the model.
type KeyFault struct {
	File, Key, Expected, Found string
}

func (e *KeyFault) Error() string {
	return fmt.Sprintf("%s: key %s: expected %s, found %s", e.File, e.Key, e.Expected, e.Found)
}

// keys reads the metadata of one architecture. The first error sticks and every later read returns zero, so that a
// reader is written without a check a line; whoever reads asks err at the end.
type keys struct {
	f    *gguf.File
	arch string
	err  error
}

func (k *keys) fault(key, expected, found string) {
	if k.err == nil {
		k.err = &KeyFault{k.f.Path, k.arch + "." + key, expected, found}
	}
}

func read[T any](k *keys, get func(string) (T, error), key string) T {
	var zero T
	if k.err != nil {
		return zero
	}
	v, err := get(k.arch + "." + key)
	if err != nil {
		k.err = err
		return zero
	}
	return v
}

// maxExtent bounds every size read from a file; it is far above any model and keeps products of two sizes in an int.
const maxExtent = 1 << 30

func (k *keys) size(key string, v uint64, least uint64) int {
	if v < least || v > maxExtent {
		k.fault(key, fmt.Sprintf("a number from %d to %d", least, maxExtent), fmt.Sprint(v))
		return 0
	}
	return int(v)
}

// count is a required number of at least 1.
func (k *keys) count(key string) int { return k.size(key, read(k, k.f.Uint, key), 1) }

// countOr is a number with a default.
func (k *keys) countOr(key string, otherwise int) int {
	v := read(k, func(full string) (uint64, error) { return k.f.UintOr(full, uint64(otherwise)) }, key)
	return k.size(key, v, 0)
}

func (k *keys) floatOr(key string, otherwise float64) float32 {
	v := float32(read(k, func(full string) (float64, error) { return k.f.FloatOr(full, otherwise) }, key))
	if v != v || math.IsInf(float64(v), 0) {
		k.fault(key, "a finite number", fmt.Sprint(v))
	}
	return v
}

// positiveOr is a positive number with a default.
func (k *keys) positiveOr(key string, otherwise float64) float32 {
	v := k.floatOr(key, otherwise)
	if v <= 0 {
		k.fault(key, "a positive number", fmt.Sprint(v))
	}
	return v
}

// perLayer is a number of at least least for each of n layers, stored as one number or as a list.
func (k *keys) perLayer(key string, n int, least uint64) []int {
	values := read(k, k.f.Uints, key)
	out := make([]int, n)
	if k.err != nil {
		return out
	}
	if v, _ := k.f.Value(k.arch + "." + key); v.Kind() == gguf.Array && len(values) < n {
		k.fault(key, fmt.Sprintf("a number for each of %d layers", n), fmt.Sprintf("%d numbers", len(values)))
		return out
	}
	for i := range out {
		out[i] = k.size(key, values[min(i, len(values)-1)], least)
	}
	return out
}

// perLayerOr is perLayer with a default for an absent key.
func (k *keys) perLayerOr(key string, otherwise []int) []int {
	if k.f.Has(k.arch + "." + key) {
		return k.perLayer(key, len(otherwise), 0)
	}
	return otherwise
}

// readConfig reads what all architectures have in common. Head sizes are those of full layers; an architecture whose
// local layers differ corrects them.
func readConfig(f *gguf.File, roles []drop.Role) (*Config, *keys) {
	arch, err := f.String("general.architecture")
	k := &keys{f: f, arch: arch, err: err}
	c := &Config{Arch: arch, Roles: roles}
	c.Name, _ = f.StringOr("general.name", "")
	c.ContextTrain = k.count("context_length")
	c.Embd = k.count("embedding_length")
	c.Eps = k.positiveOr("attention.layer_norm_rms_epsilon", 0)
	c.Softcap = k.floatOr("final_logit_softcapping", 0)

	n := 0
	for _, r := range roles {
		if r.Kind != drop.MTP {
			n++
		}
	}
	heads := k.perLayer("attention.head_count", n, 0)
	headsKV := k.perLayerOr("attention.head_count_kv", heads)
	ff := k.perLayer("feed_forward_length", n, 1)
	if k.err != nil {
		return c, k
	}
	dim := c.Embd / max(1, slices.Max(heads))
	dimK, dimV := k.countOr("attention.key_length", dim), k.countOr("attention.value_length", dim)
	window := k.countOr("attention.sliding_window", 0)
	for i := range n {
		l := Layer{Role: roles[i], Heads: heads[i], HeadsKV: headsKV[i], DimK: dimK, DimV: dimV, FF: ff[i]}
		if l.Kind == drop.Local {
			l.Window = window
		}
		if !l.Attends() {
			l.Heads, l.HeadsKV = 0, 0 // whatever the file says: no tensor bears it out
		}
		c.Layers = append(c.Layers, l)
	}
	c.checkHeads(k)
	return c, k
}

func (c *Config) checkHeads(k *keys) {
	for i, l := range c.Layers {
		if !l.Attends() {
			continue
		}
		if l.HeadsKV == 0 || l.Heads == 0 || l.Heads%l.HeadsKV != 0 {
			k.fault("attention.head_count", fmt.Sprintf("a multiple of the %d key and value heads in layer %d", l.HeadsKV, i), fmt.Sprint(l.Heads))
		}
		if l.DimK < 2 || l.DimK%2 != 0 || l.DimV < 1 {
			k.fault("attention.key_length", "an even number", fmt.Sprintf("%d (values: %d)", l.DimK, l.DimV))
		}
		if l.Kind == drop.Local && l.Window == 0 {
			k.fault("attention.sliding_window", "a positive number, because there are local layers", "0")
		}
	}
}

// rotated is how many elements of a head of dim rotate.
func (k *keys) rotated(key string, dim int) int {
	n := k.countOr(key, dim)
	if n < 2 || n > dim || n%2 != 0 {
		k.fault(key, fmt.Sprintf("an even number up to %d, the size of a key head", dim), fmt.Sprint(n))
		return 2
	}
	return n
}

// ropeScale is the factor on rotary angles of full layers: 1, or 1/factor with linear scaling. Other kinds of scaling are
// refused rather than ignored.
func (k *keys) ropeScale() float32 {
	kind := read(k, func(full string) (string, error) { return k.f.StringOr(full, "linear") }, "rope.scaling.type")
	if kind != "linear" && kind != "none" && k.err == nil {
		k.fault("rope.scaling.type", "linear or none", kind)
	}
	factor := k.floatOr("rope.scaling.factor", float64(k.floatOr("rope.scale_linear", 1)))
	if kind == "none" || factor == 0 {
		return 1
	}
	return 1 / factor
}
