package engine

import (
	"fmt"

	"attnbudget/engine/drop"
	"attnbudget/engine/kernel"
	"attnbudget/engine/model"
)

// Variants computes the same tokens under several masks in one pass over the weights, for whoever compares masks: what the
// masks have in common is computed once. Its results are those of contexts with these masks, one after the other. It belongs to
// one goroutine.
type Variants struct {
	model  *Model
	pool   *kernel.Pool
	pass   *model.Variants
	tokens int
	most   int
}

// VariantsOptions fixes Variants.
type VariantsOptions struct {
	Tokens  int // length of the sequence, at least 1; the results are a context's to the bit when it is a multiple of 256
	Masks   int // most masks of one pass, 1 to kvcache.MaxSeqs
	Threads int // default: Options.Threads
}

// NewVariants allocates caches and scratch memory for Tokens x Masks tokens. Close it.
func (m *Model) NewVariants(o VariantsOptions) (*Variants, error) {
	if o.Tokens < 1 || o.Masks < 1 {
		return nil, fmt.Errorf("variants: expected at least 1 token and 1 mask, found %d and %d", o.Tokens, o.Masks)
	}
	if o.Threads == 0 {
		o.Threads = m.options.Threads
	}
	pool := kernel.NewPool(o.Threads)
	pass, err := model.NewVariants(m.network, pool, o.Tokens, o.Masks)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &Variants{model: m, pool: pool, pass: pass, tokens: o.Tokens, most: o.Masks}, nil
}

// Close ends the workers and lets the memory go.
func (v *Variants) Close() error {
	v.pool.Close()
	v.pass = nil
	return nil
}

// Masks is the most masks of one pass.
func (v *Variants) Masks() int { return v.most }

// Pool is where the work is done; it may be used between calls.
func (v *Variants) Pool() *kernel.Pool { return v.pool }

// Replace makes surrogates stand in for the attention that masks drop, until the next call; nil = none.
func (v *Variants) Replace(s *Surrogates) {
	if s == nil {
		v.pass.Replace(nil)
		return
	}
	v.pass.Replace(s.layers)
}

// OnBranch makes f be shown what the token mixing of every layer reads and what it adds to the residual stream: h and y
// [len(tokens)][Embd], rows of the given tokens, of which token t is at position t mod Tokens. nil = nobody.
func (v *Variants) OnBranch(f func(layer int, tokens []int, h, y []float32)) { v.pass.OnBranch = f }

// Run computes tokens from position 0 on under each of masks, which must be valid for the model and differ. It returns the
// hidden states of the output positions, ascending, before the output projection: [len(masks)][len(outputs)][Embd], valid until the
// next Run. It panics on sizes that the options do not allow.
func (v *Variants) Run(tokens []int32, outputs []int, masks []drop.Mask) []float32 {
	return v.pass.Run(tokens, outputs, masks)
}

// Logits computes the logits dst [n][Vocab] of n of the hidden states that Run returned, at most Tokens x Masks.
func (v *Variants) Logits(dst, hidden []float32) { v.pass.Project(dst, hidden) }
