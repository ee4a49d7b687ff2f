package engine

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"attnbudget/engine/kernel"
	"attnbudget/engine/kernel/kerneltest"
	"attnbudget/internal/markdown"
)

var conformanceTable = flag.Bool("conformance-table", false, "rewrite the tables of docs/conformance.md; needs the shared conformance data")

const conformanceDoc = "../docs/conformance.md"

// TestConformanceTable fills the tables of the document in: what stands between <!-- NAME --> and <!-- end -->.
func TestConformanceTable(t *testing.T) {
	if !*conformanceTable {
		t.Skip("no -conformance-table")
	}
	index := readIndex(t)
	doc, err := os.ReadFile(conformanceDoc)
	if err != nil {
		t.Fatal(err)
	}
	text := string(doc)
	for name, table := range map[string]func(t *testing.T, index conformanceIndex) string{
		"kernels": kernelLine, "cases": caseTable, "hidden": hiddenTable, "batches": batchTable,
	} {
		if text, err = markdown.Fill(text, name, table(t, index)); err != nil {
			t.Fatalf("%s: %v", conformanceDoc, err)
		}
	}
	if t.Failed() {
		return
	}
	if err := os.WriteFile(conformanceDoc, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func kernelLine(*testing.T, conformanceIndex) string {
	return fmt.Sprintf("The ordinary kernels were %s.", kernel.Name())
}

// caseTable has the ordinary kernels and upstream's order side by side.
func caseTable(t *testing.T, index conformanceIndex) string {
	compute := func(kernels string) map[string][]float32 {
		out := map[string][]float32{}
		for _, c := range index.Cases {
			t.Run(c.Case, func(t *testing.T) {
				kerneltest.Use(t, kernels)
				out[c.Case] = c.run(t, index)
			})
			if out[c.Case] == nil {
				t.Fatalf("%s was not computed", c.Case)
			}
		}
		return out
	}
	ordinary, ordered := compute(kernel.Name()), compute("upstream")
	var rows [][]string
	for _, c := range index.Cases {
		want, base, got := c.reference(t), index.base(t, c), ordinary[c.Case]
		loss := "-"
		if base != nil && c.Case != c.Model+".base" {
			loss = fmt.Sprintf("%.2g", meanDivergence(base, want, c.NVocab))
		}
		agreed := c.agreed(want, base)
		share, met := c.distance(got, want)/agreed, "yes"
		if share > 1 {
			met = "no"
		}
		rows = append(rows, []string{c.Case, fmt.Sprintf("%.2g", maxDifference(got, want)/deviation(want)), fmt.Sprintf("%.2g", math.Abs(meanDivergence(want, got, c.NVocab))),
			loss, fmt.Sprintf("%.2g", agreed), fmt.Sprintf("%.2g", share), met, fmt.Sprintf("%d of %d", unequal(ordered[c.Case], want), len(want))})
	}
	return markdown.Table([]string{"case", "difference / σ", "KL to reference", "KL of reference to base", "limit", "share of it", "met", "logits that differ in upstream's order"}, rows)
}

// hiddenTable shows the worst layer of each model.
func hiddenTable(t *testing.T, index conformanceIndex) string {
	var rows [][]string
	for _, name := range architectures {
		m := openTest(t, tiny(name), Options{ExpandF32: true})
		layers := m.Info().Layers
		want := layersOf(referenceHidden(t, name), layers)
		share := make([]float64, layers)
		for i, x := range layersOf(hiddenStates(t, m, index.Tokens["seed7-n64"]), layers) {
			share[i] = maxDifference(x, want[i]) / (2e-4 * deviation(want[i]))
		}
		worst := slices.Index(share, slices.Max(share))
		rows = append(rows, []string{name + "-tiny", fmt.Sprintf("%d of 0-%d", worst, layers-1), fmt.Sprintf("%.2g", 2e-4*share[worst]), fmt.Sprintf("%.2g", share[worst])})
	}
	return markdown.Table([]string{"model", "worst layer", "difference / σ", "share of the limit"}, rows)
}

// batchTable shows how far logits move when the prompt comes in other pieces.
func batchTable(t *testing.T, index conformanceIndex) string {
	var rows [][]string
	tokens := index.Tokens["seed7-n64"]
	for _, name := range architectures {
		m := openTest(t, tiny(name), Options{Threads: 2})
		for _, kv := range CacheTypes {
			typ, err := ParseCacheType(kv)
			if err != nil {
				t.Fatal(err)
			}
			o := ContextOptions{NCtx: len(tokens), TypeK: typ, TypeV: typ}
			small := o
			small.NUBatch = 16
			whole := decode(t, newTestContext(t, m, o), tokens)
			moved := []float64{maxDifference(decode(t, newTestContext(t, m, small), tokens), whole)}
			for _, n := range []int{7, 1} {
				x := newTestContext(t, m, o)
				var got []float32
				for piece := range slices.Chunk(tokens, n) {
					got = append(got, decode(t, x, piece)...)
				}
				moved = append(moved, maxDifference(got, whole))
			}
			row := []string{name + "-tiny", kv}
			for _, d := range []float64{moved[2], moved[1], moved[0], 1e-5} {
				row = append(row, fmt.Sprintf("%.2g", d))
			}
			rows = append(rows, row)
			if slices.Max(moved) > 1e-5 {
				t.Errorf("%s, cache %s: other batches move logits by %g", name, kv, slices.Max(moved))
			}
		}
	}
	return markdown.Table([]string{"model", "cache", "one token at a time", "seven at a time", "physical batches of 16", "limit"}, rows)
}
