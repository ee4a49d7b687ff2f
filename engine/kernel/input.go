package kernel

import "attnbudget/engine/gguf"

// Input is a batch of activations x [n][cols] with the forms that products need: as it is, rounded to F16 or BF16, or
// quantised. A form is made when the first product asks for it and shared by all products that read the same Input (q, k
// and v; gate and up). Buffers are reused by the next Set.
//
// An Input belongs to one goroutine.
type Input struct {
	x       []float32
	n, cols int

	half, brain      []float32 // x rounded to F16, BF16
	haveHalf, haveBF bool
	q8               q8Blocks
	q8k              q8Supers
	pool             *Pool
	roundHalf        func(worker, i int)
	roundBF          func(worker, i int)
	quantise32       func(worker, i int)
	quantise256      func(worker, i int)
}

// q8Blocks are activations in blocks of 32: x ≈ d * code. It serves Q8_0 and Q8_1, which differ by s alone.
type q8Blocks struct {
	have  bool
	codes []int8      // [n][cols]
	side  []blockSide // [n][cols/32]
}

// blockSide belongs to 32 activation codes.
type blockSide struct {
	d    float32 // rounded to F16, as the block stores it
	s    float32 // d * sum of the codes, rounded to F16
	sum  int32   // of the codes
	bias int32   // -128 * sum: what weight codes raised by 128 add to a product, negated
}

func (q *q8Blocks) row(i, cols int) ([]int8, []blockSide) {
	return q.codes[i*cols:][:cols], q.side[i*(cols/32):][:cols/32]
}

// q8Supers are activations in blocks of 256 (Q8_K).
type q8Supers struct {
	have  bool
	codes []int8      // [n][cols]
	side  []superSide // [n][cols/256]
}

// superSide belongs to 256 activation codes. The assembly knows this layout.
type superSide struct {
	sums   [16]int16 // of each 16 codes
	sums32 [8]int16  // of each 32 codes
	d      float32
	_      [3]float32
	bias   [16]int32 // -128 * sums
	bias32 [8]int32  // -128 * sums32
}

func (q *q8Supers) row(i, cols int) ([]int8, []superSide) {
	return q.codes[i*cols:][:cols], q.side[i*(cols/256):][:cols/256]
}

// NewInput returns an empty Input; Set fills it.
func NewInput() *Input {
	in := &Input{}
	in.roundHalf = func(_, i int) {
		in.pool.kernels.roundF16(in.row(in.half, i), in.row(in.x, i))
	}
	in.roundBF = func(_, i int) {
		in.pool.kernels.roundBF16(in.row(in.brain, i), in.row(in.x, i))
	}
	in.quantise32 = func(_, i int) {
		codes, side := in.q8.row(i, in.cols)
		in.pool.kernels.quantiseBlocks(codes, side, in.row(in.x, i))
	}
	in.quantise256 = func(_, i int) {
		codes, side := in.q8k.row(i, in.cols)
		in.pool.kernels.quantiseSupers(codes, side, in.row(in.x, i))
	}
	return in
}

func (in *Input) row(x []float32, i int) []float32 { return x[i*in.cols:][:in.cols] }

// Set makes in stand for the activations x [n][cols]. x is not copied and must stay as it is until the products are done.
func (in *Input) Set(p *Pool, x []float32, n, cols int) {
	if len(x) < n*cols {
		panic("kernel: Input.Set: x is shorter than n*cols")
	}
	in.x, in.n, in.cols, in.pool = x[:n*cols], n, cols, p
	in.haveHalf, in.haveBF, in.q8.have, in.q8k.have = false, false, false, false
}

// Rows returns the number of activation rows.
func (in *Input) Rows() int { return in.n }

// prepare makes the form that a product with weights of type t reads.
func (in *Input) prepare(p *Pool, t gguf.Type) {
	switch t {
	case gguf.F32:
	case gguf.F16:
		if !in.haveHalf {
			in.half = grow(in.half, len(in.x))
			p.Run(in.n, in.roundHalf)
			in.haveHalf = true
		}
	case gguf.BF16:
		if !in.haveBF {
			in.brain = grow(in.brain, len(in.x))
			p.Run(in.n, in.roundBF)
			in.haveBF = true
		}
	default:
		if formatOf(t).super {
			in.prepareSupers(p)
		} else {
			in.prepareBlocks(p)
		}
	}
}

func (in *Input) prepareBlocks(p *Pool) {
	if q := &in.q8; !q.have {
		q.codes, q.side = grow(q.codes, len(in.x)), grow(q.side, len(in.x)/32)
		p.Run(in.n, in.quantise32)
		q.have = true
	}
}

func (in *Input) prepareSupers(p *Pool) {
	if q := &in.q8k; !q.have {
		q.codes, q.side = grow(q.codes, len(in.x)), grow(q.side, len(in.x)/256)
		p.Run(in.n, in.quantise256)
		q.have = true
	}
}

// floats returns the rows that float weights of type t multiply.
func (in *Input) floats(t gguf.Type) []float32 {
	switch t {
	case gguf.F16:
		return in.half
	case gguf.BF16:
		return in.brain
	}
	return in.x
}
