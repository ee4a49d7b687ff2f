package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"attnbudget/atomicfile"
)

// maxTensorName is the longest tensor name upstream reads, in bytes.
const maxTensorName = 63

// Writer writes a GGUF file of version 3: first all metadata (Set, CopyMetadata), then all tensor entries (Add), then the data
// of the tensors in the order they were added (Data or Skip). The file appears under its name, whole and durable, only when
// Finish has succeeded; Abort removes an unfinished one. Data are padded to the alignment, also behind the last tensor.
//
//	w, err := gguf.Create(path)
//	if err != nil { ... }
//	defer w.Abort() // does nothing after Finish
type Writer struct {
	path string
	file *atomicfile.File
	buf  *bufio.Writer

	keys      []string
	values    map[string]Value
	tensors   []*Tensor // without data
	names     map[string]bool
	alignment int

	started bool  // the header is written
	next    int   // tensor whose data come next
	done    int64 // bytes of it that are written
	size    int64 // of the file so far
}

// Create begins a file that will be called path.
func Create(path string) (*Writer, error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	return &Writer{
		path: path, file: f, buf: bufio.NewWriterSize(f, 1<<20),
		values: map[string]Value{}, names: map[string]bool{}, alignment: defaultAlignment,
	}, nil
}

// Set sets a metadata key. A new key goes to the end, a known one keeps its place.
func (w *Writer) Set(key string, v Value) error {
	if w.started {
		return fmt.Errorf("%s: metadata key %q set after the first tensor data", w.path, key)
	}
	if key == "" || len(key) > maxKeyBytes {
		return fmt.Errorf("%s: a metadata key has 1 to %d bytes, not %d", w.path, maxKeyBytes, len(key))
	}
	if key == alignmentKey {
		n, err := alignment(v)
		if err != nil {
			return fmt.Errorf("%s: %w", w.path, err)
		}
		w.alignment = n
	}
	if _, ok := w.values[key]; !ok {
		w.keys = append(w.keys, key)
	}
	w.values[key] = v
	return nil
}

// Delete removes a metadata key if it is there.
func (w *Writer) Delete(key string) {
	delete(w.values, key)
	w.keys = slices.DeleteFunc(w.keys, func(k string) bool { return k == key })
	if key == alignmentKey {
		w.alignment = defaultAlignment
	}
}

// CopyMetadata sets every key of f, in its order and byte for byte. f must stay open until the first Data, Skip or Finish.
func (w *Writer) CopyMetadata(f *File) error {
	for _, k := range f.Keys {
		if err := w.Set(k, f.values[k]); err != nil {
			return err
		}
	}
	return nil
}

// Add announces a tensor. shape is in ggml order.
func (w *Writer) Add(name string, t Type, shape []int) error {
	fail := func(format string, a ...any) error {
		return fmt.Errorf("%s: tensor %q: %s", w.path, name, fmt.Sprintf(format, a...))
	}
	switch {
	case w.started:
		return fail("added after the first tensor data")
	case name == "" || len(name) > maxTensorName:
		return fail("a name has 1 to %d bytes, not %d", maxTensorName, len(name))
	case w.names[name]:
		return fail("added twice")
	case !t.Known():
		return fail("cannot write %s", t)
	case len(shape) == 0 || len(shape) > maxDims:
		return fail("1 to %d dimensions expected, not %d", maxDims, len(shape))
	case slices.Min(shape) < 1:
		return fail("shape %v has an extent below 1", shape)
	case shape[0]%t.BlockSize() != 0:
		return fail("rows of %d elements are not a multiple of %d, the block of %s", shape[0], t.BlockSize(), t)
	}
	w.names[name] = true
	w.tensors = append(w.tensors, &Tensor{Name: name, Type: t, Shape: slices.Clone(shape)})
	return nil
}

// Data writes the next bytes of the named tensor, which must be the one whose turn it is. It may be called with a part
// of the data at a time.
func (w *Writer) Data(name string, p []byte) error {
	t, err := w.turn(name)
	if err != nil {
		return err
	}
	if left := t.Bytes() - w.done; int64(len(p)) > left {
		return fmt.Errorf("%s: tensor %q: %d bytes of data too many", w.path, name, int64(len(p))-left)
	}
	if err := w.write(p); err != nil {
		return err
	}
	w.done += int64(len(p))
	return w.complete(t)
}

// Skip leaves the (rest of the) data of the named tensor as a hole, which reads as zeros and takes no space on file systems that can.
func (w *Writer) Skip(name string) error {
	t, err := w.turn(name)
	if err != nil {
		return err
	}
	if err := w.buf.Flush(); err != nil {
		return w.fail(err)
	}
	n := t.Bytes() - w.done
	if _, err := w.file.Seek(n, io.SeekCurrent); err != nil {
		return w.fail(err)
	}
	w.size += n
	w.done += n
	return w.complete(t)
}

// turn returns the tensor whose data come next, if that is its name.
func (w *Writer) turn(name string) (*Tensor, error) {
	if !w.started {
		w.started = true
		if err := w.header(); err != nil {
			return nil, err
		}
	}
	if w.next == len(w.tensors) {
		return nil, fmt.Errorf("%s: data of tensor %q after the last tensor", w.path, name)
	}
	if t := w.tensors[w.next]; t.Name != name {
		return nil, fmt.Errorf("%s: data of tensor %q in the place of %q", w.path, name, t.Name)
	}
	return w.tensors[w.next], nil
}

// complete goes on to the next tensor when all of t is written.
func (w *Writer) complete(t *Tensor) error {
	if w.done < t.Bytes() {
		return nil
	}
	w.next++
	w.done = 0
	return w.pad()
}

func (w *Writer) pad() error {
	return w.write(make([]byte, padding(uint64(w.size), uint64(w.alignment))))
}

// header writes everything before the data.
func (w *Writer) header() error {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte(magic), newestVersion)
	b = le.AppendUint64(b, uint64(len(w.tensors)))
	b = le.AppendUint64(b, uint64(len(w.keys)))
	for _, k := range w.keys {
		v := w.values[k]
		b = le.AppendUint32(appendString(b, k), uint32(v.kind))
		b = append(b, v.raw...)
	}
	offset := uint64(0)
	for _, t := range w.tensors {
		b = le.AppendUint32(appendString(b, t.Name), uint32(len(t.Shape)))
		for _, n := range t.Shape {
			b = le.AppendUint64(b, uint64(n))
		}
		b = le.AppendUint64(le.AppendUint32(b, uint32(t.Type)), offset)
		offset += uint64(t.Bytes())
		offset += padding(offset, uint64(w.alignment))
	}
	if err := w.write(b); err != nil {
		return err
	}
	return w.pad()
}

func (w *Writer) write(p []byte) error {
	n, err := w.buf.Write(p)
	w.size += int64(n)
	if err != nil {
		return w.fail(err)
	}
	return nil
}

func (w *Writer) fail(err error) error { return fmt.Errorf("write %s: %w", w.path, err) }

// Finish makes the file durable and gives it its name. All data must have been written.
func (w *Writer) Finish() error {
	if !w.started {
		w.started = true
		if err := w.header(); err != nil {
			return err
		}
	}
	if w.next < len(w.tensors) {
		t := w.tensors[w.next]
		return fmt.Errorf("%s: tensor %q has %d of %d bytes of data", w.path, t.Name, w.done, t.Bytes())
	}
	if err := w.buf.Flush(); err != nil {
		return w.fail(err)
	}
	if err := w.file.Truncate(w.size); err != nil { // a hole at the end counts only now
		return w.fail(err)
	}
	return w.file.Commit()
}

// Abort removes the unfinished file. After a successful Finish, or a second time, it does nothing.
func (w *Writer) Abort() error {
	return w.file.Abort()
}
