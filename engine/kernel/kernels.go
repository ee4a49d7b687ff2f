package kernel

import (
	"fmt"
	"os"
	"strings"

	"attnbudget/engine/gguf"
	"attnbudget/engine/kernel/upstream"
	"attnbudget/engine/quant"
)

//go:generate go run ./asm -group float -out float_amd64.s -stubs float_amd64.go -pkg kernel
//go:generate go run ./asm -group attention -out attention_amd64.s -stubs attention_amd64.go -pkg kernel
//go:generate go run ./asm -group elementwise -out elementwise_amd64.s -stubs elementwise_amd64.go -pkg kernel
//go:generate go run ./asm -group unpack -out unpack_amd64.s -stubs unpack_amd64.go -pkg kernel
//go:generate go run ./asm -group integer -out integer_amd64.s -stubs integer_amd64.go -pkg kernel
//go:generate go run ./asm -group decode -out decode_amd64.s -stubs decode_amd64.go -pkg kernel
//go:generate go run ./asm -group rope -out rope_amd64.s -stubs rope_amd64.go -pkg kernel
//go:generate go run ./asm -group ordered -out ordered_amd64.s -stubs ordered_amd64.go -pkg kernel
//go:generate go run ./asm -group upstream -out upstream_amd64.s -stubs upstream_amd64.go -pkg kernel
//go:generate go run ./asm -group flash -out flash_amd64.s -stubs flash_amd64.go -pkg kernel
//go:generate go run ./asm -group wait -out wait_amd64.s -stubs wait_amd64.go -pkg kernel
//go:generate go run ./asm -group delta -out delta_amd64.s -stubs delta_amd64.go -pkg kernel
//go:generate go run ./asm -group quantise -out quantise_amd64.s -stubs quantise_amd64.go -pkg kernel

// kernels are the inner loops that have an implementation per instruction set. generic() is the definition of each.
type kernels struct {
	name    string
	singles bool // single rows are summed in another order than batches, as in upstream

	// floatPanel and quantPanel compute the outputs of weight rows [from, to) of a product.
	floatPanel, quantPanel func(m *product, s *scratch, from, to int)

	// upstreamQuantPanel is quantPanel with blocks added up in upstream's order.
	upstreamQuantPanel func(m *product, s *scratch, from, to int)

	// dot32 is the product of two rows of numbers of type t, widened, in the order of upstream's products of single rows.
	dot32 func(t gguf.Type, a, b []float32) float32

	// widen is quant.Dequantize.
	widen func(t gguf.Type, dst []float32, src []byte)

	// multiplyAdd computes c += a b for row-major a [rows][depth], b [depth][cols], c [rows][cols] with the given strides in
	// elements. Every element accumulates over depth in order.
	multiplyAdd multiplyAddFunc

	// keys writes, for cells [cell, cell+cells), the numbers of a head to dst [dim][strideDst], a cell per column. few
	// has room for 16 rows of dim.
	keys func(dst []float32, strideDst int, k *KVRows, head, cell, cells, dim int, few []float32)

	// values writes, for cells [cell, cell+cells), the numbers of a head to dst [cells][dim].
	values func(dst []float32, v *KVRows, head, cell, cells, dim int)

	// The steps of upstream's flash attention are described at their generic versions.
	scaleMax      func(x []float32, scale float32) float32
	dotCells      func(dst, q, k []float32)
	dotCodedCells func(dst []float32, codes []int8, side []blockSide, k *KVRows, head, cell int, row *rowCodes)
	addHalves     func(sums, weights, v []float32)
	expBelow      func(scores []float32, top float32)

	// attend is Attend with a cache that is not float32; nil means the tiles of attention.go.
	attend func(p *Pool, a *Attention)

	rotateHalves, rotatePairs func(x, cos, sin []float32)

	// softMax and addScaled are upstream.SoftMax and upstream.AddScaled.
	softMax   func(x []float32, top float32) float64
	addScaled func(dst, x []float32, s float32)

	// delta advances strips [from, to) of a state, convolve convolves.
	delta    func(d DeltaRule, from, to int)
	convolve func(c Convolution)

	// The elementwise loops are described at their generic versions. dst may be an operand.
	squares             func(x []float32) [lanes]float64
	add, mul            func(dst, x []float32)
	scale               func(dst, x []float32, s float32)
	scaleMul            func(dst, x, y []float32, s float32)
	combine             func(dst, x []float32, a, b float32)
	silu                func(dst, x []float32)
	siluMul, geluMul    func(dst, gate, up []float32)
	expSum              func(x []float32, scale float32) (top, sum float32)
	roundF16, roundBF16 func(dst, x []float32)
	narrowF16           func(dst []byte, x []float32)

	// quantiseBlocks and quantiseSupers quantise activations.
	quantiseBlocks func(codes []int8, side []blockSide, x []float32)
	quantiseSupers func(codes []int8, side []superSide, x []float32)
	storeQ8_0      func(dst []byte, src []float32)
}

type multiplyAddFunc = func(c []float32, strideC int, a []float32, strideA int, b []float32, strideB int, rows, depth, cols int)

// Variable is the environment variable that names the kernels to use, for this process and those it starts.
const Variable = "ATTNBUDGET_KERNEL"

// Upstream names the kernels whose results are upstream's to the bit. All others agree with one another to the bit, except that
// the generic ones do not fuse multiplications with additions in attention.
const Upstream = "upstream"

// active is what the processor can do best, or what Variable or Use asks for.
var active = startWith(os.Getenv(Variable))

func startWith(name string) kernels {
	if k, err := named(name); err == nil {
		return k
	}
	return best()
}

func best() kernels {
	all := available()
	return all[len(all)-1]
}

// Use makes this process compute with the named kernels; "" and "auto" mean the fastest the processor has. It is to be called
// before the first Pool is made. The error of an unknown name lists those there are.
func Use(name string) error {
	k, err := named(name)
	if err == nil {
		active = k
	}
	return err
}

func named(name string) (kernels, error) {
	if name == "" || name == "auto" {
		return best(), nil
	}
	var names []string
	for _, k := range append(available(), inUpstreamsOrder(best())) {
		if k.name == name {
			return k, nil
		}
		names = append(names, k.name)
	}
	return kernels{}, fmt.Errorf("no kernels named %q: this processor has auto, %s", name, strings.Join(names, ", "))
}

// Name tells which kernels are in use: "generic", "avx2", "avx512" or "upstream".
func Name() string { return active.name }

func generic() kernels {
	return kernels{
		name:        "generic",
		floatPanel:  floatPanel,
		quantPanel:  quantPanel,
		dot32:       dot32,
		widen:       quant.Dequantize,
		multiplyAdd: multiplyAdd,
		keys:        keys,
		values:      values,
		scaleMax:    scaleMax, dotCells: dotCells, dotCodedCells: dotCodedCells, addHalves: addHalves, expBelow: expBelow,

		rotateHalves: rotateHalves, rotatePairs: rotatePairs,
		softMax: upstream.SoftMax, addScaled: upstream.AddScaled,

		delta: delta, convolve: convolve,
		squares: squares, add: add, mul: mul, scale: scale, scaleMul: scaleMul, combine: combine,
		silu: silu, siluMul: siluMul, geluMul: geluMul, expSum: expSum,
		roundF16: roundF16, roundBF16: roundBF16, narrowF16: narrowF16,
		quantiseBlocks: quantiseBlocks, quantiseSupers: quantiseSupers, storeQ8_0: storeQ8_0,

		upstreamQuantPanel: quantPanelUpstream,
	}
}
