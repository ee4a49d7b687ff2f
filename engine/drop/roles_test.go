package drop

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
)

// keys are metadata of a file, in no order.
type keys map[string]any

// file writes a GGUF file with metadata and one small tensor a name, and opens it.
func file(t *testing.T, arch string, meta keys, tensors ...string) *gguf.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	w, err := gguf.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Abort() }()
	steps := []error{w.Set("general.architecture", gguf.ValueOf(arch))}
	for k, v := range meta {
		steps = append(steps, w.Set(arch+"."+k, gguf.ValueOf(v)))
	}
	for _, name := range tensors {
		steps = append(steps, w.Add(name, gguf.F32, []int{1}))
	}
	for _, name := range tensors {
		steps = append(steps, w.Data(name, make([]byte, 4)))
	}
	if err := errors.Join(append(steps, w.Finish())...); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func blocks(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("blk.%d.attn_norm.weight", i))
	}
	return names
}

// letters draws roles: F full, l local, g gated, r recurrent, m MTP; consumers are followed by their owner.
func letters(roles []Role) string {
	var b strings.Builder
	for layer, r := range roles {
		b.WriteString(map[Kind]string{Full: "F", Local: "l", Gated: "g", Recurrent: "r", MTP: "m"}[r.Kind])
		if r.Consumes(layer) {
			fmt.Fprint(&b, r.Owner)
		}
	}
	return b.String()
}

func TestRoles(t *testing.T) {
	pattern := []bool{true, true, false, true, true, false}
	for _, tt := range []struct {
		name, arch string
		meta       keys
		want       string
	}{
		{"llama", "llama", keys{"block_count": uint32(4)}, "FFFF"},
		{"gemma3 without a window", "gemma3", keys{"block_count": uint32(3)}, "FFF"},
		{"gemma3", "gemma3", keys{"block_count": uint32(8), "attention.sliding_window": uint32(512)}, "lllllFll"},
		{"gemma3 with a period", "gemma3", keys{"block_count": uint32(5), "attention.sliding_window": uint32(512), "attention.sliding_window_pattern": uint32(2)}, "lFlFl"},
		{"gemma3 with a list", "gemma3", keys{"block_count": uint32(6), "attention.sliding_window": uint32(512), "attention.sliding_window_pattern": pattern}, "llFllF"},
		{"qwen35", "qwen35", keys{"block_count": uint32(8)}, "rrrgrrrg"},
		{"qwen35 9B: 24 recurrent, 8 gated, 1 MTP", "qwen35", keys{"block_count": uint32(33), "nextn_predict_layers": uint32(1), "full_attention_interval": uint32(4)}, strings.Repeat("rrrg", 8) + "m"},
		{"qwen35 with a list", "qwen35", keys{"block_count": uint32(4), "attention.recurrent_layers": []bool{true, false, false, true}}, "rggr"},
		{"gemma4 that shares nothing", "gemma4", keys{"block_count": uint32(6), "attention.sliding_window_pattern": pattern}, "llFllF"},
		{"gemma4 that shares", "gemma4", keys{"block_count": uint32(6), "attention.sliding_window_pattern": pattern, "attention.shared_kv_layers": uint32(3)}, "llFl1l1F2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			roles, err := Roles(file(t, tt.arch, tt.meta, blocks(33)...))
			if err != nil {
				t.Fatal(err)
			}
			if got := letters(roles); got != tt.want {
				t.Errorf("roles %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRolesOfTheE4BOfTheFacts(t *testing.T) {
	pattern := make([]bool, 42)
	for i := range pattern {
		pattern[i] = i%6 != 5
	}
	roles, err := Roles(file(t, "gemma4", keys{"block_count": uint32(42), "attention.sliding_window_pattern": pattern, "attention.shared_kv_layers": uint32(18)}, blocks(42)...))
	if err != nil {
		t.Fatal(err)
	}
	if got := join(Consumers(roles, 23)); got != "29,35,41" {
		t.Errorf("layer 23 serves %s", got)
	}
	if got := len(Consumers(roles, 22)); got != 15 {
		t.Errorf("layer 22 serves %d layers", got)
	}
	if roles[22].Describe(22) != "local" || roles[41].Describe(41) != "full, reads the keys and values of layer 23" {
		t.Errorf("%s; %s", roles[22].Describe(22), roles[41].Describe(41))
	}
}

func TestRolesRefuse(t *testing.T) {
	for _, tt := range []struct {
		name, arch string
		meta       keys
		tensors    []string
		err        string
	}{
		{"another architecture", "mamba2", nil, nil, "architecture mamba2 is not supported and nothing in it may be dropped; supported are llama, gemma3, qwen35, gemma4"},
		{"experts", "gemma4", keys{"block_count": uint32(1)}, []string{"blk.0.ffn_gate_inp.weight"}, "architecture gemma4 with experts (MoE) is not supported"},
		{"no block count", "llama", nil, blocks(1), `metadata key "llama.block_count"`},
		{"a block count of fantasy", "llama", keys{"block_count": uint32(1 << 31)}, blocks(1), "key llama.block_count: expected 1 to 1, the number of tensors, found 2147483648"},
		{"gemma4 without a pattern", "gemma4", keys{"block_count": uint32(1)}, blocks(1), `metadata key "gemma4.attention.sliding_window_pattern"`},
		{"a short pattern", "gemma4", keys{"block_count": uint32(3), "attention.sliding_window_pattern": []bool{true}}, blocks(3), "expected a flag for each of 3 layers, found 1 flags"},
		{"too many shared layers", "gemma4", keys{"block_count": uint32(3), "attention.sliding_window_pattern": []bool{true, false, false}, "attention.shared_kv_layers": uint32(2)}, blocks(3), "attention.shared_kv_layers: expected at most 1"},
		{"more shared layers than can be counted", "gemma4", keys{"block_count": uint32(3), "attention.sliding_window_pattern": []bool{true, false, false}, "attention.shared_kv_layers": uint64(math.MaxUint64)}, blocks(3), "attention.shared_kv_layers: expected at most 1"},
		{"shared layers of a single one", "gemma4", keys{"block_count": uint32(1), "attention.sliding_window_pattern": []bool{false}, "attention.shared_kv_layers": uint32(1)}, blocks(1), "attention.shared_kv_layers: expected at most 0"},
		{"an owner of the wrong kind", "gemma4", keys{"block_count": uint32(3), "attention.sliding_window_pattern": []bool{false, false, true}, "attention.shared_kv_layers": uint32(1)}, blocks(3), "expected layer 0, whose keys and values layer 2 reads, to be local as well, found full"},
		{"only MTP blocks", "qwen35", keys{"block_count": uint32(1), "nextn_predict_layers": uint32(1)}, blocks(1), "expected fewer than the 1 blocks, found 1"},
		{"an interval of zero", "qwen35", keys{"block_count": uint32(1), "full_attention_interval": uint32(0)}, blocks(1), "expected at least 1, found 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Roles(file(t, tt.arch, tt.meta, tt.tensors...))
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
	var unsupported *UnsupportedError
	if _, err := Roles(file(t, "rwkv7", nil)); !errors.As(err, &unsupported) || unsupported.Arch != "rwkv7" {
		t.Errorf("error %v is no *UnsupportedError", err)
	}
}

func FuzzParseMask(f *testing.F) {
	for _, s := range []string{"", "0,3", "3, 0", "-1", "0,,1", "99999999999999999999"} {
		f.Add(s)
	}
	roles := []Role{{Full, 0}, {Full, 1}, {Full, 2}, {Full, 3}}
	f.Fuzz(func(t *testing.T, s string) {
		layers, err := ParseMask(s)
		if err != nil {
			return
		}
		mask, err := Resolve(roles, layers)
		if err != nil {
			return
		}
		again, err := ParseMask(mask.Canonical())
		if err != nil {
			t.Fatal(err)
		}
		if second, err := Resolve(roles, again); err != nil || second != mask {
			t.Errorf("%q: canonical form %q reads as %v, %v", s, mask.Canonical(), second, err)
		}
	})
}
