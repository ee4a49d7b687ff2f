// Package engine runs language models in GGUF files on the CPU, with the attention of any set of layers dropped.
//
// A Model is the weights, shared by all its contexts. A Context is a model with one drop mask, one KV layout and one pair
// of cache types, all fixed when it is made; batches of tokens with positions and sequence ids go in, logits come out. A
// dropped layer's attention is never computed and its keys and values are never stored.
//
// The package does not sample, does not format prompts, and knows nothing of campaigns.
package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel"
	"attnbudget/engine/kvcache"
	"attnbudget/engine/model"
	"attnbudget/engine/tokenizer"
)

// Version is bumped whenever a result may change.
const Version = "2"

// ResultVersion is part of every result's key: Version and, if the named kernels do not compute like the ordinary ones, which
// all agree to the bit, their name.
func ResultVersion(kernels string) string {
	if kernels == kernel.Upstream {
		return Version + "+" + kernels
	}
	return Version
}

// Options says how a model is opened.
type Options struct {
	ExpandF32 bool // expand all weights to float32 in memory and compute with them: no activation is rounded
	Threads   int  // of contexts that do not say; 0 = one per processor
}

// Model is an open model. It may be used by several goroutines.
type Model struct {
	file    *gguf.File
	owned   bool // Close closes file
	network model.Network
	options Options
	info    Info

	identity  func() string
	tokenizer func() (*tokenizer.Tokenizer, error)
}

// Info describes a model.
type Info struct {
	Arch         string // general.architecture
	Name         string // general.name, may be empty
	FileType     string // what general.file_type says: "F16", "Q4_K_M"; the commonest type of the matrices where it says nothing
	Params       int64  // elements of all tensors
	Bytes        int64  // of all tensors
	Layers       int    // executed layers
	Embd         int
	Vocab        int
	ContextTrain int
}

// Open maps the GGUF file at path (the first part of a split model) and binds its tensors. Errors name the file, the key or
// tensor, what was expected and what was found; *drop.UnsupportedError is a model that is not run here.
func Open(path string, o Options) (*Model, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := OpenFile(f, o)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m.owned = true
	return m, nil
}

// OpenFile binds the tensors of an open file, which stays the caller's and must outlive the model.
func OpenFile(f *gguf.File, o Options) (*Model, error) {
	n, err := model.Load(f, o.ExpandF32)
	if err != nil {
		return nil, err
	}
	m := &Model{file: f, network: n, options: o, info: describe(f, n.Config())}
	m.identity = sync.OnceValue(func() string { return identity(f, o) })
	m.tokenizer = sync.OnceValues(func() (*tokenizer.Tokenizer, error) { return tokenizer.New(f) })
	return m, nil
}

// Close ends the use of the model; its contexts must be closed before.
func (m *Model) Close() error {
	if !m.owned {
		return nil
	}
	return m.file.Close()
}

// Info describes the model.
func (m *Model) Info() Info { return m.info }

// Path is where the model was opened.
func (m *Model) Path() string { return m.file.Path }

// Roles says what every block of the model is, MTP blocks included. The slice must not be changed.
func (m *Model) Roles() []drop.Role { return m.network.Config().Roles }

// Tokenizer is the model's own, made at the first call.
func (m *Model) Tokenizer() (*tokenizer.Tokenizer, error) { return m.tokenizer() }

// CacheSizes says what the caches of a context would take, without making one.
func (m *Model) CacheSizes(o ContextOptions) ([]kvcache.Size, error) {
	o, mask, err := m.resolve(o)
	if err != nil {
		return nil, err
	}
	layout, params := m.network.Config().Layout(mask), o.params()
	if err := params.Check(layout); err != nil {
		return nil, err
	}
	return kvcache.Sizes(layout, params), nil
}

// Description is what llama-bench calls a model: architecture, size and file type, "llama 8B Q4_K_M".
func (i Info) Description() string {
	return fmt.Sprintf("%s %s %s", i.Arch, sizeLabel(i.Params), i.FileType)
}

func sizeLabel(params int64) string {
	switch n := float64(params); {
	case n >= 10e9:
		return fmt.Sprintf("%.0fB", n/1e9)
	case n >= 1e9:
		return strings.Replace(fmt.Sprintf("%.1fB", n/1e9), ".0B", "B", 1)
	case n >= 1e6:
		return fmt.Sprintf("%.0fM", n/1e6)
	default:
		return fmt.Sprintf("%.0fK", n/1e3)
	}
}

func describe(f *gguf.File, c *model.Config) Info {
	i := Info{Arch: c.Arch, Name: c.Name, FileType: fileType(f), Layers: len(c.Layers), Embd: c.Embd, Vocab: c.Vocab, ContextTrain: c.ContextTrain}
	for _, t := range f.Tensors {
		i.Params += int64(t.Elements())
		i.Bytes += int64(len(t.Data))
	}
	return i
}

// fileTypes names the values of general.file_type that upstream writes for the formats this project reads.
var fileTypes = map[uint64]string{
	0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
	13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 21: "Q2_K_S", 25: "IQ4_NL", 30: "IQ4_XS", 32: "BF16",
}

func fileType(f *gguf.File) string {
	if v, err := f.Uint("general.file_type"); err == nil {
		if name, ok := fileTypes[v]; ok {
			return name
		}
		return fmt.Sprintf("file type %d", v)
	}
	elements := map[gguf.Type]int{}
	most := gguf.F32
	for _, t := range f.Tensors {
		if len(t.Shape) > 1 {
			if elements[t.Type] += t.Elements(); elements[t.Type] > elements[most] {
				most = t.Type
			}
		}
	}
	return most.String()
}
