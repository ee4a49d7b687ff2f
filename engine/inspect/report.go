// Package inspect says what is in a GGUF file: metadata, tensors by type, and, for architectures this engine runs, what each
// layer is and what its keys and values take. It reads no weights but the norms, unless the fingerprint is asked for, and
// does not run the model.
package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/kvcache"
	"attnbudget/engine/model"
	"attnbudget/engine/quant"
	"attnbudget/engine/source"
)

// Schema is the version of the JSON form of a Report.
const Schema = "attnbudget/inspect/1"

// Report is what a model file holds. Sizes are in bytes.
type Report struct {
	Schema      string   `json:"schema"`
	Path        string   `json:"path"`
	Parts       []string `json:"parts,omitempty"` // of a split model
	FileBytes   int64    `json:"file_bytes,omitempty"`
	Fingerprint string   `json:"fingerprint,omitempty"` // SHA-256, when asked for
	Version     int      `json:"gguf_version"`
	Alignment   int      `json:"alignment"`

	Arch       string `json:"architecture"`
	Name       string `json:"name"`
	FileType   string `json:"file_type"`
	Parameters int64  `json:"parameters"` // elements of all tensors
	Bytes      int64  `json:"bytes"`      // of all tensors

	Metadata []Entry   `json:"metadata"`
	Types    []TypeUse `json:"types"`   // largest first
	Tensors  []Tensor  `json:"tensors"` // in file order

	// NotRunnable says why the engine does not run the model; then there are no layers and caches.
	NotRunnable string  `json:"not_runnable,omitempty"`
	Layers      []Layer `json:"layers,omitempty"`
	Caches      []Cache `json:"caches,omitempty"`
}

// Entry is one metadata key. Of an array only the first elements are shown.
type Entry struct {
	Key    string `json:"key"`
	Type   string `json:"type"` // "uint32", "array of string"
	Length int    `json:"length,omitempty"`
	Value  any    `json:"value"` // a scalar, or a list of the first elements

	text string
}

// TypeUse is what the tensors of one type take together.
type TypeUse struct {
	Type     string `json:"type"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

// Tensor is one tensor; Shape is in ggml order, columns first.
type Tensor struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
}

// Layer is what one block of the model is and stores.
type Layer struct {
	Layer          int    `json:"layer"`
	Role           string `json:"role"`
	Owner          int    `json:"kv_owner"` // the layer whose keys and values it reads, -1 = none
	Window         int    `json:"window,omitempty"`
	Bytes          int64  `json:"bytes"`                     // of its tensors
	AttentionBytes int64  `json:"attention_bytes,omitempty"` // of the tensors named attn_*, in layers with attention
	KVPerToken     int64  `json:"kv_bytes_per_token"`        // that it stores, with an f16 cache
	StateBytes     int64  `json:"state_bytes,omitempty"`     // that a recurrent layer stores, once a sequence
}

// Cache is what the caches of a context with one sequence and nothing dropped take.
type Cache struct {
	Context int    `json:"n_ctx"`
	Type    string `json:"type"` // of keys and values
	Bytes   int64  `json:"bytes"`
}

// File reports on a model file, the first part of a split one, or builtin:NAME. With fingerprint it reads all of it.
func File(ctx context.Context, name string, fingerprint bool) (*Report, error) {
	f, err := source.File(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := Of(f)
	if fingerprint {
		if r.Fingerprint, err = source.Fingerprint(ctx, name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Of reports on an open file with its data, without the fingerprint.
func Of(f *gguf.File) *Report {
	r := &Report{Schema: Schema, Path: f.Path, FileBytes: f.Size(), Version: f.Version, Alignment: f.Alignment, FileType: fileType(f)}
	if len(f.Parts()) > 1 {
		r.Parts = f.Parts()
	}
	r.Arch, _ = f.StringOr("general.architecture", "")
	r.Name, _ = f.StringOr("general.name", "")
	for _, k := range f.Keys {
		v, _ := f.Value(k)
		r.Metadata = append(r.Metadata, entry(k, v))
	}
	r.tensors(f)
	if err := r.layers(f); err != nil {
		r.NotRunnable = err.Error()
	}
	return r
}

// shown is how many elements of an array a report shows.
const shown = 8

func entry(key string, v gguf.Value) Entry {
	e := Entry{Key: key, Type: v.Kind().String(), text: v.String()}
	var values []any
	for x := range v.All() {
		if len(values) == shown {
			break
		}
		values = append(values, finite(x))
	}
	if v.Kind() == gguf.Array {
		e.Type, e.Length, e.Value = "array of "+v.Elem().String(), v.Len(), values
	} else {
		e.Value = values[0]
	}
	return e
}

// finite replaces numbers that JSON cannot hold by their names.
func finite(x any) any {
	switch v := x.(type) {
	case float32:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Sprint(v)
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
	}
	return x
}

func fileType(f *gguf.File) string {
	n, err := f.Uint("general.file_type")
	if err != nil || n > math.MaxUint32 {
		return "not stated"
	}
	return quant.Mix(n).String()
}

func (r *Report) tensors(f *gguf.File) {
	uses := map[gguf.Type]*TypeUse{}
	for _, t := range f.Tensors {
		u := uses[t.Type]
		if u == nil {
			u = &TypeUse{Type: t.Type.String()}
			uses[t.Type] = u
		}
		u.Tensors++
		u.Elements += int64(t.Elements())
		u.Bytes += t.Bytes()
		r.Parameters += int64(t.Elements())
		r.Bytes += t.Bytes()
		r.Tensors = append(r.Tensors, Tensor{t.Name, t.Type.String(), t.Shape, t.Bytes()})
	}
	for u := range maps.Values(uses) {
		r.Types = append(r.Types, *u)
	}
	slices.SortFunc(r.Types, func(a, b TypeUse) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Type, b.Type))
	})
}

// layers fills in what the engine makes of the model.
func (r *Report) layers(f *gguf.File) error {
	network, err := model.Load(f, false)
	if err != nil {
		return err
	}
	config := network.Config()
	layout := config.Layout(drop.Mask{})
	for i, role := range config.Roles {
		l := Layer{Layer: i, Role: role.Describe(i), Owner: role.Owner}
		prefix := fmt.Sprintf("blk.%d.", i)
		for _, t := range f.Tensors {
			rest, ok := strings.CutPrefix(t.Name, prefix)
			if !ok {
				continue
			}
			l.Bytes += t.Bytes()
			if role.Attends() && strings.HasPrefix(rest, "attn_") {
				l.AttentionBytes += t.Bytes()
			}
		}
		if i < len(config.Layers) {
			l.Window = config.Layers[i].Window
		}
		r.Layers = append(r.Layers, l)
	}
	for _, a := range layout.Attention {
		r.Layers[a.Index].KVPerToken = int64(gguf.F16.RowBytes(a.Heads * (a.DimK + a.DimV)))
	}
	for _, s := range layout.Recurrent {
		r.Layers[s.Index].StateBytes = 4 * int64(s.Conv+s.State)
	}
	r.caches(layout, config.ContextTrain)
	return nil
}

// caches fills in what contexts up to the trained length take, for the cache types in use.
func (r *Report) caches(layout kvcache.Layout, trained int) {
	contexts := []int{2048, 8192, 32768, 131072}
	contexts = slices.DeleteFunc(contexts, func(n int) bool { return n >= trained })
	for _, n := range append(contexts, trained) {
		for _, t := range []gguf.Type{gguf.F16, gguf.Q8_0, gguf.Q4_0} {
			p := kvcache.Params{Cells: n, UBatch: 512, Seqs: 1, TypeK: t, TypeV: t}
			if p.Check(layout) != nil {
				continue // heads that do not divide into blocks of the type
			}
			c := Cache{Context: n, Type: t.String()}
			for _, s := range kvcache.Sizes(layout, p) {
				c.Bytes += s.Bytes()
			}
			r.Caches = append(r.Caches, c)
		}
	}
}
