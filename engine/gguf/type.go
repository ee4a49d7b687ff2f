package gguf

import "fmt"

// Type is a ggml tensor type: how the numbers of a tensor are laid out in blocks.
// The values are those stored in GGUF files.
type Type uint32

// The tensor types this project reads. Every other value is refused by name or number.
const (
	F32    Type = 0
	F16    Type = 1
	Q4_0   Type = 2
	Q4_1   Type = 3
	Q5_0   Type = 6
	Q5_1   Type = 7
	Q8_0   Type = 8
	Q8_1   Type = 9
	Q2_K   Type = 10
	Q3_K   Type = 11
	Q4_K   Type = 12
	Q5_K   Type = 13
	Q6_K   Type = 14
	Q8_K   Type = 15
	IQ4_NL Type = 20
	IQ4_XS Type = 23
	I32    Type = 26
	BF16   Type = 30
)

// layout describes one block of a type: how many elements it holds and how many bytes it takes.
type layout struct {
	name     string
	elements int
	bytes    int
}

// layouts is indexed by Type; types that are not read here have no elements.
var layouts = [...]layout{
	F32:    {"F32", 1, 4},
	F16:    {"F16", 1, 2},
	BF16:   {"BF16", 1, 2},
	I32:    {"I32", 1, 4},
	Q4_0:   {"Q4_0", 32, 2 + 16},
	Q4_1:   {"Q4_1", 32, 2 + 2 + 16},
	Q5_0:   {"Q5_0", 32, 2 + 4 + 16},
	Q5_1:   {"Q5_1", 32, 2 + 2 + 4 + 16},
	Q8_0:   {"Q8_0", 32, 2 + 32},
	Q8_1:   {"Q8_1", 32, 2 + 2 + 32},
	Q2_K:   {"Q2_K", 256, 16 + 64 + 2 + 2},
	Q3_K:   {"Q3_K", 256, 32 + 64 + 12 + 2},
	Q4_K:   {"Q4_K", 256, 2 + 2 + 12 + 128},
	Q5_K:   {"Q5_K", 256, 2 + 2 + 12 + 32 + 128},
	Q6_K:   {"Q6_K", 256, 128 + 64 + 16 + 2},
	Q8_K:   {"Q8_K", 256, 4 + 256 + 32},
	IQ4_NL: {"IQ4_NL", 32, 2 + 16},
	IQ4_XS: {"IQ4_XS", 256, 2 + 2 + 4 + 128},
}

// unread names types that exist upstream and are not read here, so that the refusal can name them.
var unread = map[Type]string{
	16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
	24: "I8", 25: "I16", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}

// layout returns how blocks of the type are laid out, nothing if it is not read here.
func (t Type) layout() layout {
	if int(t) < len(layouts) {
		return layouts[t]
	}
	return layout{}
}

// String returns the name used by upstream ("Q4_K"), or "type 99" for a value nobody has named.
func (t Type) String() string {
	if t.Known() {
		return t.layout().name
	}
	if n, ok := unread[t]; ok {
		return n
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Known reports whether this project can read tensors of the type.
func (t Type) Known() bool { return t.layout().elements > 0 }

// BlockSize is the number of elements in one block (1 for plain floats, 32 or 256 for quantised types); 0 if unknown.
func (t Type) BlockSize() int { return t.layout().elements }

// BlockBytes is the number of bytes of one block; 0 if unknown.
func (t Type) BlockBytes() int { return t.layout().bytes }

// RowBytes is the number of bytes a row of n elements takes. n must be a multiple of BlockSize.
func (t Type) RowBytes(n int) int { return n / t.BlockSize() * t.BlockBytes() }

// ParseType finds a type by its upper-case name.
func ParseType(name string) (Type, error) {
	for t, l := range layouts {
		if l.name == name && l.elements > 0 {
			return Type(t), nil
		}
	}
	return 0, fmt.Errorf("unknown tensor type %q", name)
}
