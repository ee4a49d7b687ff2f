//go:build unix

package kernel

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
)

// guards makes memory that ends, or begins, where the next byte cannot be read or written. Weights are mapped files, and what lies
// behind the last tensor is not ours.
type guards struct {
	t     *testing.T
	front bool     // the memory begins there, instead of ending
	pages [][]byte // to release
}

// bytes returns n bytes.
func (g *guards) bytes(n int) []byte {
	g.t.Helper()
	page := unix.Getpagesize()
	inside := (n + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, inside+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		g.t.Fatal(err)
	}
	g.pages = append(g.pages, all)
	for _, outside := range [][]byte{all[:page], all[page+inside:]} {
		if err := unix.Mprotect(outside, unix.PROT_NONE); err != nil {
			g.t.Fatal(err)
		}
	}
	if g.front {
		return all[page:][:n:n]
	}
	return all[page+inside-n:][:n:n]
}

// release ends the memory made so far: a process may have some ten thousand mappings.
func (g *guards) release() {
	for _, p := range g.pages {
		if err := unix.Munmap(p); err != nil {
			g.t.Error(err)
		}
	}
	g.pages = nil
}

// guarded returns a copy of x, which holds no pointers.
func guarded[T any](g *guards, x []T) []T {
	if len(x) == 0 {
		return x
	}
	size := int(unsafe.Sizeof(x[0]))
	b := g.bytes(len(x) * size)
	y := unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(x))
	copy(y, x)
	return y
}

// replace guards all slices of numbers in a struct, at the length they have.
func (g *guards) replace(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		f = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
		switch {
		case f.Kind() == reflect.Struct:
			g.replace(f)
		case f.Kind() == reflect.Slice && f.Len() > 0 && f.Index(0).Kind() != reflect.Slice:
			n := f.Len()
			b := g.bytes(n * int(f.Type().Elem().Size()))
			y := reflect.SliceAt(f.Type().Elem(), unsafe.Pointer(&b[0]), n)
			reflect.Copy(y, f)
			f.Set(y)
		}
	}
}

// scratch guards the memory that the workers of p have grown.
func (g *guards) scratch(p *Pool) {
	for i := range p.scratch {
		g.replace(reflect.ValueOf(&p.scratch[i]).Elem())
	}
}

// eachGuard runs f with memory that ends at a guard and with memory that begins there. A touched guard fails the test.
func eachGuard(t *testing.T, f func(t *testing.T, g *guards)) {
	for name, front := range map[string]bool{"behind": false, "before": true} {
		t.Run(name, func(t *testing.T) {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			g := &guards{t: t, front: front}
			defer g.release()
			f(t, g)
		})
	}
}

// touches reports a fault of f by the name of what f does.
func touches(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: %v", what, r)
		}
	}()
	f()
}

// everyKernels returns all kernel sets, in both orders.
func everyKernels() []kernels { return append(available(), inOrderOfUpstream()...) }

func TestProductsStayInsideTheirMemory(t *testing.T) {
	shapes := [][3]int{ // rows, columns, activation rows
		{1, 256, 1}, {7, 256, 2}, {8, 256, 1}, {9, 512, 3}, {12, 768, 1}, {33, 256, 1}, {33, 512, 4}, {40, 1280, 7}, {71, 256, 13}, {5, 288, 1}, {24, 96, 1}, {16, 96, 5}, {16, 32, 6},
		{4, 8, 1}, {4, 24, 2}, {12, 40, 5}, {3, 40, 1}, {5, 17, 4}, {8, 1032, 9}, {1, 1, 1},
	}
	eachGuard(t, func(t *testing.T, g *guards) {
		r := rand.New(rand.NewPCG(81, 82))
		for _, k := range everyKernels() {
			for _, typ := range weightTypes {
				for _, shape := range shapes {
					rows, cols, n := shape[0], shape[1], shape[2]
					if cols%typ.BlockSize() != 0 {
						continue
					}
					w, x := extremeMatrix(r, typ, rows, cols), extremes(r, n*cols)
					p, in := NewPool(1), NewInput()
					p.kernels = &k
					dst := make([]float32, n*rows)
					in.Set(p, x, n, cols)
					p.MatMul(dst, w, in)
					w.Data, in.x = guarded(g, w.Data), guarded(g, in.x)
					g.replace(reflect.ValueOf(&in.q8).Elem())
					g.replace(reflect.ValueOf(&in.q8k).Elem())
					in.half, in.brain = guarded(g, in.half), guarded(g, in.brain)
					g.scratch(p)
					got := guarded(g, make([]float32, n*rows))
					what := fmt.Sprintf("%s: %v %v", k.name, typ, shape)
					touches(t, what, func() {
						in.haveHalf, in.haveBF, in.q8.have, in.q8k.have = false, false, false, false
						p.MatMul(got, w, in)
					})
					same(t, what, got, dst)
					p.Close()
					g.release()
				}
			}
		}
	})
}

func TestAttentionStaysInsideItsMemory(t *testing.T) {
	eachGuard(t, func(t *testing.T, g *guards) {
		r := rand.New(rand.NewPCG(83, 84))
		for _, k := range everyKernels() {
			for _, c := range attentionCases {
				a := c.build(r)
				p := NewPool(1)
				p.kernels = &k
				p.Attend(a)
				want := a.Out
				for _, rows := range []*KVRows{&a.K, &a.V} { // without what is between the last row and the next
					heads := c.headsKV * a.DimK
					if rows == &a.V {
						heads = c.headsKV * a.DimV
					}
					rows.Data = guarded(g, rows.Data[:(c.cells-1)*rows.Stride+rows.Type.RowBytes(heads)])
				}
				a.Q, a.Out = guarded(g, a.Q), guarded(g, make([]float32, len(a.Out)))
				g.scratch(p)
				what := k.name + ": " + c.name
				touches(t, what, func() { p.Attend(a) })
				same(t, what, a.Out, want)
				p.Close()
				g.release()
			}
		}
	})
}

func TestElementwiseKernelsStayInsideTheirMemory(t *testing.T) {
	eachGuard(t, func(t *testing.T, g *guards) {
		r := rand.New(rand.NewPCG(85, 86))
		for _, k := range everyKernels() {
			for _, n := range []int{1, 8, 15, 16, 17, 24, 32, 48, 100, 256} {
				numbers := func(n int) []float32 { return guarded(g, extremes(r, n)) }
				dst, x, y := numbers(n), numbers(n), numbers(n)
				for name, f := range map[string]func(){
					"add": func() { k.add(dst, x) }, "mul": func() { k.mul(dst, x) }, "scale": func() { k.scale(dst, x, 2) },
					"scaleMul": func() { k.scaleMul(dst, x, y, 2) }, "combine": func() { k.combine(dst, x, 2, 3) },
					"addScaled": func() { k.addScaled(dst, x, 2) }, "silu": func() { k.silu(dst, x) },
					"siluMul": func() { k.siluMul(dst, x, y) }, "geluMul": func() { k.geluMul(dst, x, y) },
					"roundF16": func() { k.roundF16(dst, x) }, "roundBF16": func() { k.roundBF16(dst, x) },
					"narrowF16": func() { k.narrowF16(g.bytes(2*n), x) }, "squares": func() { k.squares(x) },
					"expSum": func() { k.expSum(dst, 1) }, "scaleMax": func() { k.scaleMax(dst, 1) }, "expBelow": func() { k.expBelow(dst, 1e5) },
					"softMax":      func() { k.softMax(dst[:n/8*8], 1e5) },
					"rotateHalves": func() { k.rotateHalves(numbers(2*n), x, y) }, "rotatePairs": func() { k.rotatePairs(numbers(2*n), x, y) },
					"addHalves": func() { k.addHalves(dst, numbers(5), numbers(5*n)) },
					"dotCells":  func() { k.dotCells(numbers(7), numbers(n*32), numbers(7*n*32)) },
					"dot32":     func() { k.dot32(gguf.F32, x, y) },
					"widen":     func() { k.widen(gguf.F16, dst, g.bytes(2*n)); k.widen(gguf.BF16, dst, g.bytes(2*n)) },
					"storeQ8_0": func() { k.storeQ8_0(g.bytes(n*34), numbers(n*32)) },
					"quantiseBlocks": func() {
						k.quantiseBlocks(guarded(g, make([]int8, n*32)), guarded(g, make([]blockSide, n)), numbers(n*32))
					},
					"quantiseSupers": func() {
						k.quantiseSupers(guarded(g, make([]int8, n*256)), guarded(g, make([]superSide, n)), numbers(n*256))
					},
					"convolve": func() {
						k.convolve(Convolution{Dst: numbers(2*n + 1), X: numbers(5*n + 4), Weights: numbers(4 * n),
							StrideDst: n + 1, StrideX: n + 1, StrideWeights: n, N: 2, Taps: 4, Channels: n})
					},
				} {
					touches(t, fmt.Sprintf("%s: %s of %d", k.name, name, n), f)
				}
				g.release()
			}
		}
	})
}

func TestCacheKernelsStayInsideTheirMemory(t *testing.T) {
	eachGuard(t, func(t *testing.T, g *guards) {
		r := rand.New(rand.NewPCG(87, 88))
		for _, k := range everyKernels() {
			for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0, gguf.Q5_1} {
				for _, shape := range [][2]int{{1, 32}, {8, 32}, {15, 64}, {16, 96}, {33, 128}, {5, 16}, {16, 20}} {
					cells, dim := shape[0], shape[1]
					if dim%typ.BlockSize() != 0 {
						continue
					}
					const heads = 2
					stride := typ.RowBytes(heads * dim)
					rows := &KVRows{Type: typ, Stride: stride, Data: guarded(g, extremeMatrix(r, typ, cells, heads*dim).Data)}
					what := fmt.Sprintf("%s: %v %v", k.name, typ, shape)
					touches(t, what, func() {
						few := guarded(g, make([]float32, 16*dim))
						k.keys(guarded(g, make([]float32, dim*cells)), cells, rows, heads-1, 0, cells, dim, few)
						k.values(guarded(g, make([]float32, cells*dim)), rows, heads-1, 0, cells, dim)
						if isFloat(typ) || dim%32 != 0 {
							return
						}
						codes, side := guarded(g, make([]int8, dim)), guarded(g, make([]blockSide, dim/32))
						k.quantiseBlocks(codes, side, random(r, dim))
						var row rowCodes
						row.resize(dim, formatOf(typ))
						k.dotCodedCells(guarded(g, make([]float32, cells)), codes, side, rows, heads-1, 0, &row)
					})
					g.release()
				}
			}
		}
	})
}

func TestDeltaRuleStaysInsideItsMemory(t *testing.T) {
	eachGuard(t, func(t *testing.T, g *guards) {
		r := rand.New(rand.NewPCG(89, 90))
		for _, k := range everyKernels() {
			for _, c := range []deltaCase{{1, 128, 128}, {5, 128, 96}, {3, 64, 40}, {2, 40, 64}} {
				d := c.build(r, gates["ordinary"])
				n := d.N - 1
				d.State, d.Q, d.K, d.Decay, d.Beta = guarded(g, d.State), guarded(g, d.Q), guarded(g, d.K), guarded(g, d.Decay), guarded(g, d.Beta)
				d.V, d.Out = guarded(g, d.V[:n*d.StrideV+d.DimV]), guarded(g, d.Out[:n*d.StrideOut+d.DimV])
				touches(t, fmt.Sprint(k.name, c), func() { k.delta(*d, 0, d.Strips()) })
				g.release()
			}
		}
	})
}

func TestUnpackersStayInsideTheirMemory(t *testing.T) {
	eachGuard(t, func(t *testing.T, g *guards) {
		r := rand.New(rand.NewPCG(91, 92))
		for _, typ := range weightTypes {
			for _, blocks := range []int{1, 2, 3} {
				n := blocks * typ.BlockSize()
				data := guarded(g, extremeMatrix(r, typ, 1, n).Data)
				touches(t, fmt.Sprint(typ, blocks), func() {
					quant.Dequantize(typ, guarded(g, make([]float32, n)), data)
					if isFloat(typ) {
						return
					}
					var row rowCodes
					row.resize(n, formatOf(typ))
					row.codes, row.simple, row.super = guarded(g, row.codes), guarded(g, row.simple), guarded(g, row.super)
					formatOf(typ).unpack(&row, data)
				})
				g.release()
			}
		}
	})
}
