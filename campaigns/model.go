package campaigns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"attnbudget/campaigns/fetch"
	"attnbudget/engine"
	"attnbudget/engine/builtin"
	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
	"attnbudget/engine/source"
	"attnbudget/plan"
)

// Formats lists the weight formats that a campaign may name.
func Formats() []string { return quant.MixNames() }

// KVTypes lists the types that the keys and values of a cache may have.
func KVTypes() []string { return []string{"f16", "f32", "q8_0", "q4_0"} }

// model is what a campaign needs to know of a GGUF file. It stays open as long as the campaign, mapped and not read.
type model struct {
	plan.Model
	file   *gguf.File
	engine *engine.Model
	sizes  map[string]int64 // bytes by format
	stands map[string]standIn
}

// standIn is a surrogate file that has been opened for the model, or why it cannot be.
type standIn struct {
	surrogates *engine.Surrogates
	err        error
}

// openSurrogates reads a surrogate file once.
func (m *model) openSurrogates(path string) (*engine.Surrogates, error) {
	s, known := m.stands[path]
	if !known {
		s.surrogates, s.err = m.engine.OpenSurrogates(path, m.Fingerprint)
		m.stands[path] = s
	}
	return s.surrogates, s.err
}

// attending is the number of layers with attention.
func (m *model) attending() int {
	n := 0
	for _, role := range m.engine.Roles() {
		if role.Attends() {
			n++
		}
	}
	return n
}

func (m *model) close() error { return errors.Join(m.engine.Close(), m.file.Close()) }

// openModel opens a model of the campaign; nil when that fails, with the reason noted.
func (c *Campaign) openModel(ctx context.Context, named NamedModel) *model {
	p := at("models", named.Name)
	m := &model{sizes: map[string]int64{}, stands: map[string]standIn{}}
	m.Name, m.Source = named.Name, named.Source.Path
	remote, err := c.fetched(named.Source)
	switch {
	case err != nil: // noted when the campaign was checked, unless the formats were wrong
		return nil
	case remote != nil:
		if m.Path, err = fetch.Find(remote); m.Path == "" && err == nil {
			c.noteMissing(p, remote)
			return nil
		}
	case !builtin.IsName(m.Source):
		m.Path = c.resolvePath(m.Source)
	}
	if err == nil {
		err = m.openFile(ctx)
	}
	if err != nil {
		c.noteModel(p, named.Source.Path, err)
		return nil
	}
	if m.engine, err = engine.OpenFile(m.file, engine.Options{}); err != nil {
		c.noteModel(p, named.Source.Path, errors.Join(err, m.file.Close()))
		return nil
	}
	m.Format, m.Vocab = m.engine.Info().FileType, m.engine.Info().Vocab
	if want := string(named.Source.SHA256); want != "" && want != m.Fingerprint {
		hint := "check that it is the file you mean; if it is, write this hash"
		if remote != nil {
			hint = fmt.Sprintf("the copy in the cache is not what was fetched: delete %s and fetch it again", filepath.Dir(m.Path))
		}
		c.doc.wrong(p.key("sha256"), hint, "the file has the SHA-256 %s", m.Fingerprint)
	}
	return m
}

func (m *model) openFile(ctx context.Context) (err error) {
	name := cmp.Or(m.Path, m.Source)
	if m.file, err = source.File(name); err != nil {
		return err
	}
	m.Bytes = m.file.Size()
	if m.Fingerprint, err = source.Fingerprint(ctx, name); err != nil {
		return errors.Join(err, m.file.Close())
	}
	return nil
}

// noteModel says why a model could not be opened. Known reasons get words of their own; the engine's messages name the
// absolute path, which is cut to what the campaign says.
func (c *Campaign) noteModel(p path, source string, err error) {
	var format *gguf.FormatError
	var unsupported *drop.UnsupportedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.doc.wrong(p, "paths start from the folder of the campaign file", "there is no model file %s", source)
	case errors.As(err, &format):
		c.doc.wrong(p, "models must be GGUF files", "%s cannot be read as GGUF: %s", source, c.shorten(err, source))
	case errors.As(err, &unsupported):
		c.doc.wrong(p, "", "%s", c.shorten(err, source))
	default:
		c.doc.wrong(p, "", "the model %s cannot be used: %s", source, c.shorten(err, source))
	}
}

// shorten turns absolute paths in an error into the source as the campaign writes it.
func (c *Campaign) shorten(err error, source string) string {
	text := strings.ReplaceAll(err.Error(), c.resolvePath(source), source)
	return strings.ReplaceAll(text, c.folder+string(filepath.Separator), "")
}

// bytes is the size of the weights in a format, by the same rules as the quantiser's.
func (m *model) bytes(format string) (int64, error) {
	if format == m.Format {
		return m.Bytes, nil
	}
	if size, known := m.sizes[format]; known {
		return size, nil
	}
	mix, err := quant.ParseMix(format)
	if err != nil {
		return 0, err
	}
	choices, err := mix.Choose(m.file, false)
	if err != nil {
		return 0, err
	}
	var size int64
	for _, choice := range choices {
		size += choice.Bytes()
	}
	m.sizes[format] = size
	return size, nil
}

// quantised reports the first tensor that is already quantised; empty for a model in floating point.
func (m *model) quantised() string {
	for _, t := range m.file.Tensors {
		if !slices.Contains([]gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.I32}, t.Type) {
			return fmt.Sprintf("%s is %s", t.Name, t.Type)
		}
	}
	return ""
}

// context are the options of a context for an arm.
func contextOptions(arm plan.Arm, cells int) (engine.ContextOptions, error) {
	k, err := gguf.ParseType(strings.ToUpper(arm.TypeK))
	if err != nil {
		return engine.ContextOptions{}, err
	}
	v, err := gguf.ParseType(strings.ToUpper(arm.TypeV))
	return engine.ContextOptions{
		NCtx: cells, NBatch: batch, NUBatch: ubatch, NSeqMax: 1,
		TypeK: k, TypeV: v, Mask: arm.Mask.Layers, Threads: 1,
	}, err
}

// caches is the size of an arm's caches for so many cells. The error says which combination the model does not allow.
func (m *model) caches(arm plan.Arm, cells int) (int64, error) {
	o, err := contextOptions(arm, cells)
	if err != nil {
		return 0, err
	}
	sizes, err := m.engine.CacheSizes(o)
	var sum int64
	for _, s := range sizes {
		sum += s.Bytes()
	}
	return sum, err
}

// cacheBytes is caches for an arm that has been checked.
func (m *model) cacheBytes(arm plan.Arm, cells int) int64 {
	size, err := m.caches(arm, cells)
	if err != nil {
		panic(fmt.Sprintf("campaigns: the caches of the checked arm %s: %v", arm.Name, err))
	}
	return size
}
