package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// File is an open GGUF file, or several that together are one model. Its tensors are views of mapped memory: they are
// valid until Close, and changing or truncating the file while it is open makes reading them fault.
type File struct {
	Path      string // of the first part
	Version   int    // 2 or 3
	Alignment int    // of tensor data, in bytes
	Keys      []string
	Tensors   []*Tensor

	values  map[string]Value
	tensors map[string]*Tensor
	parts   []string
	size    int64
	unmap   []func() error
}

// Tensor is one named array of numbers.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int  // ggml order: Shape[0] elements are contiguous, a row
	Data  []byte // rows in blocks of Type, one after the other; must not be written to
}

// Entry is one metadata key with its value.
type Entry struct {
	Key   string
	Value Value
}

// NewFile describes a model that is in no file: its metadata and its tensors, whose Data may be nil. name stands for the path in
// messages. Repeated names are an error.
func NewFile(name string, entries []Entry, tensors []*Tensor) (*File, error) {
	f := &File{Path: name, Version: newestVersion, Alignment: defaultAlignment, Tensors: tensors, values: map[string]Value{}, tensors: map[string]*Tensor{}}
	for _, e := range entries {
		if f.Has(e.Key) {
			return nil, fmt.Errorf("%s: metadata key %q twice", name, e.Key)
		}
		f.values[e.Key] = e.Value
		f.Keys = append(f.Keys, e.Key)
	}
	for _, t := range tensors {
		if _, ok := f.tensors[t.Name]; ok {
			return nil, fmt.Errorf("%s: tensor %q twice", name, t.Name)
		}
		f.tensors[t.Name] = t
	}
	return f, nil
}

// Cols is the number of elements of a row.
func (t *Tensor) Cols() int { return t.Shape[0] }

// Rows is the number of rows: the product of all extents but the first.
func (t *Tensor) Rows() int { return t.Elements() / t.Shape[0] }

// Elements is the number of elements.
func (t *Tensor) Elements() int {
	n := 1
	for _, s := range t.Shape {
		n *= s
	}
	return n
}

// Bytes is the size of the tensor's data.
func (t *Tensor) Bytes() int64 { return int64(t.Rows()) * int64(t.Type.RowBytes(t.Cols())) }

// Open maps a GGUF file into memory and reads its metadata. Of a model split over several files ("-00001-of-00003.gguf")
// path names the first; the others are found beside it and their tensors join in. Errors are a *FormatError for bytes
// that are not GGUF, and the operating system's otherwise.
func Open(path string) (*File, error) {
	f, err := openPart(path)
	if err != nil {
		return nil, err
	}
	if err := f.join(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenBytes reads a GGUF file that is in memory. name stands for the path in messages. b must not change while the File
// is in use.
func OpenBytes(name string, b []byte) (*File, error) {
	f, err := parse(name, b)
	if err != nil {
		return nil, err
	}
	no, count, err := f.split()
	if err != nil {
		return nil, err
	}
	if count > 1 {
		return nil, fmt.Errorf("%s: this is part %d of a model of %d parts; only a model in one part can be opened from memory", name, no+1, count)
	}
	return f, nil
}

func openPart(path string) (*File, error) {
	s, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !s.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	b, unmap, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(path, b)
	if err != nil {
		return nil, errors.Join(err, unmap())
	}
	f.parts = []string{path}
	f.unmap = []func() error{unmap}
	return f, nil
}

// Close releases the mapped memory. Tensors and Values of the file must not be used afterwards.
func (f *File) Close() error {
	for _, t := range f.Tensors {
		t.Data = nil // an early nil dereference is easier to understand than a fault
	}
	f.values = nil
	var errs []error
	for _, u := range f.unmap {
		errs = append(errs, u())
	}
	f.unmap = nil
	return errors.Join(errs...)
}

// Tensor finds a tensor by name.
func (f *File) Tensor(name string) (*Tensor, bool) { t, ok := f.tensors[name]; return t, ok }

// Parts are the paths of the files the model consists of, in order; none if it was opened from memory.
func (f *File) Parts() []string { return f.parts }

// Size is the size of the file in bytes, of all its parts; 0 for a model that is in no file.
func (f *File) Size() int64 { return f.size }

// Keys that upstream's split tool writes.
const (
	splitNoKey      = "split.no"
	splitCountKey   = "split.count"
	splitTensorsKey = "split.tensors.count"
)

var partName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// PartPath is the path of part no (0-based) of count, given the path of any of them.
func PartPath(path string, no, count int) (string, error) {
	dir, name := filepath.Split(path)
	m := partName.FindStringSubmatch(name)
	if m == nil {
		return "", fmt.Errorf("%s: one of %d parts must be named NAME-00001-of-%05d.gguf, or the others cannot be found", path, count, count)
	}
	if n, _ := strconv.Atoi(m[3]); n != count {
		return "", fmt.Errorf("%s: the name says %d parts, key %q says %d", path, n, splitCountKey, count)
	}
	return dir + fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], no+1, count), nil
}

// split returns which part of how many the file is; 0 of 1 for a model in one file.
func (f *File) split() (no, count int, err error) {
	n, err := f.UintOr(splitNoKey, 0)
	if err != nil {
		return 0, 0, err
	}
	c, err := f.UintOr(splitCountKey, 1)
	if err != nil {
		return 0, 0, err
	}
	const most = 99999 // five digits in the name
	if c == 0 {
		c = 1 // upstream's merge tool leaves a zero
	}
	if c > most || n >= c {
		return 0, 0, &KeyError{File: f.Path, Key: splitNoKey, Want: "a part number below " + splitCountKey + ", at most " + strconv.Itoa(most), Found: fmt.Sprintf("%d of %d", n, c)}
	}
	return int(n), int(c), nil
}

// join opens the other parts of a split model and takes their tensors over.
func (f *File) join() error {
	no, count, err := f.split()
	if err != nil || count == 1 {
		return err
	}
	first, err := PartPath(f.Path, 0, count)
	if err != nil {
		return err
	}
	if no != 0 {
		return fmt.Errorf("%s: this is part %d of %d; open the first, %s", f.Path, no+1, count, first)
	}
	for i := 1; i < count; i++ {
		path, err := PartPath(f.Path, i, count)
		if err != nil {
			return err
		}
		p, err := openPart(path)
		if err != nil {
			return fmt.Errorf("part %d of %d of %s: %w", i+1, count, f.Path, err)
		}
		if err := f.take(p, i, count); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	want, err := f.UintOr(splitTensorsKey, uint64(len(f.Tensors)))
	if err != nil {
		return err
	}
	if want != uint64(len(f.Tensors)) {
		return &KeyError{File: f.Path, Key: splitTensorsKey, Want: fmt.Sprintf("the %d tensors of all parts", len(f.Tensors)), Found: fmt.Sprint(want)}
	}
	return nil
}

// take moves the tensors and the mapping of part i into f.
func (f *File) take(p *File, i, count int) error {
	if no, n, err := p.split(); err != nil {
		return err
	} else if no != i || n != count {
		return fmt.Errorf("%s: expected part %d of %d, found part %d of %d", p.Path, i+1, count, no+1, n)
	}
	for _, t := range p.Tensors {
		if _, ok := f.tensors[t.Name]; ok {
			return fmt.Errorf("%s: tensor %q is already in an earlier part of %s", p.Path, t.Name, f.Path)
		}
		f.tensors[t.Name] = t
		f.Tensors = append(f.Tensors, t)
	}
	f.parts = append(f.parts, p.parts...)
	f.size += p.size
	f.unmap = append(f.unmap, p.unmap...)
	return nil
}
