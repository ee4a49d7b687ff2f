package engine

import (
	"context"
	"fmt"
	"math"
	"strings"

	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel"
	"attnbudget/engine/kvcache"
	"attnbudget/engine/model"
)

// CacheF32 asks for a cache of float32. It has a name of its own because gguf.F32 is the zero value, which means the
// default here.
const CacheF32 gguf.Type = math.MaxUint32

// CacheTypes are the names of the cache types as users write them.
var CacheTypes = []string{"f32", "f16", "q8_0", "q4_0"}

// ParseCacheType reads the name of a cache type, as in upstream's -ctk and -ctv.
func ParseCacheType(name string) (gguf.Type, error) {
	switch strings.ToLower(name) {
	case "f32":
		return CacheF32, nil
	case "f16":
		return gguf.F16, nil
	case "q8_0":
		return gguf.Q8_0, nil
	case "q4_0":
		return gguf.Q4_0, nil
	}
	return 0, fmt.Errorf("unknown KV cache type %q: expected one of %s", name, strings.Join(CacheTypes, ", "))
}

// ContextOptions fixes a context. A zero field takes its default.
type ContextOptions struct {
	NCtx         int         // cells of the cache, shared by all sequences, rounded up to a multiple of 256; default: what the model was trained for
	NBatch       int         // most tokens that Decode hands to the cache as one; default 2048
	NUBatch      int         // tokens computed at once; default 512, never more than NBatch
	NSeqMax      int         // sequences, at most kvcache.MaxSeqs; default 1
	TypeK, TypeV gguf.Type   // CacheF32, F16, Q8_0 or Q4_0; default F16
	FullWindow   bool        // sliding-window layers keep all positions, as upstream's --swa-full makes them; default: as many as the window needs
	Mask         []int       // layers whose attention is dropped
	Surrogates   *Surrogates // stand in for the attention of exactly that mask; nil = nothing does
	Threads      int         // default: Options.Threads
}

// params are the options of the caches; o is resolved.
func (o ContextOptions) params() kvcache.Params {
	return kvcache.Params{
		Cells: o.NCtx, UBatch: o.NUBatch, Seqs: o.NSeqMax, TypeK: o.TypeK, TypeV: o.TypeV,
		Rotate: kvcache.RotationEnabled(), FullWindow: o.FullWindow,
	}
}

// resolve fills in the defaults and checks the mask.
func (m *Model) resolve(o ContextOptions) (ContextOptions, drop.Mask, error) {
	for _, n := range []struct {
		name  string
		value *int
		def   int
	}{
		{"NCtx", &o.NCtx, m.info.ContextTrain}, {"NBatch", &o.NBatch, 2048}, {"NUBatch", &o.NUBatch, 512},
		{"NSeqMax", &o.NSeqMax, 1}, {"Threads", &o.Threads, m.options.Threads},
	} {
		if *n.value < 0 || *n.value > math.MaxInt32-256 {
			return o, drop.Mask{}, fmt.Errorf("context option %s: expected 0 to %d, found %d", n.name, math.MaxInt32-256, *n.value)
		}
		if *n.value == 0 {
			*n.value = n.def
		}
	}
	o.NCtx = (o.NCtx + 255) / 256 * 256
	o.NUBatch = min(o.NUBatch, o.NBatch)
	o.TypeK, o.TypeV = cacheType(o.TypeK), cacheType(o.TypeV)
	mask, err := drop.Resolve(m.Roles(), o.Mask)
	return o, mask, err
}

func cacheType(t gguf.Type) gguf.Type {
	switch t {
	case 0:
		return gguf.F16
	case CacheF32:
		return gguf.F32
	}
	return t
}

// Context is one use of a model. It belongs to one goroutine.
type Context struct {
	model   *Model
	options ContextOptions // resolved
	mask    drop.Mask
	pool    *kernel.Pool
	memory  *kvcache.Memory
	pass    *model.Pass

	seqs    []kvcache.SeqSet // of the tokens of a batch
	pos     []int32
	outputs []int // of the ubatch in progress
	logits  []float32
	logitOf []int // row of logits of every token of the last batch, -1 = none
}

// NewContext allocates the caches and the scratch memory of a context. Close it. Errors: *drop.Error for the mask,
// *MemoryError for what the machine cannot hold, otherwise what is wrong with which option.
func (m *Model) NewContext(o ContextOptions) (*Context, error) {
	o, mask, err := m.resolve(o)
	if err != nil {
		return nil, err
	}
	if err := o.Surrogates.fits(mask); err != nil {
		return nil, err
	}
	if err := m.checkMemory(o, mask); err != nil {
		return nil, err
	}
	memory, err := kvcache.New(m.network.Config().Layout(mask), o.params())
	if err != nil {
		return nil, err
	}
	pool := kernel.NewPool(o.Threads)
	o.Threads = pool.Threads()
	c := &Context{
		model: m, options: o, mask: mask, pool: pool, memory: memory,
		pass:    model.NewPass(m.network, pool, mask, memory, o.NUBatch),
		outputs: make([]int, 0, o.NUBatch),
	}
	if o.Surrogates != nil {
		c.pass.Replace(o.Surrogates.layers)
	}
	return c, nil
}

// Close ends the context's workers and lets its memory go.
func (c *Context) Close() error {
	c.pool.Close()
	c.memory, c.pass, c.logits = nil, nil, nil
	return nil
}

// NCtx is the number of cells, NBatch, NUBatch, NSeqMax and Threads are what the options were resolved to.
func (c *Context) NCtx() int { return c.options.NCtx }

// NBatch is the resolved option.
func (c *Context) NBatch() int { return c.options.NBatch }

// NUBatch is the resolved option.
func (c *Context) NUBatch() int { return c.options.NUBatch }

// NSeqMax is the resolved option.
func (c *Context) NSeqMax() int { return c.options.NSeqMax }

// Threads is the number of workers.
func (c *Context) Threads() int { return c.options.Threads }

// TypeK is the type of the key cache.
func (c *Context) TypeK() gguf.Type { return c.options.TypeK }

// TypeV is the type of the value cache.
func (c *Context) TypeV() gguf.Type { return c.options.TypeV }

// Mask is the set of layers whose attention is dropped.
func (c *Context) Mask() drop.Mask { return c.mask }

// Model is the model of the context.
func (c *Context) Model() *Model { return c.model }

// Caches lists the physical caches and what they take.
func (c *Context) Caches() []kvcache.Size { return c.memory.Sizes() }

// Decode computes a batch of any length, NUBatch tokens at a time, and keeps the logits of those tokens that want them. Errors:
// *BatchError when the batch makes no sense and kvcache.ErrFull when it does not fit, both with nothing computed; ctx's
// when it ended, with the tokens before that computed and stored. Where the mask leaves only layers with a sliding window, a
// cache that is shorter than the window and NUBatch together may be found full between physical batches, like ctx's end.
func (c *Context) Decode(ctx context.Context, b *Batch) error {
	c.logitOf = c.logitOf[:0]
	if err := c.admit(b); err != nil {
		return err
	}
	if err := c.memory.Room(len(b.Tokens)); err != nil {
		return err
	}
	for from := 0; from < len(b.Tokens); from += c.options.NBatch {
		to := min(from+c.options.NBatch, len(b.Tokens))
		for start := from; start < to; start += c.options.NUBatch {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.compute(b, start, min(start+c.options.NUBatch, to)); err != nil {
				return err
			}
		}
	}
	return nil
}

// compute computes the tokens [from, to) of an admitted batch.
func (c *Context) compute(b *Batch, from, to int) error {
	if err := c.memory.Place(c.pos[from:to], c.seqs[from:to]); err != nil {
		return err
	}
	vocab := c.model.info.Vocab
	row := len(c.logits) / vocab
	c.outputs = c.outputs[:0]
	for i := from; i < to; i++ {
		if !b.wants(i) {
			c.logitOf = append(c.logitOf, -1)
			continue
		}
		c.logitOf = append(c.logitOf, row+len(c.outputs))
		c.outputs = append(c.outputs, i-from)
	}
	c.logits = extend(c.logits, len(c.outputs)*vocab)
	c.pass.Run(b.Tokens[from:to], c.pos[from:to], c.outputs, c.logits[row*vocab:])
	return nil
}

// extend makes s longer by n elements of any value.
func extend(s []float32, n int) []float32 {
	if len(s)+n <= cap(s) {
		return s[:len(s)+n]
	}
	return append(s, make([]float32, n)...)
}

// Logits are those of token i of the last Decode, [Vocab]. They are valid until the next Decode. It panics when the token
// did not want logits or does not exist.
func (c *Context) Logits(i int) []float32 {
	if i < 0 || i >= len(c.logitOf) || c.logitOf[i] < 0 {
		panic(fmt.Sprintf("engine: the logits of token %d were not asked for in the last batch of %d tokens", i, len(c.logitOf)))
	}
	vocab := c.model.info.Vocab
	return c.logits[c.logitOf[i]*vocab:][:vocab:vocab]
}

// Clear forgets everything.
func (c *Context) Clear() { c.memory.Clear() }

// SeqCopy makes the positions p0 <= p < p1 of sequence src belong to dst as well, without copying keys and values; a
// negative p1 is the end. The error, kvcache.ErrHistory, says that dst could not go on from there: a recurrent state is copied
// whole, in place of dst's own, and a sliding window may have moved on.
func (c *Context) SeqCopy(src, dst int32, p0, p1 int32) error {
	c.checkSeq(src)
	c.checkSeq(dst)
	return c.memory.Copy(src, dst, p0, p1)
}

// SeqRemove forgets the positions p0 <= p < p1 of a sequence; a negative p1 is the end. The error, kvcache.ErrHistory, says
// that the sequence could not go on from there: a recurrent state cannot go back, nor can a sliding window that has moved on.
func (c *Context) SeqRemove(seq, p0, p1 int32) error {
	c.checkSeq(seq)
	return c.memory.Remove(seq, p0, p1)
}

// SeqLast is the greatest position held of a sequence, -1 when it is empty.
func (c *Context) SeqLast(seq int32) int32 {
	c.checkSeq(seq)
	return c.memory.Last(seq)
}

func (c *Context) checkSeq(seq int32) {
	if seq < 0 || int(seq) >= c.options.NSeqMax {
		panic(fmt.Sprintf("engine: sequence %d of a context with %d sequences", seq, c.options.NSeqMax))
	}
}
