package eval

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/kernel/kerneltest"
	"attnbudget/engine/tokenizer"
)

// The kernels of upstream's order compute what its build for AVX2 does, which made the logs. So not a digit may differ.

func TestPrintedFiguresAreUpstreamsInItsOrder(t *testing.T) {
	kerneltest.Use(t, "upstream")
	for _, l := range []struct {
		log, format string
		figures     int // in the whole log
		run         func(t *testing.T, m *engine.Model, tok *tokenizer.Tokenizer) string
	}{
		{"ppl-F16", "F16", 159, perplexityOf(PerplexityOptions{}, 2)},
		{"ppl-F16-type1", "F16", 473, perplexityOf(PerplexityOptions{Rows: true}, 1)},
		{"ppl-F16-c2048", "F16", 41, perplexityOf(PerplexityOptions{NCtx: 2048}, 1)},
		{"ppl-Q4_0", "Q4_0", 159, perplexityOf(PerplexityOptions{}, 2)},
		{"ppl-Q4_K_M", "Q4_K_M", 159, perplexityOf(PerplexityOptions{}, 2)},
		{"hellaswag-F16", "F16", 1200, hellaSwagOf(TaskOptions{})},
		{"hellaswag-F16-100", "F16", 300, hellaSwagOf(TaskOptions{Tasks: 100})},
		{"hellaswag-Q4_0", "Q4_0", 1200, hellaSwagOf(TaskOptions{})},
		{"winogrande-F16", "F16", 1202, winograndeOf},
		{"winogrande-Q4_0", "Q4_0", 1202, winograndeOf},
		{"multiple-choice-F16", "F16", 204, choiceOf},
	} {
		t.Run(l.log, func(t *testing.T) {
			m, tok := quantisedModel(t, l.format)
			compareFigures(t, l.log, l.run(t, m, tok), l.figures)
		})
	}
}

func perplexityOf(o PerplexityOptions, beginning int) func(t *testing.T, m *engine.Model, tok *tokenizer.Tokenizer) string {
	return func(t *testing.T, m *engine.Model, tok *tokenizer.Tokenizer) string {
		if !full() {
			o.Chunks = beginning
		}
		p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), o)
		if err != nil {
			t.Fatal(err)
		}
		return printed(t, p, m, nil)
	}
}

// someTasks is how many are evaluated in the ordinary test.
const someTasks = 20

func hellaSwagOf(o TaskOptions) func(t *testing.T, m *engine.Model, tok *tokenizer.Tokenizer) string {
	return func(t *testing.T, m *engine.Model, tok *tokenizer.Tokenizer) string {
		h, err := NewHellaSwag(tok, builtinInput(t, "gloss-swag.txt"), o)
		if err != nil {
			t.Fatal(err)
		}
		if !full() {
			h.groups = h.groups[:someTasks]
		}
		return printed(t, h, m, nil)
	}
}

func winograndeOf(t *testing.T, m *engine.Model, tok *tokenizer.Tokenizer) string {
	w, err := NewWinogrande(tok, builtinInput(t, "gloss-grande.csv"), TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !full() {
		w.groups = w.groups[:someTasks]
	}
	return printed(t, w, m, nil)
}

func choiceOf(t *testing.T, m *engine.Model, tok *tokenizer.Tokenizer) string {
	c := arcEasy(t, tok)
	if !full() {
		c.groups = c.groups[:someTasks]
	}
	return printed(t, c, m, nil)
}

func TestPrintedDivergencesAreUpstreamsInItsOrder(t *testing.T) {
	kerneltest.Use(t, "upstream")
	formats, chunks := []string{"Q8_0"}, 2
	if full() {
		formats, chunks = []string{"Q8_0", "Q4_K_M", "Q4_0", "Q2_K"}, 40
	}
	m, base := shippedBase(t, chunks)
	compareFigures(t, "kld-base-F16", printed(t, base, m, nil), 42)
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			m, tok := quantisedModel(t, format)
			compareFigures(t, "kld-"+format, printed(t, base.against(t, tok), m, nil), 461)
		})
	}
}

// Of other formats, and of F16 without the attention of some layers, the last figures of upstream's logs are there.
func TestFiguresOfEveryFormatAndMaskAreUpstreamsInItsOrder(t *testing.T) {
	if !full() {
		t.Skip("minutes; set ATTNBUDGET_FULL=1")
	}
	kerneltest.Use(t, "upstream")
	all := upstreamFigures(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			want := all[name]
			format, mask := masked(t, name)
			m, tok := quantisedModel(t, format)
			check := func(what, ours, theirs string) {
				difference := "none"
				if ours != theirs {
					difference = "in digits"
					t.Errorf("%s: %q, upstream's %q", what, ours, theirs)
				}
				note(sectionOrder, name+", "+what, shown(theirs), shown(ours), difference, "none")
			}
			for _, c := range []struct {
				nCtx    int
				figures []float64
			}{{512, want.PPL512}, {2048, want.PPL2048}} {
				if c.figures == nil {
					continue
				}
				p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{NCtx: c.nCtx})
				if err != nil {
					t.Fatal(err)
				}
				check(fmt.Sprintf("context %d", c.nCtx), after(printed(t, p, m, mask), "Final estimate: "), fmt.Sprintf("PPL = %.4f +/- %.5f", c.figures[0], c.figures[1]))
			}
			if want.HellaSwag != nil {
				h, err := NewHellaSwag(tok, builtinInput(t, "gloss-swag.txt"), TaskOptions{})
				if err != nil {
					t.Fatal(err)
				}
				rows := tableRows(printed(t, h, m, mask))
				check("HellaSwag", rows[len(rows)-1], want.HellaSwag[0])
			}
			if want.Winogrande != nil {
				w, err := NewWinogrande(tok, builtinInput(t, "gloss-grande.csv"), TaskOptions{})
				if err != nil {
					t.Fatal(err)
				}
				check("Winogrande", lineOf(printed(t, w, m, mask), "Final Winogrande"), want.Winogrande[0])
			}
		})
	}
}

// shown is a line without what is no figure of it.
func shown(line string) string { return strings.Join(number.FindAllString(line, -1), " ") }

// printed is what an evaluation prints.
func printed[Item any](t *testing.T, e Evaluation[Item], m *engine.Model, mask []int) string {
	t.Helper()
	items, err := e.Run(t.Context(), newContext(t, m, e.ContextOptions(engine.ContextOptions{Mask: mask})), nil, func(Item) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := e.Write(&b, items); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// compareFigures asks that every line with figures that we print be in upstream's log, and that all those figures be there; of
// an evaluation of the beginning only what is printed as it goes on.
func compareFigures(t *testing.T, name, ours string, figures int) {
	t.Helper()
	log := upstreamLog(t, name)
	ours, _, _ = strings.Cut(ours, "====== Errors clustered") // upstream has no such thing
	if !full() {
		ours, _, _ = strings.Cut(ours, "====== Perplexity statistics")
		ours, _, _ = strings.Cut(ours, "Final ")
	}
	all, equal := 0, 0
	for line := range strings.Lines(ours) {
		n := len(number.FindAllString(line, -1))
		if strings.HasPrefix(line, "{") || n == 0 {
			continue
		}
		all += n
		if strings.Contains(log, strings.TrimRight(line, "\n")) {
			equal += n
		} else {
			t.Errorf("not in upstream's log: %.300q", line)
		}
	}
	t.Logf("%d of %d figures equal", equal, all)
	if all == 0 || full() && all != figures {
		t.Errorf("%d figures were compared of %d", all, figures)
	}
	if full() {
		note(sectionOrder, "log "+name, fmt.Sprintf("%d figures", figures), fmt.Sprintf("%d equal", equal), fmt.Sprintf("%d figures", figures-equal), "none")
	}
}
