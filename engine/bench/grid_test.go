package bench

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCountsReadsListsAndRanges(t *testing.T) {
	for _, c := range []struct {
		list string
		want []int
		err  string
	}{
		{"512", []int{512}, ""},
		{"128, 512", []int{128, 512}, ""},
		{"0-4", []int{0, 1, 2, 3, 4}, ""},
		{"0-4096+1024", []int{0, 1024, 2048, 3072, 4096}, ""},
		{"1-8*2,100", []int{1, 2, 4, 8, 100}, ""},
		{"5-5", []int{5}, ""},
		{"5-4", nil, `"5-4" in "5-4": the range is empty`},
		{"0-8*2", nil, `"0-8*2" in "0-8*2": the range never ends`},
		{"1-8+0", nil, `"1-8+0" in "1-8+0": the range never ends`},
		{"1-2000000", nil, `"1-2000000" has more than 10000 values`},
		{"many", nil, `"many" in "many": "many" is not a count; write a number, a list 128,512 or a range 0-4096+1024`},
		{"", nil, `"" in "": "" is not a count; write a number, a list 128,512 or a range 0-4096+1024`},
	} {
		got, err := Counts(c.list)
		if msg := fmt.Sprint(err); c.err != "" && msg != c.err || c.err == "" && err != nil {
			t.Errorf("Counts(%q): %v, want %q", c.list, err, c.err)
		}
		if c.err == "" && !cmp.Equal(got, c.want) {
			t.Errorf("Counts(%q) = %v, want %v", c.list, got, c.want)
		}
	}
}

func TestTestsComeInLlamaBenchsOrder(t *testing.T) {
	var got []string
	for _, o := range Tests(Options{}, []int{64, 0}, []int{16}, []int{0, 256}, []Pair{{64, 16}}) {
		got = append(got, Result{Prompt: o.Prompt, Generate: o.Generate, Depth: o.Depth}.Test())
	}
	want := []string{"pp64", "tg16", "pp64+tg16", "pp64 @ d256", "tg16 @ d256", "pp64+tg16 @ d256"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func FuzzCounts(f *testing.F) {
	for _, s := range []string{"512", "0-4096+1024", "1-8*2", "9-1", "-", "1-2-3", "2147483647-2147483647*2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := Counts(s); err == nil && (len(got) == 0 || len(got) > maxCounts) {
			t.Errorf("Counts(%q): %d values", s, len(got))
		}
	})
}
