package gguf

import (
	"errors"
	"fmt"
	"math"
)

// Has reports whether the metadata has the key.
func (f *File) Has(key string) bool { _, ok := f.values[key]; return ok }

// Value returns the value of a key as stored.
func (f *File) Value(key string) (Value, bool) { v, ok := f.values[key]; return v, ok }

// A converter makes a T of one element; ok is false when the element is of another kind, or out of T's range.
type converter[T any] func(scalar) (v T, ok bool)

func toString(s scalar) (string, bool) { return string(s.text), s.kind == String }
func toBool(s scalar) (bool, bool)     { return s.bits != 0, s.kind == Bool }

func toUint(s scalar) (uint64, bool) {
	switch s.kind {
	case Uint8, Uint16, Uint32, Uint64:
		return s.bits, true
	case Int8, Int16, Int32, Int64:
		return s.bits, int64(s.bits) >= 0
	}
	return 0, false
}

func toInt(s scalar) (int64, bool) {
	switch s.kind {
	case Uint8, Uint16, Uint32, Uint64:
		return int64(s.bits), s.bits <= math.MaxInt64
	case Int8, Int16, Int32, Int64:
		return int64(s.bits), true
	}
	return 0, false
}

func toFloat(s scalar) (float64, bool) { return s.float(), s.kind == Float32 || s.kind == Float64 }

func toFloat32(s scalar) (float32, bool) {
	v, ok := toFloat(s)
	return float32(v), ok
}

// one is the value of a key that must not be an array.
func one[T any](f *File, key, want string, convert converter[T]) (T, error) {
	var none T
	v, ok := f.values[key]
	if !ok {
		return none, &KeyError{File: f.Path, Key: key, Want: want}
	}
	if v.kind != Array {
		for s := range v.scalars() {
			if x, ok := convert(s); ok {
				return x, nil
			}
		}
	}
	return none, &KeyError{File: f.Path, Key: key, Want: want, Found: found(v)}
}

// list is the value of a key that may be an array or one element. It allocates no more than a constant times the bytes
// the value takes in the file.
func list[T any](f *File, key, want string, convert converter[T]) ([]T, error) {
	want = "a list of " + want
	v, ok := f.values[key]
	if !ok {
		return nil, &KeyError{File: f.Path, Key: key, Want: want}
	}
	out := make([]T, 0, v.n)
	for s := range v.scalars() {
		x, ok := convert(s)
		if !ok {
			return nil, &KeyError{File: f.Path, Key: key, Want: want, Found: fmt.Sprintf("%s at index %d of %s", show(s), len(out), v.describe())}
		}
		out = append(out, x)
	}
	return out, nil
}

func found(v Value) string {
	if v.kind == Array {
		return v.describe()
	}
	return v.describe() + " " + v.String()
}

// or turns an absent key into a default.
func or[T any](v T, err error, otherwise T) (T, error) {
	var k *KeyError
	if errors.As(err, &k) && k.Missing() {
		return otherwise, nil
	}
	return v, err
}

// String returns a string. The error of this and every other typed access is a *KeyError.
func (f *File) String(key string) (string, error) { return one(f, key, "a string", toString) }

// Uint returns an integer of any width that is not negative.
func (f *File) Uint(key string) (uint64, error) { return one(f, key, "an unsigned integer", toUint) }

// Int returns an integer of any width that fits an int64.
func (f *File) Int(key string) (int64, error) { return one(f, key, "an integer", toInt) }

// Float returns a float32 or float64.
func (f *File) Float(key string) (float64, error) {
	return one(f, key, "a floating-point number", toFloat)
}

// Bool returns a bool.
func (f *File) Bool(key string) (bool, error) { return one(f, key, "a bool", toBool) }

// StringOr is String with a default for an absent key. A key of another type is still an error, here and in its kin.
func (f *File) StringOr(key, otherwise string) (string, error) {
	v, err := f.String(key)
	return or(v, err, otherwise)
}

// UintOr is Uint with a default for an absent key.
func (f *File) UintOr(key string, otherwise uint64) (uint64, error) {
	v, err := f.Uint(key)
	return or(v, err, otherwise)
}

// IntOr is Int with a default for an absent key.
func (f *File) IntOr(key string, otherwise int64) (int64, error) {
	v, err := f.Int(key)
	return or(v, err, otherwise)
}

// FloatOr is Float with a default for an absent key.
func (f *File) FloatOr(key string, otherwise float64) (float64, error) {
	v, err := f.Float(key)
	return or(v, err, otherwise)
}

// BoolOr is Bool with a default for an absent key.
func (f *File) BoolOr(key string, otherwise bool) (bool, error) {
	v, err := f.Bool(key)
	return or(v, err, otherwise)
}

// Strings returns a list of strings. A single value counts as a list of one, here and in its kin.
func (f *File) Strings(key string) ([]string, error) { return list(f, key, "strings", toString) }

// Uints returns a list of integers that are not negative.
func (f *File) Uints(key string) ([]uint64, error) {
	return list(f, key, "unsigned integers", toUint)
}

// Ints returns a list of integers.
func (f *File) Ints(key string) ([]int64, error) { return list(f, key, "integers", toInt) }

// Floats returns a list of floating-point numbers, rounded to float32.
func (f *File) Floats(key string) ([]float32, error) {
	return list(f, key, "floating-point numbers", toFloat32)
}

// Bools returns a list of bools.
func (f *File) Bools(key string) ([]bool, error) { return list(f, key, "bools", toBool) }
