package quant

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
)

func TestParseMixKnowsEveryNameInAnyCase(t *testing.T) {
	if n := len(MixNames()); n != 19 {
		t.Errorf("%d mixes, want 19", n)
	}
	for _, name := range MixNames() {
		for _, spelling := range []string{name, strings.ToLower(name)} {
			m, err := ParseMix(spelling)
			if err != nil || m.String() != name {
				t.Errorf("ParseMix(%q) = %v, %v", spelling, m, err)
			}
		}
	}
	for short, full := range map[string]Mix{"Q3_K": Q3_K_M, "q4_k": Q4_K_M, "Q5_K": Q5_K_M} {
		if m, err := ParseMix(short); m != full || err != nil {
			t.Errorf("ParseMix(%q) = %v, %v", short, m, err)
		}
	}
	_, err := ParseMix("Q4_K_XL")
	if err == nil || !strings.Contains(err.Error(), "Q4_K_XL") || !strings.Contains(err.Error(), "Q4_K_M") {
		t.Errorf("the error for an unknown mix is %v; want its name and the known ones", err)
	}
}

// model describes a file whose weights do not matter.
type model struct {
	arch     string
	metadata map[string]any // without the architecture's prefix
	tensors  map[string][]int
}

// write makes the file, with F16 weights of zeros (F32 for single rows).
func (m model) write(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	w, err := gguf.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	set := func(key string, v any) {
		if err := w.Set(key, gguf.ValueOf(v)); err != nil {
			t.Fatal(err)
		}
	}
	set("general.architecture", m.arch)
	for key, v := range m.metadata {
		set(m.arch+"."+key, v)
	}
	var names []string
	for name, shape := range m.tensors {
		kind := gguf.F16
		if len(shape) == 1 {
			kind = gguf.F32
		}
		if err := w.Add(name, kind, shape); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	for _, name := range names {
		if err := w.Skip(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return path
}

func (m model) choose(t *testing.T, mix Mix, pure bool) (map[string]gguf.Type, error) {
	t.Helper()
	f, err := gguf.Open(m.write(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	choices, err := mix.Choose(f, pure)
	types := map[string]gguf.Type{}
	for _, c := range choices {
		types[c.Tensor.Name] = c.Type
	}
	return types, err
}

// layered is a llama of n layers of which only the sensitive matrices exist.
func layered(n uint32, heads, headsKV uint32) model {
	m := model{arch: "llama", tensors: map[string][]int{"token_embd.weight": {256, 8}, "output.weight": {256, 8}},
		metadata: map[string]any{"block_count": n, "attention.head_count": heads, "attention.head_count_kv": headsKV}}
	for i := range n {
		for _, name := range []string{"attn_v", "ffn_down", "attn_output", "attn_q"} {
			m.tensors[fmt.Sprintf("blk.%d.%s.weight", i, name)] = []int{256, 8}
		}
	}
	return m
}

func TestRowsThatDoNotDivideGetAStandIn(t *testing.T) {
	m := layered(1, 4, 1)
	m.tensors["blk.0.attn_q.weight"] = []int{96, 8}
	m.tensors["blk.0.attn_k.weight"] = []int{100, 8}
	for mix, want := range map[Mix][2]gguf.Type{
		Q2_K: {gguf.Q4_0, gguf.F16}, Q3_K_S: {gguf.Q4_0, gguf.F16}, Q4_K_M: {gguf.Q5_0, gguf.F16}, Q5_K_S: {gguf.Q5_1, gguf.F16},
		Q6_K: {gguf.Q8_0, gguf.F16}, IQ4_XS: {gguf.IQ4_NL, gguf.F16}, Q8_0: {gguf.Q8_0, gguf.F16}, Q4_0: {gguf.Q4_0, gguf.F16},
		F16: {gguf.F16, gguf.F16}, BF16: {gguf.BF16, gguf.BF16}, F32: {gguf.F32, gguf.F32},
	} {
		for _, pure := range []bool{false, true} {
			types, err := m.choose(t, mix, pure)
			if err != nil {
				t.Fatal(err)
			}
			if got := [2]gguf.Type{types["blk.0.attn_q.weight"], types["blk.0.attn_k.weight"]}; got != want {
				t.Errorf("%v: rows of 96 and 100 become %v, want %v", mix, got, want)
			}
		}
	}
}

func TestPureMakesNoExceptions(t *testing.T) {
	types, err := layered(4, 4, 1).choose(t, Q4_K_M, true)
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range types {
		if kind != gguf.Q4_K {
			t.Errorf("%s became %v", name, kind)
		}
	}
}

func TestTheOutputMatrixIsKeptFiner(t *testing.T) {
	m := layered(1, 4, 4)
	for _, c := range []struct {
		mix                           Mix
		embedding, output, tiedOutput gguf.Type
	}{
		{Q4_0, gguf.Q4_0, gguf.Q6_K, gguf.Q6_K},
		{Q2_K, gguf.Q2_K, gguf.Q6_K, gguf.Q6_K},
		{Q8_0, gguf.Q8_0, gguf.Q8_0, gguf.Q8_0},
		{F16, gguf.F16, gguf.F16, gguf.F16},
	} {
		types, err := m.choose(t, c.mix, false)
		if err != nil {
			t.Fatal(err)
		}
		tied := layered(1, 4, 4)
		delete(tied.tensors, "output.weight")
		tiedTypes, err := tied.choose(t, c.mix, false)
		if err != nil {
			t.Fatal(err)
		}
		if types["token_embd.weight"] != c.embedding || types["output.weight"] != c.output || tiedTypes["token_embd.weight"] != c.tiedOutput {
			t.Errorf("%v: embedding %v, output %v, tied embedding %v; want %v", c.mix,
				types["token_embd.weight"], types["output.weight"], tiedTypes["token_embd.weight"], c)
		}
	}
}

func TestMiddleLayersOfQ4_K_MAlternate(t *testing.T) {
	types, err := layered(16, 4, 4).choose(t, Q4_K_M, false)
	if err != nil {
		t.Fatal(err)
	}
	finer := map[int]bool{0: true, 1: true, 4: true, 7: true, 10: true, 13: true, 14: true, 15: true}
	for i := range 16 {
		want := gguf.Q4_K
		if finer[i] {
			want = gguf.Q6_K
		}
		for _, name := range []string{"attn_v", "ffn_down"} {
			if got := types[fmt.Sprintf("blk.%d.%s.weight", i, name)]; got != want {
				t.Errorf("layer %d: %s is %v, want %v", i, name, got, want)
			}
		}
	}
}

func TestLargeLlamaWithSharedValuesKeepsThemFiner(t *testing.T) {
	for headsKV, want := range map[uint32]gguf.Type{8: gguf.Q5_K, 64: gguf.Q4_K} {
		types, err := layered(80, 64, headsKV).choose(t, Q4_K_S, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := types["blk.40.attn_v.weight"]; got != want {
			t.Errorf("80 layers, %d key/value heads: attn_v is %v, want %v", headsKV, got, want)
		}
	}
}

func TestSmallAndSensitiveTensorsAreLeftAlone(t *testing.T) {
	m := layered(1, 4, 1)
	left := map[string][]int{
		"output_norm.weight": {256}, "blk.0.attn_q.bias": {256, 2}, "blk.0.ssm_conv1d.weight": {256, 8},
		"per_layer_model_proj.weight": {256, 8}, "blk.0.some_norm.weight": {256, 8}, "blk.0.column.weight": {256, 1},
		"blk.0.ffn_gate_inp.weight": {256, 8}, "blk.0.altup_proj.weight": {256, 8}, "blk.0.laurel_l.weight": {256, 8},
	}
	for name, shape := range left {
		m.tensors[name] = shape
	}
	types, err := m.choose(t, Q4_0, false)
	if err != nil {
		t.Fatal(err)
	}
	for name := range left {
		if got := types[name]; got != gguf.F16 && got != gguf.F32 {
			t.Errorf("%s became %v", name, got)
		}
	}
}

func TestModelsWithRulesOfTheirOwnAreRefused(t *testing.T) {
	experts := layered(1, 4, 1)
	experts.metadata["expert_count"] = uint32(8)
	falcon := layered(1, 4, 1)
	falcon.arch = "falcon"
	for name, m := range map[string]model{"experts": experts, "falcon": falcon} {
		_, err := m.choose(t, Q4_K_M, false)
		var refused *InputError
		if !errors.As(err, &refused) || refused.File == "" || refused.Tensor != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	incomplete := layered(1, 4, 1)
	delete(incomplete.metadata, "block_count")
	_, err := incomplete.choose(t, Q4_K_M, false)
	var missing *gguf.KeyError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "llama.block_count") {
		t.Errorf("without block_count: %v", err)
	}
}

func TestFirstLayersAndSharedValuesAreKeptFiner(t *testing.T) {
	for _, c := range []struct {
		mix        Mix
		heads      uint32 // for each of four key/value heads
		matrix     string
		finer      int // layers, of 32
		first, all gguf.Type
	}{
		{Q2_K, 4, "attn_v", 0, gguf.F32, gguf.Q4_K}, {Q2_K, 3, "attn_v", 0, gguf.F32, gguf.Q3_K},
		{Q2_K, 1, "ffn_down", 0, gguf.F32, gguf.Q3_K}, {Q2_K, 1, "attn_output", 0, gguf.F32, gguf.Q3_K},
		{Q3_K_M, 1, "attn_v", 2, gguf.Q5_K, gguf.Q4_K}, {Q3_K_M, 1, "ffn_down", 2, gguf.Q5_K, gguf.Q4_K},
		{Q3_K_M, 1, "attn_output", 0, gguf.F32, gguf.Q4_K},
		{Q3_K_L, 1, "attn_v", 0, gguf.F32, gguf.Q5_K}, {Q3_K_L, 1, "ffn_down", 0, gguf.F32, gguf.Q5_K}, {Q3_K_L, 1, "attn_output", 0, gguf.F32, gguf.Q5_K},
		{Q4_K_S, 1, "attn_v", 4, gguf.Q5_K, gguf.Q4_K}, {Q4_K_S, 1, "ffn_down", 4, gguf.Q5_K, gguf.Q4_K},
		{IQ4_NL, 4, "attn_v", 0, gguf.F32, gguf.Q5_K}, {IQ4_NL, 3, "attn_v", 0, gguf.F32, gguf.IQ4_NL}, {IQ4_NL, 1, "ffn_down", 4, gguf.Q5_K, gguf.IQ4_NL},
		{IQ4_XS, 4, "attn_v", 0, gguf.F32, gguf.Q5_K}, {IQ4_XS, 3, "attn_v", 0, gguf.F32, gguf.IQ4_XS}, {IQ4_XS, 1, "ffn_down", 4, gguf.Q5_K, gguf.IQ4_XS},
		{Q5_K_S, 4, "attn_v", 0, gguf.F32, gguf.Q5_K}, {Q6_K, 4, "ffn_down", 0, gguf.F32, gguf.Q6_K},
	} {
		types, err := layered(32, 4*c.heads, 4).choose(t, c.mix, false)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 32 {
			want := c.all
			if i < c.finer {
				want = c.first
			}
			if got := types[fmt.Sprintf("blk.%d.%s.weight", i, c.matrix)]; got != want {
				t.Errorf("%v, %d heads share a value head: %s of layer %d is %v, want %v", c.mix, c.heads, c.matrix, i, got, want)
			}
		}
	}
}
