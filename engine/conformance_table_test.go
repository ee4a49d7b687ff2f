package engine

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/kernel"
	"attnbudget/internal/markdown"
)

var conformanceTable = flag.Bool("conformance-table", false, "rewrite the tables of docs/conformance.md; needs the shared conformance data")

const conformanceDoc = "../docs/conformance.md"

// TestConformanceTable fills the tables of the document in: what stands between <!-- NAME --> and <!-- end -->.
func TestConformanceTable(t *testing.T) {
	if !*conformanceTable {
		t.Skip("no -conformance-table")
	}
	index, b := readIndex(t), readBuilds(t)
	doc, err := os.ReadFile(conformanceDoc)
	if err != nil {
		t.Fatal(err)
	}
	text := string(doc)
	for name, table := range map[string]func(t *testing.T, index conformanceIndex, b builds) []string{
		"kernels": kernelLine, "cases": caseTable, "builds": buildTable, "hidden": hiddenTable, "shallow": shallowTable, "batches": batchTable,
	} {
		if text, err = markdown.Fill(text, name, strings.Join(table(t, index, b), "\n")); err != nil {
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

func kernelLine(*testing.T, conformanceIndex, builds) []string {
	return []string{fmt.Sprintf("The figures below were computed by the %s kernels.", kernel.Name())}
}

// verdict says whether own keeps the agreed limit, or the wider one where upstream does not keep the agreed one.
func (b bound) verdict(own float64) string {
	switch {
	case own <= b.agreed:
		return "yes"
	case own <= b.limit():
		return "as upstream"
	}
	return "**no**"
}

// cells are own and its relations to the bound.
func (b bound) cells(own float64) string {
	return fmt.Sprintf("%.2g | %.2g | %.2g | %.2g | %s", b.agreed, own/b.agreed, b.furthest/b.agreed, b.limit()/b.agreed, b.verdict(own))
}

const boundHeading = "agreed limit | ours / agreed | upstream / agreed | limit / agreed | met |"

func caseTable(t *testing.T, index conformanceIndex, b builds) []string {
	out := []string{
		"| case | difference / σ | KL to reference | KL of reference to base | " + boundHeading,
		"|---|---|---|---|---|---|---|---|---|",
	}
	for _, c := range index.Cases {
		finished := false
		t.Run(c.Case, func(t *testing.T) {
			want, base, got := c.reference(t), index.base(t, c), c.run(t, index)
			loss := "-"
			if base != nil && c.Case != c.Model+".base" {
				loss = fmt.Sprintf("%.2g", meanDivergence(base, want, c.NVocab))
			}
			x := bound{agreed: c.agreed(want, base), furthest: b.furthest(t, c.Case)}
			out = append(out, fmt.Sprintf("| %s | %.2g | %.2g | %s | %s |", c.Case, maxDifference(got, want)/deviation(want),
				math.Abs(meanDivergence(want, got, c.NVocab)), loss, x.cells(c.distance(got, want))))
			finished = true
		})
		if !finished {
			t.Fatalf("%s was not computed", c.Case)
		}
	}
	return out
}

// buildTable shows the distance of every build of upstream to the reference, in agreed limits, where one does not keep them.
func buildTable(t *testing.T, index conformanceIndex, b builds) []string {
	out := []string{
		"| case | " + strings.Join(b.Names, " | ") + " |",
		"|---" + strings.Repeat("|---", len(b.Names)) + "|",
	}
	for _, c := range index.Cases {
		x := bound{agreed: c.agreed(c.reference(t), index.base(t, c)), furthest: b.furthest(t, c.Case)}
		if x.furthest <= x.agreed {
			continue
		}
		row := "| " + c.Case + " |"
		for _, d := range b.Cases[c.Case] {
			row += fmt.Sprintf(" %.2g |", d/x.agreed)
		}
		out = append(out, row)
	}
	return out
}

// hiddenTable shows the worst layer of each model.
func hiddenTable(t *testing.T, index conformanceIndex, b builds) []string {
	out := []string{"| model | worst layer | difference / σ | " + boundHeading, "|---|---|---|---|---|---|---|---|"}
	for _, name := range architectures {
		m := openTest(t, tiny(name), Options{ExpandF32: true})
		layers := m.Info().Layers
		got, want := layersOf(hiddenStates(t, m, index.Tokens["seed7-n64"]), layers), layersOf(referenceHidden(t, name), layers)
		rows := make([]string, layers)
		share := make([]float64, layers)
		for i := range layers {
			x := bound{agreed: 2e-4 * deviation(want[i]), furthest: b.furthest(t, hiddenCase(name, i))}
			own := maxDifference(got[i], want[i])
			share[i] = own / x.limit()
			rows[i] = fmt.Sprintf("| %s-tiny | %d of 0-%d | %.2g | %s |", name, i, layers-1, own/deviation(want[i]), x.cells(own))
		}
		out = append(out, rows[slices.Index(share, slices.Max(share))])
	}
	return out
}

func shallowTable(t *testing.T, index conformanceIndex, b builds) []string {
	out := []string{"| model | weights | cache | ours | upstream's furthest build | limit | met |", "|---|---|---|---|---|---|---|"}
	for _, s := range shallowCases() {
		own := typicalDifference(s.logits(t, index.Tokens["seed7-n64"]), s.reference(t))
		out = append(out, fmt.Sprintf("| %s | %s | %s | %.1e | %.1e | %.0e | %s |", s.model, s.weights, s.kv, own, b.furthest(t, s.name()), s.limit(),
			bound{agreed: s.limit()}.verdict(own)))
	}
	return out
}

// batchTable shows how far logits move when the prompt comes in other pieces.
func batchTable(t *testing.T, index conformanceIndex, _ builds) []string {
	out := []string{"| model | cache | one token at a time | seven at a time | physical batches of 16 | limit |", "|---|---|---|---|---|---|"}
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
			out = append(out, fmt.Sprintf("| %s-tiny | %s | %.2g | %.2g | %.2g | 1e-05 |", name, kv, moved[2], moved[1], moved[0]))
			if slices.Max(moved) > 1e-5 {
				t.Errorf("%s, cache %s: other batches move logits by %g", name, kv, slices.Max(moved))
			}
		}
	}
	return out
}
