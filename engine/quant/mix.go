package quant

import (
	"fmt"
	"slices"
	"strings"

	"attnbudget/engine/gguf"
)

// Mix says which type each tensor of a quantised file gets; its value is what the file says in general.file_type.
type Mix uint32

// The mixes, by their names in llama-quantize.
const (
	F32    Mix = 0
	F16    Mix = 1
	Q4_0   Mix = 2
	Q4_1   Mix = 3
	Q8_0   Mix = 7
	Q5_0   Mix = 8
	Q5_1   Mix = 9
	Q2_K   Mix = 10
	Q3_K_S Mix = 11
	Q3_K_M Mix = 12
	Q3_K_L Mix = 13
	Q4_K_S Mix = 14
	Q4_K_M Mix = 15
	Q5_K_S Mix = 16
	Q5_K_M Mix = 17
	Q6_K   Mix = 18
	IQ4_NL Mix = 25
	IQ4_XS Mix = 30
	BF16   Mix = 32
)

// mixes lists every mix with the type that most of its tensors get, largest first.
var mixes = []struct {
	mix  Mix
	name string
	base gguf.Type
}{
	{F32, "F32", gguf.F32},
	{F16, "F16", gguf.F16},
	{BF16, "BF16", gguf.BF16},
	{Q8_0, "Q8_0", gguf.Q8_0},
	{Q6_K, "Q6_K", gguf.Q6_K},
	{Q5_1, "Q5_1", gguf.Q5_1},
	{Q5_K_M, "Q5_K_M", gguf.Q5_K},
	{Q5_K_S, "Q5_K_S", gguf.Q5_K},
	{Q5_0, "Q5_0", gguf.Q5_0},
	{Q4_1, "Q4_1", gguf.Q4_1},
	{Q4_K_M, "Q4_K_M", gguf.Q4_K},
	{Q4_K_S, "Q4_K_S", gguf.Q4_K},
	{IQ4_NL, "IQ4_NL", gguf.IQ4_NL},
	{Q4_0, "Q4_0", gguf.Q4_0},
	{IQ4_XS, "IQ4_XS", gguf.IQ4_XS},
	{Q3_K_L, "Q3_K_L", gguf.Q3_K},
	{Q3_K_M, "Q3_K_M", gguf.Q3_K},
	{Q3_K_S, "Q3_K_S", gguf.Q3_K},
	{Q2_K, "Q2_K", gguf.Q2_K},
}

// String is the mix's name: "Q4_K_M".
func (m Mix) String() string {
	for _, e := range mixes {
		if e.mix == m {
			return e.name
		}
	}
	return fmt.Sprintf("file type %d", uint32(m))
}

// Base is the type that most tensors of the mix get. It panics on a value that is no mix.
func (m Mix) Base() gguf.Type {
	for _, e := range mixes {
		if e.mix == m {
			return e.base
		}
	}
	panic("quant: no mix is " + m.String())
}

// MixNames lists the names that ParseMix knows, largest format first.
func MixNames() []string {
	names := make([]string, len(mixes))
	for i, e := range mixes {
		names[i] = e.name
	}
	return names
}

// ParseMix finds a mix by name, in upper or lower case. As in llama-quantize, Q3_K, Q4_K and Q5_K mean their _M variant.
func ParseMix(name string) (Mix, error) {
	want := strings.ToUpper(name)
	if slices.Contains([]string{"Q3_K", "Q4_K", "Q5_K"}, want) {
		want += "_M"
	}
	for _, e := range mixes {
		if e.name == want {
			return e.mix, nil
		}
	}
	return 0, fmt.Errorf("unknown format %q; known are %s", name, strings.Join(MixNames(), ", "))
}
