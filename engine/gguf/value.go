package gguf

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"strings"
)

// Kind is the type of a metadata value. The values are those stored in GGUF files.
type Kind uint32

// Kinds of metadata values.
const (
	Uint8 Kind = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
)

var kinds = [...]struct {
	name string
	size int // bytes of one value; 0 = not fixed
}{
	{"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"uint32", 4}, {"int32", 4}, {"float32", 4},
	{"bool", 1}, {"string", 0}, {"array", 0}, {"uint64", 8}, {"int64", 8}, {"float64", 8},
}

// String is the kind's name: "uint32".
func (k Kind) String() string {
	if k.known() {
		return kinds[k].name
	}
	return fmt.Sprintf("value type %d", uint32(k))
}

func (k Kind) known() bool { return int(k) < len(kinds) }

// Value is one metadata value. It keeps the bytes of the file and decodes them when asked, so that a vocabulary of a
// quarter of a million strings costs nothing until it is read. A Value read from a File is valid until the File is closed.
type Value struct {
	kind Kind
	elem Kind   // of an Array
	n    int    // length of an Array, else 1
	raw  []byte // as stored behind the value's type
}

// arrayHeader is the size of what precedes the elements of an array: their kind and their number.
const arrayHeader = 4 + 8

// ValueOf makes a Value of a Go number, bool or string, or of a slice of them (int and uint are not accepted: the file
// needs to know the width). It panics on any other type.
func ValueOf(v any) Value {
	kind, isArray, n := kindOf(v)
	if !isArray {
		return Value{kind: kind, n: 1, raw: appendValue(nil, v)}
	}
	raw := binary.LittleEndian.AppendUint32(nil, uint32(kind))
	raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
	return Value{kind: Array, elem: kind, n: n, raw: appendValue(raw, v)}
}

func kindOf(v any) (kind Kind, isArray bool, n int) {
	switch v := v.(type) {
	case uint8:
		return Uint8, false, 1
	case int8:
		return Int8, false, 1
	case uint16:
		return Uint16, false, 1
	case int16:
		return Int16, false, 1
	case uint32:
		return Uint32, false, 1
	case int32:
		return Int32, false, 1
	case uint64:
		return Uint64, false, 1
	case int64:
		return Int64, false, 1
	case float32:
		return Float32, false, 1
	case float64:
		return Float64, false, 1
	case bool:
		return Bool, false, 1
	case string:
		return String, false, 1
	case []uint8:
		return Uint8, true, len(v)
	case []int8:
		return Int8, true, len(v)
	case []uint16:
		return Uint16, true, len(v)
	case []int16:
		return Int16, true, len(v)
	case []uint32:
		return Uint32, true, len(v)
	case []int32:
		return Int32, true, len(v)
	case []uint64:
		return Uint64, true, len(v)
	case []int64:
		return Int64, true, len(v)
	case []float32:
		return Float32, true, len(v)
	case []float64:
		return Float64, true, len(v)
	case []bool:
		return Bool, true, len(v)
	case []string:
		return String, true, len(v)
	}
	panic(fmt.Sprintf("gguf: a metadata value cannot be a %T", v))
}

// appendValue appends the stored form of v, one of the types of kindOf.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return appendString(b, v)
	case []string:
		for _, s := range v {
			b = appendString(b, s)
		}
		return b
	}
	b, err := binary.Append(b, binary.LittleEndian, v)
	if err != nil {
		panic("gguf: " + err.Error())
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// Kind is the kind of the value.
func (v Value) Kind() Kind { return v.kind }

// Elem is the kind of the elements of an array, and the kind itself of any other value.
func (v Value) Elem() Kind {
	if v.kind == Array {
		return v.elem
	}
	return v.kind
}

// Len is the number of elements of an array, 1 for any other value.
func (v Value) Len() int { return v.n }

// All yields the elements of an array, or the one value, in order: as string, bool, uint64, int64, float32 or float64.
func (v Value) All() iter.Seq[any] {
	return func(yield func(any) bool) {
		for s := range v.scalars() {
			if !yield(s.any()) {
				return
			}
		}
	}
}

// elements is the stored form of the elements, without the header of an array.
func (v Value) elements() []byte {
	if v.kind == Array {
		return v.raw[arrayHeader:]
	}
	return v.raw
}

// describe says what the value is, for error messages: "uint32", "array of 3 strings".
func (v Value) describe() string {
	if v.kind == Array {
		return fmt.Sprintf("array of %d %s", v.n, v.elem)
	}
	return v.kind.String()
}

// String renders the value for people. Only the first elements of an array and the first bytes of a string are shown.
func (v Value) String() string {
	const most = 8
	if v.kind != Array {
		for s := range v.scalars() {
			return show(s)
		}
	}
	var parts []string
	for s := range v.scalars() {
		if len(parts) == most {
			parts = append(parts, "...")
			break
		}
		parts = append(parts, show(s))
	}
	return fmt.Sprintf("%d %s [%s]", v.n, v.elem, strings.Join(parts, ", "))
}

func show(s scalar) string {
	const most = 120
	if s.kind != String {
		return fmt.Sprint(s.any())
	}
	if len(s.text) > most {
		return fmt.Sprintf("%q...", s.text[:most])
	}
	return fmt.Sprintf("%q", s.text)
}

// scalar is one decoded element: text of a String, else bits (signed kinds sign-extended, floats as IEEE bits).
type scalar struct {
	kind Kind
	bits uint64
	text []byte
}

func (s scalar) float() float64 {
	if s.kind == Float32 {
		return float64(math.Float32frombits(uint32(s.bits)))
	}
	return math.Float64frombits(s.bits)
}

func (s scalar) any() any {
	switch s.kind {
	case String:
		return string(s.text)
	case Bool:
		return s.bits != 0
	case Float32:
		return math.Float32frombits(uint32(s.bits))
	case Float64:
		return math.Float64frombits(s.bits)
	case Int8, Int16, Int32, Int64:
		return int64(s.bits)
	}
	return s.bits
}

// scalars yields the elements in order. The bytes have been checked when the value was made or read.
func (v Value) scalars() iter.Seq[scalar] {
	return func(yield func(scalar) bool) {
		b, kind := v.elements(), v.Elem()
		for range v.n {
			s := scalar{kind: kind}
			if kind == String {
				end := 8 + binary.LittleEndian.Uint64(b)
				s.text, b = b[8:end], b[end:]
			} else {
				size := kinds[kind].size
				s.bits, b = number(kind, b[:size]), b[size:]
			}
			if !yield(s) {
				return
			}
		}
	}
}

func number(k Kind, b []byte) uint64 {
	le := binary.LittleEndian
	switch k {
	case Uint8, Bool:
		return uint64(b[0])
	case Int8:
		return uint64(int64(int8(b[0])))
	case Uint16:
		return uint64(le.Uint16(b))
	case Int16:
		return uint64(int64(int16(le.Uint16(b))))
	case Uint32, Float32:
		return uint64(le.Uint32(b))
	case Int32:
		return uint64(int64(int32(le.Uint32(b))))
	}
	return le.Uint64(b)
}
