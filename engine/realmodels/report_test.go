package realmodels

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/conformance-real-models.md; needs ATTNBUDGET_FULL=1 and the models")

const reportFile = "../../docs/conformance-real-models.md"

const reportHead = `# Agreement with upstream on real models

Written by ` + "`make conformance-real`" + `, after ` + "`make models`" + ` has fetched the models. Upstream is the library of llama.cpp v0.5.0 on x86-64; engine/realmodels/testdata/README.md says how
its side was computed, engine/realmodels computes ours. The tokens of the whole of wiki.test.raw (WikiText-2 raw, test), and those of the conformance texts, are equal for both models.

- *weights as float32*: both engines compute with the file's weights expanded to float32, and caches of float32. What is asked for is tested.
- *the file in upstream's order*: the file as it is, by the kernels that add up in the order of upstream's build for AVX2 (` + "`--kernels upstream`" + `), against that build. What is asked for is tested,
  and besides that everything is equal: every choice and pick, every sum of log-likelihoods in the digits that are recorded, every score within 1e-6.
- *the file by the fastest kernels*: the same by the default kernels, against the same build. A difference in the last bit of a float32 is now and then rounded to another of the 255 codes of an
  activation, and some layers later results differ by as much as the rounding itself does. Not tested.
- *upstream's build for AVX-512*: upstream against itself, for comparison; it adds up in another order than its build for AVX2.

HellaSwag is the 200 tasks that upstream draws from 1,000 of the validation set, Winogrande the 300 that it draws from the debiased development set. Both are decoded in the batches of llama-perplexity, except upstream's
side of the first column, where tasks came one by one. Greedy choices are 32 after each of 10 prompts, each after upstream's own choices before it; upstream against itself counts up to the first difference of a prompt.
`

// column is the figures of one comparison.
type column struct {
	model, title string
	comparison
}

var columns []column

func addColumn(model, title string, c comparison) { columns = append(columns, column{model, title, c}) }

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if *update && code == 0 {
		if err := writeReport(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func writeReport() error {
	if len(columns) != 4*len(models) || !full() {
		return fmt.Errorf("%s needs ATTNBUDGET_FULL=1 and the models: it was not written", reportFile)
	}
	var b strings.Builder
	b.WriteString(reportHead)
	for _, model := range models {
		writeTable(&b, model)
	}
	return os.WriteFile(reportFile, []byte(b.String()), 0o644)
}

func writeTable(b *strings.Builder, model string) {
	rows := []struct {
		title, asked string
		cell         func(c column) string
	}{
		{"perplexity, first 2,000 tokens in one context", "within 0.1%", func(c column) string { return c.window.String() }},
		{"perplexity, first 40 chunks of 512 tokens", "within 0.1%", func(c column) string { return c.chunks.String() }},
		{"greedy choices", "equal, or upstream ahead by at most 0.01", func(c column) string {
			if c.choices.equal == c.choices.all {
				return c.choices.String()
			}
			return fmt.Sprintf("%s, elsewhere ahead by at most %.2g", c.choices, c.worstGap)
		}},
		{"HellaSwag picks", "98% equal", func(c column) string { return c.hellaSwag.String() }},
		{"Winogrande picks", "98% equal", func(c column) string { return c.winogrande.String() }},
	}
	var of []column
	fmt.Fprintf(b, "\n## %s\n\n| | asked |", model)
	for _, c := range columns {
		if c.model == model {
			of = append(of, c)
			fmt.Fprintf(b, " %s |", c.title)
		}
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(of)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(b, "| %s | %s |", row.title, row.asked)
		for _, c := range of {
			fmt.Fprintf(b, " %s |", row.cell(c))
		}
		b.WriteString("\n")
	}
}
