package quant

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"attnbudget/engine/gguf"
)

// quantizationVersion is what general.quantization_version says of the block layouts written here.
const quantizationVersion = 2

// Options of a quantisation. The zero value is the usual mix, on all processors.
type Options struct {
	Pure     bool                    // give every matrix the mix's base type, without exceptions for sensitive ones
	Threads  int                     // 0 = as many as the process may use; the result does not depend on it
	Progress func(done, total int64) // called now and then with bytes of input, never concurrently; may be nil
}

// InputError says why a file or one of its tensors cannot be quantised.
type InputError struct {
	File   string
	Tensor string // empty when it is the whole file
	Reason string
}

func (e *InputError) Error() string {
	if e.Tensor == "" {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s: tensor %q: %s", e.File, e.Tensor, e.Reason)
}

// QuantizeFile quantises the GGUF file in (the first part, if it is split) into the single file out, as QuantizeTo does.
func QuantizeFile(ctx context.Context, in, out string, mix Mix, opt Options) error {
	f, err := gguf.Open(in)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, part := range f.Parts() {
		if same, err := sameFile(part, out); err != nil {
			return err
		} else if same {
			return &InputError{File: part, Reason: "the output would replace the input; give it another name"}
		}
	}
	return QuantizeTo(ctx, f, out, mix, opt)
}

func sameFile(in, out string) (bool, error) {
	a, err := os.Stat(in)
	if err != nil {
		return false, err
	}
	b, err := os.Stat(out)
	return err == nil && os.SameFile(a, b), nil // any trouble with out is met again, and reported, when it is written
}

// QuantizeTo writes the model f to the file out with the types of the mix. It needs memory for a few pieces of a tensor only.
// The output appears under its name complete and synced to disk, or not at all: after an error, also that of a cancelled
// context, nothing is left behind.
//
// f must hold F32, F16 and BF16 weights: a quantised file has lost what a second rounding would need. That, and weights that
// are not finite or too large for the new type, is an *InputError.
func QuantizeTo(ctx context.Context, f *gguf.File, out string, mix Mix, opt Options) error {
	choices, err := mix.Choose(f, opt.Pure)
	if err != nil {
		return err
	}
	c := converter{file: f, progress: opt.Progress}
	for _, choice := range choices {
		t := choice.Tensor
		if !isFloat(t.Type) && t.Type != gguf.I32 {
			return &InputError{File: f.Path, Tensor: t.Name, Reason: fmt.Sprintf(
				"it is quantised (%v) already and rounding it again would add up errors; start from the F32, F16 or BF16 file", t.Type)}
		}
		c.total += int64(len(t.Data))
	}
	threads := opt.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	c.scratch = make([][pieceElements]float32, threads)
	if c.writer, err = gguf.Create(out); err != nil {
		return err
	}
	defer c.writer.Abort()
	if err := c.announce(mix, choices); err != nil {
		return err
	}
	for _, choice := range choices {
		if err := c.convert(ctx, choice); err != nil {
			return err
		}
	}
	return c.writer.Finish()
}

func isFloat(t gguf.Type) bool { return t == gguf.F32 || t == gguf.F16 || t == gguf.BF16 }

// converter carries one quantisation.
type converter struct {
	file        *gguf.File
	writer      *gguf.Writer
	scratch     [][pieceElements]float32 // one per thread
	progress    func(done, total int64)
	done, total int64
}

// announce writes the metadata and the list of tensors. As upstream does, it drops what belongs to a split file and puts
// the two keys of the quantisation last.
func (c *converter) announce(mix Mix, choices []Choice) error {
	w := c.writer
	if err := w.CopyMetadata(c.file); err != nil {
		return err
	}
	for _, key := range []string{"split.no", "split.count", "split.tensors.count", "general.quantization_version", "general.file_type"} {
		w.Delete(key)
	}
	if err := w.Set("general.quantization_version", gguf.ValueOf(uint32(quantizationVersion))); err != nil {
		return err
	}
	if err := w.Set("general.file_type", gguf.ValueOf(uint32(mix))); err != nil {
		return err
	}
	for _, choice := range choices {
		if err := w.Add(choice.Tensor.Name, choice.Type, trimShape(choice.Tensor.Shape)); err != nil {
			return err
		}
	}
	return nil
}

// pieceElements is how much of a tensor a thread takes at a time: whole blocks of every type.
const pieceElements = 1 << 15

// convert writes one tensor in waves: each of a few pieces per thread, converted at once and written in order.
func (c *converter) convert(ctx context.Context, choice Choice) error {
	from, to := choice.Tensor.Type, choice.Type
	wave := pieceElements * 8 * len(c.scratch)
	left, data := choice.Tensor.Elements(), choice.Tensor.Data
	var buffer []byte
	for left > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("quantising %s: %w", c.file.Path, context.Cause(ctx))
		}
		n := min(wave, left)
		src := data[:from.RowBytes(n)]
		result := src
		if from != to {
			if buffer == nil {
				buffer = make([]byte, to.RowBytes(n))
			}
			result = buffer[:to.RowBytes(n)]
			if err := c.inParallel(from, to, result, src); err != nil {
				return &InputError{File: c.file.Path, Tensor: choice.Tensor.Name, Reason: err.Error()}
			}
		}
		if err := c.writer.Data(choice.Tensor.Name, result); err != nil {
			return err
		}
		left, data = left-n, data[len(src):]
		c.done += int64(len(src))
		if c.progress != nil {
			c.progress(c.done, c.total)
		}
	}
	return nil
}

// inParallel converts src to dst, a piece of elements at a time.
func (c *converter) inParallel(from, to gguf.Type, dst, src []byte) error {
	inPiece, outPiece := from.RowBytes(pieceElements), to.RowBytes(pieceElements)
	pieces := (len(src) + inPiece - 1) / inPiece
	errs := make([]error, pieces)
	var next atomic.Int64
	var threads sync.WaitGroup
	for thread := range min(len(c.scratch), pieces) {
		threads.Go(func() {
			for i := int(next.Add(1)) - 1; i < pieces; i = int(next.Add(1)) - 1 {
				in := src[i*inPiece : min((i+1)*inPiece, len(src))]
				out := dst[i*outPiece : min((i+1)*outPiece, len(dst))]
				errs[i] = convertPiece(from, to, out, in, c.scratch[thread][:])
			}
		})
	}
	threads.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func convertPiece(from, to gguf.Type, dst, src []byte, numbers []float32) error {
	numbers = numbers[:len(src)/from.BlockBytes()*from.BlockSize()]
	Dequantize(from, numbers, src)
	var most float32
	for _, x := range numbers {
		if !isFinite(x) {
			return fmt.Errorf("it holds %v, which is not a finite weight; the file is damaged or was converted wrongly", x)
		}
		most = max(most, abs(x))
	}
	Quantize(to, dst, numbers)
	if !finiteScales(to, dst) {
		return fmt.Errorf("a weight of magnitude %g is too large for %v, which scales in half precision; use BF16 or F32", most, to)
	}
	return nil
}

// finiteScales reports whether all half precision numbers in the blocks (the numbers themselves for F16) are finite.
func finiteScales(t gguf.Type, data []byte) bool {
	size := t.BlockBytes()
	for _, offset := range codecs[t].halves {
		for i := offset; i < len(data); i += size {
			if loadU16(data[i:])&0x7c00 == 0x7c00 {
				return false
			}
		}
	}
	return true
}

func isFinite(x float32) bool { return math.Float32bits(x)&0x7f800000 != 0x7f800000 }
