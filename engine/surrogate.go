package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel"
	"attnbudget/engine/model"
	"attnbudget/engine/quant"
)

// Keys and tensors of a surrogate file, an ordinary GGUF file (docs/format/calibration.md).
const (
	SurrogateSchema    = "attnbudget/surrogate/1"
	SurrogateSchemaKey = "attnbudget.surrogate.schema"
	SurrogateModelKey  = "attnbudget.surrogate.model"  // fingerprint of the model
	SurrogateLayersKey = "attnbudget.surrogate.layers" // of the mask, ascending
	surrogateBias      = "blk.%d.attn_surrogate.bias"
	surrogateDown      = "blk.%d.attn_surrogate_down.weight"
	surrogateUp        = "blk.%d.attn_surrogate_up.weight"
)

// SurrogateTensors names the tensors of a layer: the constant [Embd], and the two of a linear surrogate, [Embd, rank] and
// [rank, Embd], which a constant one lacks.
func SurrogateTensors(layer int) (bias, down, up string) {
	return fmt.Sprintf(surrogateBias, layer), fmt.Sprintf(surrogateDown, layer), fmt.Sprintf(surrogateUp, layer)
}

// Surrogates stand in for dropped attention: functions of the normalised input of a branch, one a layer, fitted in advance.
// They are bound to one model and one mask.
type Surrogates struct {
	fingerprint string // of the model
	mask        drop.Mask
	layers      model.Surrogates
	hash        string
}

// SurrogateError is a surrogate file that does not belong to what it is to be used with.
type SurrogateError struct {
	File            string
	What            string // "the model" or "the mask"
	Expected, Found string
}

func (e *SurrogateError) Error() string {
	return fmt.Sprintf("%s: the surrogates are for another %s: fitted for %s, used with %s; calibrate again or choose another file", e.File, e.What, e.Found, e.Expected)
}

// OpenSurrogates reads a surrogate file for a model of the given fingerprint.
func (m *Model) OpenSurrogates(path, fingerprint string) (*Surrogates, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := m.ReadSurrogates(f, fingerprint)
	return s, errors.Join(err, f.Close())
}

// ReadSurrogates reads surrogates from an open file; nothing of the file is used afterwards. Errors: *SurrogateError for
// another model, *gguf.KeyError, *model.TensorError, *drop.Error.
func (m *Model) ReadSurrogates(f *gguf.File, fingerprint string) (*Surrogates, error) {
	if schema, err := f.String(SurrogateSchemaKey); err != nil {
		return nil, err
	} else if schema != SurrogateSchema {
		return nil, fmt.Errorf("%s: %s is %q, expected %q", f.Path, SurrogateSchemaKey, schema, SurrogateSchema)
	}
	bound, err := f.String(SurrogateModelKey)
	if err != nil {
		return nil, err
	}
	if bound != fingerprint {
		return nil, &SurrogateError{f.Path, "model", fingerprint, bound}
	}
	list, err := f.Ints(SurrogateLayersKey)
	if err != nil {
		return nil, err
	}
	layers := make([]int, len(list))
	for i, l := range list {
		layers[i] = int(l)
	}
	mask, err := drop.Resolve(m.Roles(), layers)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	s := &Surrogates{fingerprint: bound, mask: mask, layers: model.Surrogates{}, hash: HashSurrogates(f)}
	for _, layer := range layers {
		if s.layers[layer], err = readSurrogate(f, layer, m.info.Embd); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// NewSurrogates are surrogates that are in no file yet, for trying them out.
func NewSurrogates(mask drop.Mask, layers model.Surrogates) *Surrogates {
	return &Surrogates{mask: mask, layers: layers}
}

// Mask is what the surrogates stand in for.
func (s *Surrogates) Mask() drop.Mask { return s.mask }

// Hash is the SHA-256 over names, shapes and data of the tensors, in lower-case hexadecimal; "" of surrogates in no file.
func (s *Surrogates) Hash() string { return s.hash }

func (s *Surrogates) hashOrNone() string {
	if s == nil {
		return ""
	}
	return s.hash
}

// HashSurrogates is Surrogates.Hash of what a file holds.
func HashSurrogates(f *gguf.File) string {
	h := sha256.New()
	for _, t := range f.Tensors {
		fmt.Fprintf(h, "%s %s %v\n", t.Name, t.Type, t.Shape)
		h.Write(t.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func readSurrogate(f *gguf.File, layer, embd int) (*model.Surrogate, error) {
	bias, down, up := SurrogateTensors(layer)
	t, err := surrogateTensor(f, bias, embd, 1)
	if err != nil {
		return nil, err
	}
	s := &model.Surrogate{Bias: make([]float32, embd)}
	quant.Dequantize(t.Type, s.Bias, t.Data)
	low, ok := f.Tensor(down)
	if !ok {
		return s, nil
	}
	if s.Down, err = surrogateMatrix(f, down, embd, low.Rows()); err != nil {
		return nil, err
	}
	s.Up, err = surrogateMatrix(f, up, low.Rows(), embd)
	return s, err
}

func surrogateTensor(f *gguf.File, name string, cols, rows int) (*gguf.Tensor, error) {
	t, ok := f.Tensor(name)
	expected := fmt.Sprintf("F32 of %d columns and %d rows", cols, rows)
	if !ok {
		return nil, &model.TensorError{File: f.Path, Tensor: name, Expected: expected, Found: "no such tensor in the file"}
	}
	if t.Type != gguf.F32 || t.Cols() != cols || t.Rows() != rows {
		return nil, &model.TensorError{File: f.Path, Tensor: name, Expected: expected, Found: fmt.Sprintf("%s of shape %v", t.Type, t.Shape)}
	}
	return t, nil
}

// surrogateMatrix copies a matrix out of the file.
func surrogateMatrix(f *gguf.File, name string, cols, rows int) (kernel.Matrix, error) {
	t, err := surrogateTensor(f, name, cols, rows)
	if err != nil {
		return kernel.Matrix{}, err
	}
	return kernel.Matrix{Type: gguf.F32, Rows: rows, Cols: cols, Data: append([]byte(nil), t.Data...)}, nil
}

// fits reports whether a context with this mask may use s.
func (s *Surrogates) fits(mask drop.Mask) error {
	if s != nil && s.mask != mask {
		return &SurrogateError{"surrogates", "mask", mask.String(), s.mask.String()}
	}
	return nil
}
