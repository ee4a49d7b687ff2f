package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

const (
	magic            = "GGUF"
	newestVersion    = 3
	defaultAlignment = 32
	alignmentKey     = "general.alignment"
	maxAlignment     = 1 << 20 // far above any in use; a larger one would only make padding
	maxDims          = 4
	maxKeyBytes      = 1<<16 - 1

	// Least bytes of a metadata entry (key length, type, one byte) and of a tensor entry (name length, dimensions, one
	// extent, type, offset); they bound what a count can claim.
	leastEntry  = 8 + 4 + 1
	leastTensor = 8 + 4 + 8 + 4 + 8
)

// extent is where a tensor's data lie, relative to the start of the data section.
type extent struct {
	tensor *Tensor
	at     int // byte of the file at which the offset is stored
	offset uint64
	bytes  uint64
}

// parse reads one file. The tensors and values it returns are views of b.
func parse(file string, b []byte) (*File, error) {
	c := &cursor{file: file, b: b}
	f := &File{Path: file, size: int64(len(b)), Alignment: defaultAlignment, values: map[string]Value{}, tensors: map[string]*Tensor{}}
	if err := c.header(f); err != nil {
		return nil, err
	}
	tensorsAt := c.off
	tensors, err := c.uint64("number of tensors")
	if err != nil {
		return nil, err
	}
	entries, err := c.count("number of metadata entries", leastEntry)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if err := c.entry(f, i); err != nil {
			return nil, err
		}
	}
	if err := c.room(tensorsAt, "number of tensors", tensors, leastTensor); err != nil {
		return nil, err
	}
	var extents []extent
	for i := range int(tensors) {
		e, err := c.tensor(f, i)
		if err != nil {
			return nil, err
		}
		extents = append(extents, e)
	}
	if err := c.data(extents, f.Alignment); err != nil {
		return nil, err
	}
	return f, nil
}

// header reads the magic number and the version.
func (c *cursor) header(f *File) error {
	m, err := c.take(4, "magic number")
	if err != nil {
		return err
	}
	if string(m) != magic {
		return c.fail(0, "magic number", fmt.Sprintf("%q", magic), fmt.Sprintf("%q: not a GGUF file", m))
	}
	v, err := c.uint32("version")
	if err != nil {
		return err
	}
	const expected = "2 or 3, little endian"
	switch {
	case v == 2 || v == newestVersion:
		f.Version = int(v)
		return nil
	case v == 1:
		return c.fail(4, "version", expected, "1: GGUF version 1; convert it again with current tools")
	case v&0xffff == 0 && v != 0:
		return c.fail(4, "version", expected, fmt.Sprintf("%d in the other byte order: big-endian GGUF; convert it", bits.ReverseBytes32(v)))
	}
	return c.fail(4, "version", expected, fmt.Sprint(v))
}

// entry reads the i-th metadata entry.
func (c *cursor) entry(f *File, i int) error {
	at := c.off
	k, err := c.text(fmt.Sprintf("metadata key %d", i))
	if err != nil {
		return err
	}
	if len(k) > maxKeyBytes {
		return c.fail(at, fmt.Sprintf("length of metadata key %d", i), fmt.Sprintf("at most %d", maxKeyBytes), fmt.Sprint(len(k)))
	}
	key := string(k)
	what := fmt.Sprintf("metadata value %q", key)
	if f.Has(key) {
		return c.fail(at, "metadata keys", "distinct names", fmt.Sprintf("%q twice", key))
	}
	at = c.off
	v, err := c.value(what)
	if err != nil {
		return err
	}
	if key == alignmentKey {
		if f.Alignment, err = alignment(v); err != nil {
			return c.fail(at, what, fmt.Sprintf("a uint32 that is a power of two up to %d", maxAlignment), found(v))
		}
	}
	f.values[key] = v
	f.Keys = append(f.Keys, key)
	return nil
}

// alignment reads the value of general.alignment.
func alignment(v Value) (int, error) {
	if v.kind == Uint32 {
		if n := binary.LittleEndian.Uint32(v.raw); bits.OnesCount32(n) == 1 && n <= maxAlignment {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("alignment must be a uint32 that is a power of two up to %d, not %s", maxAlignment, found(v))
}

// tensor reads the i-th tensor entry and adds the tensor, without its data, to f.
func (c *cursor) tensor(f *File, i int) (extent, error) {
	at := c.off
	n, err := c.text(fmt.Sprintf("name of tensor %d", i))
	if err != nil {
		return extent{}, err
	}
	t := &Tensor{Name: string(n)}
	what := fmt.Sprintf("tensor %q", t.Name)
	if _, ok := f.tensors[t.Name]; ok {
		return extent{}, c.fail(at, "tensor names", "distinct names", fmt.Sprintf("%q twice", t.Name))
	}
	shapeAt := c.off
	if err := c.shape(t, what); err != nil {
		return extent{}, err
	}
	at = c.off
	typ, err := c.uint32("type of " + what)
	if err != nil {
		return extent{}, err
	}
	if t.Type = Type(typ); !t.Type.Known() {
		return extent{}, c.fail(at, "type of "+what, "a tensor type this program reads", t.Type.String())
	}
	if t.Shape[0]%t.Type.BlockSize() != 0 {
		return extent{}, c.fail(shapeAt, "shape of "+what, fmt.Sprintf("rows of a multiple of %d elements, the block of %s", t.Type.BlockSize(), t.Type), fmt.Sprintf("rows of %d", t.Shape[0]))
	}
	e := extent{tensor: t, at: c.off, bytes: uint64(t.Elements()/t.Type.BlockSize()) * uint64(t.Type.BlockBytes())}
	if e.offset, err = c.uint64("offset of " + what); err != nil {
		return extent{}, err
	}
	f.tensors[t.Name] = t
	f.Tensors = append(f.Tensors, t)
	return e, nil
}

// shape reads the extents of a tensor. Their product is kept so small that no size in bytes can overflow: every type
// takes less than 8 bytes an element.
func (c *cursor) shape(t *Tensor, what string) error {
	at := c.off
	dims, err := c.uint32("number of dimensions of " + what)
	if err != nil {
		return err
	}
	if dims == 0 || dims > maxDims {
		return c.fail(at, "number of dimensions of "+what, fmt.Sprintf("1 to %d", maxDims), fmt.Sprint(dims))
	}
	elements := uint64(1)
	for d := range dims {
		at := c.off
		n, err := c.uint64("shape of " + what)
		if err != nil {
			return err
		}
		if n == 0 {
			return c.fail(at, "shape of "+what, "extents of at least 1", fmt.Sprintf("0 in dimension %d", d))
		}
		hi, lo := bits.Mul64(elements, n)
		if hi != 0 || lo > math.MaxInt/8 {
			return c.fail(at, "shape of "+what, "fewer elements than can be addressed", fmt.Sprintf("%d times %d", elements, n))
		}
		elements = lo
		t.Shape = append(t.Shape, int(n))
	}
	return nil
}

// data gives every tensor its bytes, which must be inside the file, aligned and its own.
func (c *cursor) data(extents []extent, alignment int) error {
	if len(extents) == 0 {
		return nil
	}
	start := uint64(c.off) + padding(uint64(c.off), uint64(alignment))
	size := uint64(len(c.b)) - min(start, uint64(len(c.b)))
	for _, e := range extents {
		what := fmt.Sprintf("offset of tensor %q", e.tensor.Name)
		if e.offset%uint64(alignment) != 0 {
			return c.fail(e.at, what, fmt.Sprintf("a multiple of the alignment %d", alignment), fmt.Sprint(e.offset))
		}
		if e.offset > size || e.bytes > size-e.offset {
			return c.fail(e.at, fmt.Sprintf("data of tensor %q", e.tensor.Name), fmt.Sprintf("%d bytes at %d", e.bytes, e.offset),
				fmt.Sprintf("a data section of %d bytes: the file is truncated or corrupt", size))
		}
		from := start + e.offset
		e.tensor.Data = c.b[from : from+e.bytes : from+e.bytes]
	}
	slices.SortStableFunc(extents, func(a, b extent) int { return cmp.Compare(a.offset, b.offset) })
	for i, e := range extents[1:] {
		if before := extents[i]; e.offset < before.offset+before.bytes {
			return c.fail(e.at, fmt.Sprintf("offset of tensor %q", e.tensor.Name), fmt.Sprintf("at least %d, the end of tensor %q", before.offset+before.bytes, before.tensor.Name), fmt.Sprint(e.offset))
		}
	}
	return nil
}

// padding is the number of bytes from n to the next multiple of alignment, a power of two.
func padding(n, alignment uint64) uint64 { return -n & (alignment - 1) }
