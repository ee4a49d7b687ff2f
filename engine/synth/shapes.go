// Package synth writes models with random weights in the shape of real ones: the same tensors, sizes and metadata, so that
// speed and memory can be measured without the weights, and small ones for tests.
//
// The vocabulary is a synthetic SentencePiece one of a few pieces, padded to the true size. Weights are random but valid
// blocks with the spread that keeps activations in range; what such a model says means nothing, and no quality can be
// measured on it. The package does not quantise: it makes the blocks directly.
package synth

import (
	"fmt"
	"strings"
)

// architecture is a shape of one kind of model: it adds its metadata and tensors to b.
type architecture interface {
	size() dims
	// withLayers is the same shape cut to its first n layers, 1 <= n <= size().layers.
	withLayers(n int) (architecture, error)
	describe(b *builder)
}

// dims is what all architectures have.
type dims struct {
	vocab   int
	context int // trained with
	embd    int
	layers  int // executed ones
	ffn     int
	heads   int
	headsKV int
	dim     int // of a head
	eps     float32
	tied    bool // the token embedding is the output matrix too
	noBOS   bool // the tokenizer adds none
}

// shape is a named architecture with sizes.
type shape struct {
	name string
	arch architecture
}

// The shapes of published models, and of this project's tiny conformance models. Sources: the models' published configurations.
var shapes = []shape{
	{"llama-3.2-1b", llama{dims: dims{vocab: 128256, context: 131072, embd: 2048, layers: 16, ffn: 8192, heads: 32, headsKV: 8, dim: 64, eps: 1e-5, tied: true}, ropeFactor: 32}},
	{"llama-3.2-3b", llama{dims: dims{vocab: 128256, context: 131072, embd: 3072, layers: 28, ffn: 8192, heads: 24, headsKV: 8, dim: 128, eps: 1e-5, tied: true}, ropeFactor: 32}},
	{"llama-3.1-8b", llama{dims: dims{vocab: 128256, context: 131072, embd: 4096, layers: 32, ffn: 14336, heads: 32, headsKV: 8, dim: 128, eps: 1e-5}, ropeFactor: 8}},

	{"gemma-3-270m", gemma3{dims: dims{vocab: 262144, context: 32768, embd: 640, layers: 18, ffn: 2048, heads: 4, headsKV: 1, dim: 256, eps: 1e-6, tied: true}, window: 512}},
	{"gemma-3-12b", gemma3{dims: dims{vocab: 262208, context: 131072, embd: 3840, layers: 48, ffn: 15360, heads: 16, headsKV: 8, dim: 256, eps: 1e-6, tied: true}, window: 1024, ropeScale: 8}},

	{"qwen3.5-2b", qwen35{dims: dims{vocab: 248320, context: 262144, embd: 2048, layers: 24, ffn: 6144, heads: 8, headsKV: 2, dim: 256, eps: 1e-6, tied: true, noBOS: true},
		mtp: 1, rot: 64, sections: []int32{11, 11, 10, 0}, state: 128, headsK: 16, headsV: 16}},
	{"qwen3.5-9b", qwen35{dims: dims{vocab: 248320, context: 262144, embd: 4096, layers: 32, ffn: 12288, heads: 16, headsKV: 4, dim: 256, eps: 1e-6, noBOS: true},
		mtp: 1, rot: 64, sections: []int32{11, 11, 10, 0}, state: 128, headsK: 16, headsV: 32}},

	{"gemma-4-e2b", gemma4{dims: dims{vocab: 262144, context: 131072, embd: 1536, layers: 35, ffn: 6144, heads: 8, headsKV: 1, dim: 512, eps: 1e-6, tied: true},
		owners: 15, sharedFFN: 12288, full: every(5, 35), localDim: 256, window: 512, perLayer: 256}},
	{"gemma-4-e4b", gemma4{dims: dims{vocab: 262144, context: 131072, embd: 2560, layers: 42, ffn: 10240, heads: 8, headsKV: 2, dim: 512, eps: 1e-6, tied: true},
		owners: 24, sharedFFN: 10240, full: every(6, 42), localDim: 256, window: 512, perLayer: 256}},

	{"llama-tiny", llama{dims: tiny(4, 64, 1e-5, false), ropeFactor: 8}},
	{"llama-tied-tiny", llama{dims: tiny(4, 64, 1e-5, true)}},
	{"gemma3-tiny", gemma3{dims: tiny(8, 64, 1e-6, true), window: 16, ropeScale: 8}},
	{"qwen35-tiny", qwen35{dims: tiny(8, 64, 1e-6, false), rot: 16, sections: []int32{3, 3, 2, 0}, state: 64, headsK: 2, headsV: 4}},
	{"gemma4-tiny", gemma4{dims: tiny(8, 128, 1e-6, true), owners: 5, sharedFFN: 64, full: []int{4, 7}, localDim: 64, window: 16, perLayer: 32}},
}

func tiny(layers, dim int, eps float32, tied bool) dims {
	return dims{vocab: 320, context: 2048, embd: 64, layers: layers, ffn: 64, heads: 4, headsKV: 2, dim: dim, eps: eps, tied: tied}
}

// every lists the last of each period layers: 4, 9, 14 ... for 5.
func every(period, layers int) []int {
	var out []int
	for l := period - 1; l < layers; l += period {
		out = append(out, l)
	}
	return out
}

// Names lists the shapes.
func Names() []string {
	names := make([]string, len(shapes))
	for i, s := range shapes {
		names[i] = s.name
	}
	return names
}

// UnknownShapeError is a shape nobody has described.
type UnknownShapeError struct {
	Name    string
	Nearest string // the known name that is most like it
}

func (e *UnknownShapeError) Error() string {
	return fmt.Sprintf("unknown model shape %q; did you mean %q? Known are %s", e.Name, e.Nearest, strings.Join(Names(), ", "))
}

// find returns the shape of a name, in upper or lower case, cut to its first layers if that is not 0.
func find(name string, layers int) (shape, error) {
	for _, s := range shapes {
		if s.name != strings.ToLower(name) {
			continue
		}
		if layers == 0 {
			return s, nil
		}
		if most := s.arch.size().layers; layers < 0 || layers > most {
			return shape{}, fmt.Errorf("%s has %d layers: expected 1 to %d of them, found %d", s.name, most, most, layers)
		}
		cut, err := s.arch.withLayers(layers)
		if err != nil {
			return shape{}, fmt.Errorf("%s: %w", s.name, err)
		}
		return shape{s.name, cut}, nil
	}
	return shape{}, &UnknownShapeError{Name: name, Nearest: nearest(strings.ToLower(name), Names())}
}

// nearest is the candidate with the smallest edit distance (Levenshtein) to name.
func nearest(name string, candidates []string) string {
	best, least := "", int(^uint(0)>>1)
	for _, c := range candidates {
		if d := distance(name, c); d < least {
			best, least = c, d
		}
	}
	return best
}

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
