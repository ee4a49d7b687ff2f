package gguf

import (
	"encoding/binary"
	"fmt"
)

// cursor walks over the bytes of one file and never past their end.
type cursor struct {
	file string
	b    []byte
	off  int
}

func (c *cursor) left() int { return len(c.b) - c.off }

func (c *cursor) fail(offset int, what, expected, found string) error {
	return &FormatError{File: c.file, Offset: int64(offset), What: what, Expected: expected, Found: found}
}

// take returns the next n bytes.
func (c *cursor) take(n uint64, what string) ([]byte, error) {
	if n > uint64(c.left()) {
		return nil, c.fail(c.off, what, plural(n, "byte"), fmt.Sprintf("the end of the file after %s", plural(uint64(c.left()), "byte")))
	}
	p := c.b[c.off : c.off+int(n)]
	c.off += int(n)
	return p, nil
}

func plural(n uint64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

func (c *cursor) uint32(what string) (uint32, error) {
	p, err := c.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(p), nil
}

func (c *cursor) uint64(what string) (uint64, error) {
	p, err := c.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(p), nil
}

// text reads a length and that many bytes.
func (c *cursor) text(what string) ([]byte, error) {
	n, err := c.uint64("length of " + what)
	if err != nil {
		return nil, err
	}
	return c.take(n, what)
}

// count reads a number of things that take at least size bytes each and refuses more than the rest of the file can hold.
func (c *cursor) count(what string, size int) (int, error) {
	at := c.off
	n, err := c.uint64(what)
	if err != nil {
		return 0, err
	}
	return int(n), c.room(at, what, n, size)
}

// room checks that n things of at least size bytes each, a number stored at offset, fit into the rest of the file.
func (c *cursor) room(offset int, what string, n uint64, size int) error {
	if most := uint64(c.left() / size); n > most {
		return c.fail(offset, what, fmt.Sprintf("at most %d (all that fit into the rest of the file)", most), fmt.Sprint(n))
	}
	return nil
}

// value reads a metadata value: its kind and what follows.
func (c *cursor) value(what string) (Value, error) {
	kind, err := c.kind(what)
	if err != nil {
		return Value{}, err
	}
	start := c.off
	v := Value{kind: kind, elem: kind, n: 1}
	if kind == Array {
		at := c.off
		if v.elem, err = c.kind(what); err != nil {
			return Value{}, err
		}
		if v.elem == Array {
			return Value{}, c.fail(at, what, "an array of numbers, bools or strings", "an array of arrays")
		}
		size := kinds[v.elem].size
		if v.elem == String {
			size = 8
		}
		if v.n, err = c.count("number of elements of "+what, size); err != nil {
			return Value{}, err
		}
	}
	if err := c.elements(v.elem, v.n, what); err != nil {
		return Value{}, err
	}
	v.raw = c.b[start:c.off:c.off]
	return v, nil
}

// elements walks over n elements of a kind and checks them.
func (c *cursor) elements(kind Kind, n int, what string) error {
	switch kind {
	case String:
		for range n {
			if _, err := c.text(what); err != nil {
				return err
			}
		}
	case Bool:
		at := c.off
		p, err := c.take(uint64(n), what)
		if err != nil {
			return err
		}
		for i, b := range p {
			if b > 1 {
				return c.fail(at+i, what, "a bool, 0 or 1", fmt.Sprint(b))
			}
		}
	default:
		_, err := c.take(uint64(n)*uint64(kinds[kind].size), what)
		return err
	}
	return nil
}

func (c *cursor) kind(what string) (Kind, error) {
	at := c.off
	n, err := c.uint32("type of " + what)
	if err != nil {
		return 0, err
	}
	if k := Kind(n); k.known() {
		return k, nil
	}
	return 0, c.fail(at, "type of "+what, fmt.Sprintf("a metadata value type, 0 to %d", len(kinds)-1), fmt.Sprint(n))
}
