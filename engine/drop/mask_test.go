package drop

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// picture reads a drawing of a model and a mask, one row a layer: its kind (full, local, gated, recurrent, MTP), an
// optional "<- 4" for the layer whose keys and values it reads, and an x where its attention is dropped.
func picture(t *testing.T, drawing string) (roles []Role, layers []int) {
	t.Helper()
	kinds := map[string]Kind{"full": Full, "local": Local, "gated": Gated, "recurrent": Recurrent, "MTP": MTP}
	for line := range strings.Lines(strings.TrimSpace(drawing)) {
		row, layer := strings.Fields(line), len(roles)
		kind, known := kinds[row[0]]
		if !known {
			t.Fatalf("unknown kind %q", row[0])
		}
		role := Role{Kind: kind, Owner: layer}
		if !role.Attends() {
			role.Owner = None
		}
		if i := strings.Index(line, "<- "); i >= 0 {
			role.Owner = int(line[i+3] - '0')
		}
		if row[len(row)-1] == "x" {
			layers = append(layers, layer)
		}
		roles = append(roles, role)
	}
	return roles, layers
}

func TestResolve(t *testing.T) {
	tests := []struct {
		name, drawing string
		canonical     string
		err           string // part of the message; empty = accepted
	}{
		{"nothing dropped", `
			full
			full`, "", ""},
		{"some of a llama", `
			full x
			full
			full x`, "0,2", ""},
		{"all of a llama", `
			full x
			full x`, "", "no layer that stores keys and values is left; keep at least one of 0,1"},
		{"local and full of a gemma3", `
			local x
			local
			full  x`, "0,2", ""},
		{"one gated layer of two", `
			recurrent
			gated x
			recurrent
			gated`, "1", ""},
		{"every gated layer", `
			recurrent
			gated x
			recurrent
			gated x`, "", "no gated attention layer is left; keep at least one of 1,3"},
		{"a recurrent layer", `
			recurrent x
			gated`, "", "layer 0 is recurrent and has no attention to drop; droppable layers: 1"},
		{"an MTP block", `
			recurrent
			gated
			MTP x`, "", "layer 2 is a multi-token prediction block"},
		{"a consumer alone", `
			local
			full
			local <- 0
			full  <- 1 x`, "3", ""},
		{"an owner with all its consumers", `
			local x
			full
			local <- 0 x
			local <- 0 x`, "0,2,3", ""},
		{"an owner without one of its consumers", `
			local x
			full
			local <- 0 x
			local <- 0`, "", "layer 0 is dropped, but layer 3, which is not, reads its keys and values; also drop 3, or keep layer 0"},
		{"every owner and every consumer", `
			full x
			full <- 0 x`, "", "no layer that stores keys and values is left"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			roles, layers := picture(t, tt.drawing)
			mask, err := Resolve(roles, layers)
			if tt.err != "" {
				var typed *Error
				if !errors.As(err, &typed) || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want an *Error containing %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if mask.Canonical() != tt.canonical {
				t.Errorf("canonical %q, want %q", mask.Canonical(), tt.canonical)
			}
			for layer := range roles {
				if want := strings.Contains(","+tt.canonical+",", ","+join([]int{layer})+","); mask.Has(layer) != want {
					t.Errorf("Has(%d) = %v", layer, mask.Has(layer))
				}
			}
		})
	}
}

func TestResolveRefusesLayersThatAreNotThere(t *testing.T) {
	roles := []Role{{Full, 0}, {Full, 1}}
	for _, tt := range []struct {
		layers []int
		err    string
	}{
		{[]int{2}, "layer 2 does not exist; the model has layers 0 to 1"},
		{[]int{-1}, "layer -1 does not exist"},
		{[]int{1, 1}, "layer 1 is named twice"},
	} {
		if _, err := Resolve(roles, tt.layers); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%v: error %v, want %q", tt.layers, err, tt.err)
		}
	}
	if _, err := Resolve([]Role{{Recurrent, None}}, []int{0}); err == nil || !strings.Contains(err.Error(), "no layer whose attention may be dropped") {
		t.Errorf("error %v", err)
	}
}

func TestMaskDoesNotDependOnTheOrderOrTheSlice(t *testing.T) {
	roles := []Role{{Full, 0}, {Full, 1}, {Full, 2}, {Full, 3}}
	layers := []int{3, 0}
	a, err := Resolve(roles, layers)
	if err != nil {
		t.Fatal(err)
	}
	layers[0] = 2
	b, err := Resolve(roles, []int{0, 3})
	if err != nil {
		t.Fatal(err)
	}
	if a != b || a.Hash() != b.Hash() || a.Canonical() != "0,3" || a.String() != "0,3" {
		t.Errorf("masks %v and %v differ", a, b)
	}
	if diff := cmp.Diff([]int{0, 3}, a.Layers()); diff != "" {
		t.Error(diff)
	}
	if none, _ := Resolve(roles, nil); !none.Empty() || none.String() != "none" || none.Hash() == a.Hash() || none != (Mask{}) {
		t.Errorf("empty mask %v", none)
	}
}

func TestParseMask(t *testing.T) {
	for s, want := range map[string][]int{"": {}, " ": {}, "0,3": {0, 3}, "7, 2": {7, 2}, "-1": {-1}} {
		got, err := ParseMask(s)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("ParseMask(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{",", "0,", "a", "1.5", "0 3"} {
		if _, err := ParseMask(s); err == nil {
			t.Errorf("ParseMask(%q) accepted", s)
		}
	}
}
