package calibrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"attnbudget/engine"
	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/model"
)

// SurrogateKind is what stands in for a dropped branch.
type SurrogateKind string

// The kinds.
const (
	NoSurrogate     SurrogateKind = ""
	MeanSurrogate   SurrogateKind = "mean"   // the branch's mean output
	LinearSurrogate SurrogateKind = "linear" // a linear function of its normed input
)

// ParseSurrogateKind reads the name of a kind; "none" is no surrogate.
func ParseSurrogateKind(s string) (SurrogateKind, error) {
	switch k := SurrogateKind(s); k {
	case MeanSurrogate, LinearSurrogate:
		return k, nil
	case "none", NoSurrogate:
		return NoSurrogate, nil
	}
	return "", fmt.Errorf("unknown surrogate %q: expected none, mean or linear", s)
}

// SurrogatePlan says which surrogates are fitted and what for.
type SurrogatePlan struct {
	Kind   SurrogateKind `json:"kind"`
	Rank   int           `json:"rank"`   // of linear ones; default 32
	Search bool          `json:"search"` // masks are searched and measured with them
}

// SurrogateResult is what surrogates fitted for one mask are worth.
type SurrogateResult struct {
	Kind      SurrogateKind    `json:"kind"`
	Rank      int              `json:"rank,omitempty"`
	Mask      string           `json:"mask"`
	Plain     Damage           `json:"plain"` // held-out damage of the mask alone
	With      Damage           `json:"with"`  // and with the surrogates
	Gain      Estimate         `json:"gain"`  // NLL of plain less that of with, paired, nats
	Explained []LayerFit       `json:"explained"`
	File      string           `json:"file,omitempty"` // name of the file they are in; none when they would do harm
	Hash      string           `json:"hash,omitempty"`
	Layers    model.Surrogates `json:"-"`
}

// LayerFit says how well a surrogate reproduces its branch.
type LayerFit struct {
	Layer int     `json:"layer"`
	Share float64 `json:"share"` // of the sum of squares of the branch's output, on text that the fit has not seen
}

// fitter collects what branches do.
type fitter struct {
	c      *calibration
	chunks []int
	h, y   []float64
}

func (c *calibration) fitter() *fitter {
	most := fitChunks(len(c.search), c.Model.Info().Embd, c.Settings.NCtx)
	return &fitter{c: c, chunks: spread(0, len(c.corpus.chunks)/2, most)}
}

// fitChunks is on how many chunks surrogates are fitted at most: at least 16 positions for every dimension, from the half of the
// text that the held-out split is not in.
func fitChunks(search, embd, nctx int) int { return max(search, 16*embd/nctx) }

// observe runs the fit's text under mask and returns the moments of the given layers: from four fifths of the chunks, and from the
// last fifth.
func (f *fitter) observe(ctx context.Context, mask drop.Mask, layers []int) (seen, unseen map[int]*moments, err error) {
	c := f.c
	embd, linear := c.Model.Info().Embd, c.Surrogate.Kind == LinearSurrogate
	seen, unseen = map[int]*moments{}, map[int]*moments{}
	for _, l := range layers {
		seen[l], unseen[l] = newMoments(embd, linear), newMoments(embd, linear)
	}
	defer c.variants.OnBranch(nil)
	for i, chunk := range f.chunks {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		into := seen
		if i >= len(f.chunks)*4/5 {
			into = unseen
		}
		c.variants.OnBranch(func(layer int, tokens []int, h, y []float32) {
			if m := into[layer]; m != nil {
				f.add(m, tokens, h, y)
			}
		})
		all := make([]int, c.Settings.NCtx)
		for p := range all {
			all[p] = p
		}
		c.variants.Run(c.corpus.chunks[chunk], all, []drop.Mask{mask})
	}
	return seen, unseen, nil
}

// add takes in all positions but the first.
func (f *fitter) add(m *moments, tokens []int, h, y []float32) {
	embd := len(m.h)
	f.h, f.y = f.h[:0], f.y[:0]
	for i, t := range tokens {
		if t%f.c.Settings.NCtx == 0 {
			continue
		}
		for j := i * embd; j < (i+1)*embd; j++ {
			f.h, f.y = append(f.h, float64(h[j])), append(f.y, float64(y[j]))
		}
	}
	m.add(f.h, f.y)
}

// momentBytes bounds the memory of the moments that are collected at once.
const momentBytes = 2 << 30

// alone fits a surrogate for each of layers in the undropped model.
func (f *fitter) alone(ctx context.Context, layers []int) (model.Surrogates, error) {
	embd := f.c.Model.Info().Embd
	out := model.Surrogates{}
	for some := range slices.Chunk(layers, max(1, momentBytes/(32*embd*embd))) {
		seen, unseen, err := f.observe(ctx, drop.Mask{}, some)
		if err != nil {
			return nil, err
		}
		for _, l := range some {
			fitted, _, err := best(seen[l], unseen[l], f.c.Surrogate.Rank)
			if err != nil {
				return nil, fmt.Errorf("layer %d: %w", l, err)
			}
			out[l] = fitted.surrogate()
		}
	}
	return out, nil
}

// together fits surrogates for the layers of mask, from the first on, each with those before it in place.
func (f *fitter) together(ctx context.Context, mask drop.Mask) (model.Surrogates, []LayerFit, error) {
	out, shares := model.Surrogates{}, []LayerFit{}
	defer f.c.variants.Replace(nil)
	var before []int
	for _, l := range mask.Layers() {
		below, err := drop.Resolve(f.c.Model.Roles(), before)
		if err != nil {
			// An owner goes before its consumers, which cannot stay without it: they are observed in the undropped model.
			below = drop.Mask{}
		}
		f.c.variants.Replace(engine.NewSurrogates(below, out))
		seen, unseen, err := f.observe(ctx, below, []int{l})
		if err != nil {
			return nil, nil, err
		}
		fitted, share, err := best(seen[l], unseen[l], f.c.Surrogate.Rank)
		if err != nil {
			return nil, nil, fmt.Errorf("layer %d: %w", l, err)
		}
		out[l] = fitted.surrogate()
		shares = append(shares, LayerFit{l, share})
		before = append(before, l)
	}
	return out, shares, nil
}

// library fits what masks are searched with, one surrogate a layer, makes it stand in, and returns its hash.
func (c *calibration) library(ctx context.Context) (string, error) {
	if !c.Surrogate.Search || c.Surrogate.Kind == NoSurrogate {
		return "", nil
	}
	var layers []int
	for l, r := range c.Model.Roles() {
		if r.Attends() {
			layers = append(layers, l)
		}
	}
	s, err := c.fitter().alone(ctx, layers)
	if err != nil {
		return "", err
	}
	c.standing = engine.NewSurrogates(drop.Mask{}, s)
	c.variants.Replace(c.standing)
	return hashLayers(s), nil
}

func hashLayers(s model.Surrogates) string {
	h := sha256.New()
	for _, l := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintln(h, l)
		_ = binary.Write(h, binary.LittleEndian, s[l].Bias)
		h.Write(s[l].Down.Data)
		h.Write(s[l].Up.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Fit fits surrogates for mask on the first half of the job's text and measures them, and the mask without them, on the
// held-out split.
func Fit(ctx context.Context, job Job, mask drop.Mask) (*SurrogateResult, error) {
	job.Journal, job.Surrogate.Search = "", false
	c, err := open(ctx, job)
	if err != nil {
		return nil, err
	}
	r, err := c.fit(ctx, mask)
	return r, errors.Join(err, c.close())
}

func (c *calibration) fit(ctx context.Context, mask drop.Mask) (*SurrogateResult, error) {
	defer c.variants.Replace(c.standing)
	layers, shares, err := c.fitter().together(ctx, mask)
	if err != nil {
		return nil, err
	}
	plain, err := c.heldoutWith(ctx, nil, mask)
	if err != nil {
		return nil, err
	}
	with, err := c.heldoutWith(ctx, engine.NewSurrogates(mask, layers), mask)
	if err != nil {
		return nil, err
	}
	r := &SurrogateResult{
		Kind: c.Surrogate.Kind, Mask: mask.Canonical(), Plain: damage(plain), With: damage(with),
		Gain: paired(NLL.all(plain), NLL.all(with)), Explained: shares, Layers: layers,
	}
	if r.Kind == LinearSurrogate {
		r.Rank = c.Surrogate.Rank
	}
	return r, nil
}

// heldoutWith measures mask on the held-out split with surrogates, which the journal knows nothing of.
func (c *calibration) heldoutWith(ctx context.Context, s *engine.Surrogates, mask drop.Mask) ([]Score, error) {
	c.variants.Replace(s)
	t := newMeter(c.Model, c.variants, c.corpus, &journal{known: map[place]entry{}})
	t.base = c.meter.base
	scores, err := newLedger(t.measure).score(ctx, []drop.Mask{mask}, c.heldout)
	if err != nil {
		return nil, err
	}
	return scores[0], nil
}

// standIns fits surrogates for the masks of the profiles and writes those that do no harm.
func (c *calibration) standIns(ctx context.Context, r *Report) error {
	if c.Surrogate.Kind == NoSurrogate {
		return nil
	}
	done := map[string]*SurrogateResult{}
	for i := range r.Profiles {
		p := &r.Profiles[i]
		if done[p.Mask] == nil {
			c.bar.begin("surrogates for "+p.Name, 0, 0)
			mask, err := drop.Resolve(c.Model.Roles(), p.Layers)
			if err != nil {
				return err
			}
			s, err := c.fit(ctx, mask)
			if err != nil {
				return err
			}
			if err := c.store(s, p.Name); err != nil {
				return err
			}
			done[p.Mask] = s
		}
		if p.Surrogate = done[p.Mask]; p.Surrogate.File != "" {
			p.Flags += " --attention-surrogate " + p.Surrogate.File
		}
	}
	return nil
}

// store writes s for a profile, if it is to be written.
func (c *calibration) store(s *SurrogateResult, profile string) error {
	if c.SurrogateFile == nil || !s.Helps() {
		return nil
	}
	name := c.SurrogateFile(profile)
	path := name
	if !filepath.IsAbs(name) {
		path = filepath.Join(c.SurrogateFolder, name)
	}
	if err := s.Write(path, c.Fingerprint); err != nil {
		return err
	}
	stored, err := c.Model.OpenSurrogates(path, c.Fingerprint)
	if err != nil {
		return err
	}
	s.File, s.Hash = name, stored.Hash()
	return nil
}

// Helps reports whether the surrogates do no harm on the held-out split; those that do are not to be written.
func (r *SurrogateResult) Helps() bool { return r.Gain.Mean >= 0 }

// Write stores the surrogates in a GGUF file bound to the model's fingerprint and to the mask (docs/format/calibration.md).
func (r *SurrogateResult) Write(path, fingerprint string) (err error) {
	w, err := gguf.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Abort()) }()
	layers := slices.Sorted(maps.Keys(r.Layers))
	list := make([]int32, len(layers))
	for i, l := range layers {
		list[i] = int32(l)
	}
	for _, kv := range []struct {
		key   string
		value any
	}{
		{"general.architecture", "attention-surrogate"}, {"general.type", "surrogate"},
		{engine.SurrogateSchemaKey, engine.SurrogateSchema}, {engine.SurrogateModelKey, fingerprint}, {engine.SurrogateLayersKey, list},
		{"attnbudget.surrogate.kind", string(r.Kind)},
	} {
		if err := w.Set(kv.key, gguf.ValueOf(kv.value)); err != nil {
			return err
		}
	}
	tensors := r.tensors(layers)
	for _, t := range tensors {
		if err := w.Add(t.Name, t.Type, t.Shape); err != nil {
			return err
		}
	}
	for _, t := range tensors {
		if err := w.Data(t.Name, t.Data); err != nil {
			return err
		}
	}
	return w.Finish()
}

func (r *SurrogateResult) tensors(layers []int) []gguf.Tensor {
	var out []gguf.Tensor
	for _, l := range layers {
		s := r.Layers[l]
		bias, down, up := engine.SurrogateTensors(l)
		out = append(out, gguf.Tensor{Name: bias, Type: gguf.F32, Shape: []int{len(s.Bias)}, Data: floatBytes(s.Bias)})
		if s.Down.Rows > 0 {
			out = append(out,
				gguf.Tensor{Name: down, Type: gguf.F32, Shape: []int{s.Down.Cols, s.Down.Rows}, Data: s.Down.Data},
				gguf.Tensor{Name: up, Type: gguf.F32, Shape: []int{s.Up.Cols, s.Up.Rows}, Data: s.Up.Data})
		}
	}
	return out
}
