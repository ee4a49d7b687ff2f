package realmodels

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/kernel/kerneltest"
)

// models are the folders of testdata.
var models = []string{"smollm2-135m", "gemma-3-270m"}

// The agreement that is asked for.
const (
	maxPerplexity = 1e-3 // relative difference of a perplexity
	maxGap        = 1e-2 // how close the two highest logits must be for another choice to be no disagreement
	minEqual      = 0.98 // part of picks
)

func full() bool { return os.Getenv("ATTNBUDGET_FULL") == "1" }

// The ordinary tests take the beginning of everything.
var beginning = sizes{window: 1, chunks: 1, continuations: 2, hellaSwag: 3, winogrande: 5}

func TestTokensOfRealModelsAreUpstreams(t *testing.T) {
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			u := read(t, name, "file")
			s := open(t, u.Model, engine.Options{}, engine.ContextOptions{})
			ids := s.tok.Encode(string(u.text(t).Data), true, false)
			if got := listOf(ids[:min(len(ids), u.FirstTokens.Count)]); got != u.FirstTokens {
				t.Errorf("the first tokens of wiki.test.raw are %+v, upstream's %+v", got, u.FirstTokens)
			}
			if got := listOf(ids); got != u.Tokens {
				t.Errorf("the tokens of wiki.test.raw are %+v, upstream's %+v", got, u.Tokens)
			}
			for i, special := range []bool{false, true} {
				if got := listOf(s.tokensOfTexts(t, special)); got != u.ConformanceTexts[i] {
					t.Errorf("the tokens of the conformance texts, special tokens %v: %+v, upstream's %+v", special, got, u.ConformanceTexts[i])
				}
			}
		})
	}
}

// tokensOfTexts are the tokens of texts in every script, with a -1 after each text.
func (s *subject) tokensOfTexts(t *testing.T, special bool) []int32 {
	t.Helper()
	b, err := os.ReadFile(sharedTexts)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no shared conformance data: ", err)
	}
	var texts []struct{ Text string }
	if err = errors.Join(err, json.Unmarshal(b, &texts)); err != nil {
		t.Fatal(err)
	}
	var ids []int32
	for _, text := range texts {
		ids = append(append(ids, s.tok.Encode(text.Text, special, special)...), -1)
	}
	return ids
}

// With weights expanded to float32 on both sides, and caches of float32, nothing is rounded to a grid, and the two engines
// must agree to the last of what they are asked for.
func TestRealModelsAgreeWithUpstream(t *testing.T) {
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			u := read(t, name, "expanded")
			c := compare(t, measureExpanded(t, u, u.asked()), u)
			c.check(t)
			if *update {
				addColumn(name, "weights as float32", c)
			}
		})
	}
}

// asked is what is measured: all in a full test, otherwise the beginning.
func (u *upstream) asked() sizes {
	if full() {
		return u.sizes()
	}
	return beginning
}

// check holds a comparison to the agreement that is asked for.
func (c comparison) check(t *testing.T) {
	t.Helper()
	for what, p := range map[string]perplexities{"the first tokens": c.window, "the chunks": c.chunks} {
		t.Logf("%s: %s", what, p)
		if !(math.Abs(p.difference()) <= maxPerplexity) {
			t.Errorf("perplexity of %s: %s", what, p)
		}
	}
	t.Logf("greedy choices: %s; upstream was ahead by at most %.2g where they differ", c.choices, c.worstGap)
	for _, gap := range c.gaps {
		t.Error(gap)
	}
	for what, k := range map[string]counts{"HellaSwag": c.hellaSwag, "Winogrande": c.winogrande} {
		t.Logf("%s: %s", what, k)
		if float64(k.equal) < minEqual*float64(k.all) {
			t.Errorf("%s: %s", what, k)
		}
	}
}

func measureExpanded(t *testing.T, u *upstream, n sizes) *result {
	return open(t, u.Model, engine.Options{ExpandF32: true}, engine.ContextOptions{TypeK: engine.CacheF32, TypeV: engine.CacheF32}).measure(t, u, n)
}

// With the files as they are, activations are rounded to 8 bits before every product. What differs in the last bit of a
// float32 is now and then rounded to another code, which is a difference of 1/127, and a few layers later the difference is
// as large as that of the rounding itself. So the files are held to upstream by the kernels that add up in its order, and then
// nothing may differ: neither what is asked for, nor a figure beyond the digits that testdata has.
func TestFilesGiveUpstreamsResultsInItsOrder(t *testing.T) {
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			kerneltest.Use(t, "upstream")
			u := read(t, name, "file-haswell")
			c := compare(t, open(t, u.Model, engine.Options{}, engine.ContextOptions{}).measure(t, u, u.asked()), u)
			c.check(t)
			for what, p := range map[string]perplexities{"the first tokens": c.window, "the chunks": c.chunks} {
				if !(p.apart <= equalSums) {
					t.Errorf("log-likelihood of %s: a sum differs by %.2g relative, more than %g", what, p.apart, equalSums)
				}
			}
			for what, k := range map[string]counts{"greedy choices": c.choices, "HellaSwag": c.hellaSwag, "Winogrande": c.winogrande} {
				if k.equal != k.all || !(k.distance <= equalScores) {
					t.Errorf("%s: %s", what, k)
				}
			}
			if *update {
				addColumn(name, "the file in upstream's order", c)
			}
		})
	}
}

// Where sums are equal in every bit: what testdata rounds away, and what a sum of logarithms in float32 differs by from one in
// float64.
const (
	equalSums   = 1e-7
	equalScores = 1e-6
)

// How far rounding alone takes results: the files by the fastest kernels, and upstream's build for AVX-512, against its build
// for AVX2. They differ by nothing but the order of additions, and by about as much. It is only reported.
func TestFilesByOtherOrdersAreReported(t *testing.T) {
	if !*update {
		t.Skip("only for the report; set -update")
	}
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			u, other := read(t, name, "file-haswell"), read(t, name, "file")
			addColumn(name, "the file by the fastest kernels", compare(t, open(t, u.Model, engine.Options{}, engine.ContextOptions{}).measure(t, u, u.sizes()), u))
			addColumn(name, "upstream's build for AVX-512", compare(t, other.result(u), u))
		})
	}
}
