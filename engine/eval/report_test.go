package eval

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/conformance-glossary.md; needs ATTNBUDGET_FULL=1 and all tests")

const reportFile = "../../docs/conformance-glossary.md"

// The sections of the report, in order. Tests add the figures they compare anyway.
const (
	sectionOrder      = "In upstream's order"
	sectionPerplexity = "Perplexity by the fastest kernels"
	sectionAccuracy   = "HellaSwag and Winogrande by the fastest kernels"
	sectionTasks      = "Task by task by the fastest kernels"
	sectionDivergence = "KL divergence from F16 by the fastest kernels"
)

var sections = []string{sectionOrder, sectionPerplexity, sectionAccuracy, sectionTasks, sectionDivergence}

var agreement = make(map[string][]string)

// note adds a row to a section: what is measured, upstream's figure, ours, how they differ and by how much they may.
func note(section, what string, upstream, ours any, difference, allowed string) {
	agreement[section] = append(agreement[section], fmt.Sprintf("| %s | %v | %v | %s | %s |\n", what, upstream, ours, difference, allowed))
}

const reportHead = `# Agreement with upstream on Glossary 5M

Written by ` + "`make conformance`" + `, which compares everything below and fails where a difference exceeds what is allowed. Upstream's figures are those of llama.cpp v0.5.0 on x86-64, with
the shipped text and tasks: its logs are in parsers/testdata/upstream, the results of other formats and of F16 with the attention of some layers dropped ("drop-3-5") in
engine/testdata/conformance/glossary.json. Ours are of engine/eval; the quantised models are made by engine/quant from the shipped one.

The kernels of upstream's order (` + "`--kernels upstream`" + `) add up as its build for AVX2 does, which made the logs: every printed figure is equal. The fastest kernels add up in an order of their own. With
quantised weights, activations are rounded to 8 bits before every product, so that a last bit of a float32 becomes a whole step now and then, and a task that is decided by less changes sides; upstream's builds for other processors
differ from each other by as much. How many do is not tested.
`

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 && *update {
		if err := writeReport(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func writeReport() error {
	var b strings.Builder
	b.WriteString(reportHead)
	for _, s := range sections {
		if !full() || len(agreement[s]) == 0 {
			return fmt.Errorf("%s is not written: it needs ATTNBUDGET_FULL=1 and all tests, and nothing of %q was compared", reportFile, s)
		}
		fmt.Fprintf(&b, "\n## %s\n\n| | upstream | ours | difference | allowed |\n|---|---|---|---|---|\n%s", s, strings.Join(agreement[s], ""))
	}
	return os.WriteFile(reportFile, []byte(b.String()), 0o644)
}
