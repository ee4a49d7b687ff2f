package eval

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/quant"
	"attnbudget/engine/tokenizer"
)

// The logs are upstream's, made with the shipped model, text and tasks.
const (
	upstreamLogs = "../../parsers/testdata/upstream"
	builtin      = "../builtin"
)

// full reports whether the whole agreement is asked for; the ordinary tests take the beginning of everything.
func full() bool { return os.Getenv("ATTNBUDGET_FULL") == "1" }

func shippedModel(t testing.TB) (*engine.Model, *tokenizer.Tokenizer) {
	t.Helper()
	return openModel(t, filepath.Join(builtin, "glossary-5m-f16.gguf"))
}

// quantisedModel is the shipped model in another format.
func quantisedModel(t testing.TB, format string) (*engine.Model, *tokenizer.Tokenizer) {
	t.Helper()
	if format == "F16" {
		return shippedModel(t)
	}
	mix, err := quant.ParseMix(format)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), format+".gguf")
	if err := quant.QuantizeFile(t.Context(), filepath.Join(builtin, "glossary-5m-f16.gguf"), path, mix, quant.Options{}); err != nil {
		t.Fatal(err)
	}
	return openModel(t, path)
}

func openModel(t testing.TB, path string) (*engine.Model, *tokenizer.Tokenizer) {
	t.Helper()
	m, err := engine.Open(path, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	return m, tok
}

func builtinInput(t testing.TB, name string) Input {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(builtin, name))
	if err != nil {
		t.Fatal(err)
	}
	return Input{name, b}
}

func newContext(t testing.TB, m *engine.Model, o engine.ContextOptions) *engine.Context {
	t.Helper()
	c, err := m.NewContext(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func upstreamLog(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(upstreamLogs, "llama-perplexity-"+name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// runningPerplexities reads "[1]38.8864,[2]31.2897," from a log.
func runningPerplexities(t testing.TB, name string) []float64 {
	t.Helper()
	var out []float64
	for _, m := range regexp.MustCompile(`\[(\d+)\]([\d.]+),`).FindAllStringSubmatch(upstreamLog(t, name), -1) {
		if n, _ := strconv.Atoi(m[1]); n != len(out)+1 {
			t.Fatalf("log %s: chunk %d after %d", name, n, len(out))
		}
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func TestPerplexityAgreesWithUpstream(t *testing.T) {
	for _, c := range []struct {
		log    string
		nCtx   int
		chunks int // in the ordinary test
	}{{"ppl-F16", 512, 8}, {"ppl-F16-c2048", 2048, 2}} {
		t.Run(c.log, func(t *testing.T) {
			want := runningPerplexities(t, c.log)
			chunks := c.chunks
			if full() {
				chunks = 0
			}
			m, tok := shippedModel(t)
			p, err := NewPerplexity(tok, builtinInput(t, "evaluation.txt"), PerplexityOptions{NCtx: c.nCtx, Chunks: chunks})
			if err != nil {
				t.Fatal(err)
			}
			if full() && p.Chunks != len(want) {
				t.Fatalf("%d chunks, upstream has %d", p.Chunks, len(want))
			}
			got, err := p.Run(t.Context(), newContext(t, m, p.ContextOptions(engine.ContextOptions{})), nil, func(Chunk) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			worst := 0.0
			for i := range got {
				ppl, _, _ := Estimate(got[:i+1])
				worst = max(worst, math.Abs(ppl/want[i]-1))
			}
			t.Logf("%d chunks, largest relative difference %.2g", len(got), worst)
			if worst > 5e-4 {
				t.Errorf("running perplexity differs by %.2g relative, more than 0.05%%", worst)
			}
			if full() {
				compareLast(t, func(b *bytes.Buffer) error { return p.Write(b, got) }, "Final estimate: PPL = ", upstreamLog(t, c.log), 5e-4)
			}
		})
	}
}

// compareLast compares the numbers behind a prefix in our output and in the log.
func compareLast(t *testing.T, write func(*bytes.Buffer) error, prefix, log string, tolerance float64) {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	ours, theirs := after(b.String(), prefix), after(log, prefix)
	t.Logf("ours %q, upstream's %q", ours, theirs)
	estimate := func(s string) (v [2]float64) {
		if _, err := fmt.Sscanf(s, "%g +/- %g", &v[0], &v[1]); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return v
	}
	a, c := estimate(ours), estimate(theirs)
	for i := range a {
		if math.Abs(a[i]/c[i]-1) > tolerance {
			t.Errorf("%s: %v, upstream %v", prefix, a, c)
		}
	}
}

func after(text, prefix string) string {
	i := strings.LastIndex(text, prefix)
	if i < 0 {
		return ""
	}
	line, _, _ := strings.Cut(text[i+len(prefix):], "\n")
	return line
}

// tableRows are the lines of a log that begin with a number and a tab.
func tableRows(log string) []string {
	var rows []string
	s := bufio.NewScanner(strings.NewReader(log))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if n, _, ok := strings.Cut(s.Text(), "\t"); ok {
			if _, err := strconv.Atoi(n); err == nil {
				rows = append(rows, s.Text())
			}
		}
	}
	return rows
}

func TestHellaSwagAgreesWithUpstream(t *testing.T) {
	m, tok := shippedModel(t)
	for _, c := range []struct {
		log   string
		tasks int // as the log was made: the choice of tasks depends on it only by its length
		first int // evaluated in the ordinary test
	}{{"hellaswag-F16", 400, 50}, {"hellaswag-F16-100", 100, 10}} {
		t.Run(c.log, func(t *testing.T) {
			want := tableRows(upstreamLog(t, c.log))
			h, err := NewHellaSwag(tok, builtinInput(t, "gloss-swag.txt"), TaskOptions{Tasks: c.tasks})
			if err != nil {
				t.Fatal(err)
			}
			if len(h.Tasks) != len(want) {
				t.Fatalf("%d tasks, upstream %d", len(h.Tasks), len(want))
			}
			if !full() {
				h.groups = h.groups[:c.first]
			}
			items, err := h.Run(t.Context(), newContext(t, m, h.ContextOptions(engine.ContextOptions{})), nil, func(HellaSwagItem) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := h.Write(&b, items); err != nil {
				t.Fatal(err)
			}
			got := tableRows(b.String())
			if len(got) != len(h.groups) {
				t.Fatalf("%d rows for %d tasks", len(got), len(h.groups))
			}
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("row %d is %q, upstream's %q (margin %v)", i+1, got[i], want[i], items[i].Margin)
				}
			}
		})
	}
}

func TestWinograndeAgreesWithUpstream(t *testing.T) {
	m, tok := shippedModel(t)
	log := upstreamLog(t, "winogrande-F16")
	want := tableRows(log)
	w, err := NewWinogrande(tok, builtinInput(t, "gloss-grande.csv"), TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Tasks) != len(want) || len(w.Warnings) != 0 {
		t.Fatalf("%d tasks, upstream %d, warnings %q", len(w.Tasks), len(want), w.Warnings)
	}
	if !full() {
		w.groups = w.groups[:60]
	}
	items, err := w.Run(t.Context(), newContext(t, m, w.ContextOptions(engine.ContextOptions{})), nil, func(WinograndeItem) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	worst, defects := 0.0, 0
	for i, item := range items {
		f := strings.Fields(want[i])
		for s := range 2 {
			v, err := strconv.ParseFloat(f[2+s], 64)
			if err != nil {
				t.Fatal(err)
			}
			worst = max(worst, math.Abs(v-float64(item.Scores[s])))
		}
		if fmt.Sprint(item.Pick) != f[4] || fmt.Sprint(item.Gold) != f[5] {
			t.Errorf("task %d: pick %d of %v, gold %d; upstream %s", i+1, item.Pick, item.Scores, item.Gold, want[i])
		}
		if item.Scores != item.Corrected {
			defects++
		}
	}
	t.Logf("%d tasks, largest difference of a score %.2g, %d touched by upstream's defect", len(items), worst, defects)
	if worst > 2e-3 {
		t.Errorf("scores differ by %g", worst)
	}
	if full() {
		var b bytes.Buffer
		if err := w.Write(&b, items); err != nil {
			t.Fatal(err)
		}
		const final = "Final Winogrande score(400 tasks): "
		if got, want := after(b.String(), final), after(log, final); got != want {
			t.Errorf("final %q, upstream's %q", got, want)
		}
	}
}

var contextDefaults engine.ContextOptions

// compareDivergences compares the statistics of all chunks with the log's. Two implementations of one quantised product differ by
// rounding, which moves a single token more than any mean: means must agree within one of their standard errors, as upstream
// prints them, percentiles within 5%, and those that ten tokens decide within 10%. The two extremes are those of a token each, and
// must agree within half. The running table begins with the means of few tokens, and is compared in upstream's order alone.
func compareDivergences(t *testing.T, format, ours, log string) {
	t.Helper()
	theirs := make(map[string]string)
	for line := range strings.Lines(log) {
		theirs[lineName(line)] = line
	}
	compared := 0
	for line := range strings.Lines(ours) {
		name := lineName(line)
		want, ok := theirs[name]
		_, err := strconv.Atoi(name)
		if running := err == nil; !ok || name == "" || strings.HasPrefix(line, "{") || running {
			continue
		}
		compared++
		a, b, digit := figuresOf(line), figuresOf(want), lastDigit(want)
		if len(a) != len(b) {
			t.Fatalf("ours       %supstream's %s", line, want)
		}
		for i := range a {
			if i == 0 && slices.Contains(reported, name) {
				note(sectionDivergence, format+", "+strings.Join(strings.Fields(name), " "), value(want), value(line), fmt.Sprintf("%+.2g", a[i]-b[i]), fmt.Sprintf("%.2g", allowance(name, line, b, i)))
			}
			if off := math.Abs(a[i] - b[i]); off > allowance(name, line, b, i)+1.5*digit {
				t.Errorf("figure %d is off by %.3g\nours       %supstream's %s", i+1, off, line, want)
			}
		}
	}
	if want := 6 + 12 + 16; compared != want {
		t.Errorf("%d lines of the log were compared, %d expected", compared, want)
	}
	t.Logf("%d lines compared; %s; upstream: %s", compared, lineOf(ours, "Mean    KLD"), lineOf(log, "Mean    KLD"))
}

// reported are the statistics in the report.
var reported = []string{"Mean ln(PPL(Q)/PPL(base))", "Mean    KLD", "99.9%   KLD", "Median  KLD", "RMS Δp", "Same top p"}

// value is a line without its label.
func value(line string) string {
	_, v, _ := strings.Cut(line, ":")
	return strings.Join(strings.Fields(v), " ")
}

// allowance is how far figure i of a line may be from upstream's.
func allowance(name, line string, upstream []float64, i int) float64 {
	size := math.Abs(upstream[i])
	switch {
	case strings.HasPrefix(line, "Cor("):
		return 0.1
	case name == "RMS Δp" && i == 0: // in Q8_0 hardly more than the noise of rounding
		return upstream[i+1] + 0.02*size
	case strings.Contains(line, "±") && i%2 == 0:
		return upstream[i+1]
	case strings.Contains(line, "±"):
		return 0.5 * size // an error of a mean of fourth powers, over a chunk, is itself hardly known
	case strings.HasPrefix(name, "Max"), strings.HasPrefix(name, "Min"):
		return 0.5*size + 2e-5
	}
	relative := 0.05
	if strings.HasPrefix(name, "99.9") || strings.HasPrefix(name, "0.1") {
		relative = 0.1
	}
	if strings.Contains(name, "Δp") {
		return relative*size + 0.02
	}
	return relative*size + 3e-6
}

// lastDigit is the unit of the last digit of a line's figures.
func lastDigit(line string) float64 {
	figures := number.FindAllString(line, -1)
	last := figures[len(figures)-1]
	return math.Pow(10, -float64(len(last)-strings.IndexByte(last, '.')-1))
}

func figuresOf(line string) []float64 {
	var out []float64
	if label, rest, ok := strings.Cut(line, ":"); ok && label != "" {
		line = rest
	}
	for _, f := range number.FindAllString(line, -1) {
		v, _ := strconv.ParseFloat(f, 64)
		out = append(out, v)
	}
	return out
}

// number finds the figures of a line.
var number = regexp.MustCompile(`-?\d+\.\d+`)

// lineName is what a line is called: its label, or the number of a chunk. It is empty for lines without figures.
func lineName(line string) string {
	at := number.FindStringIndex(line)
	if at == nil {
		return ""
	}
	if label, _, ok := strings.Cut(line, ":"); ok {
		return strings.TrimSpace(label)
	}
	return strings.TrimSpace(line[:at[0]])
}

func lineOf(text, prefix string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// arcEasy is the evaluation of which the log is.
func arcEasy(t *testing.T, tok *tokenizer.Tokenizer) *Choice {
	t.Helper()
	const file = "../../../shared/data/arc-easy-test.bin"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Skip("no shared task files: ", err)
	}
	c, err := NewChoice(tok, Input{"arc-easy-test.bin", data}, TaskOptions{Tasks: 200, NCtx: 2048})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMultipleChoiceAgreesWithUpstream(t *testing.T) {
	m, tok := shippedModel(t)
	c := arcEasy(t, tok)
	log := upstreamLog(t, "multiple-choice-F16")
	want := tableRows(log)
	if !full() {
		c.groups = c.groups[:15]
	}
	items, err := c.Run(t.Context(), newContext(t, m, c.ContextOptions(contextDefaults)), nil, func(ChoiceItem) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := c.Write(&b, items); err != nil {
		t.Fatal(err)
	}
	for i, row := range tableRows(b.String()) {
		if row != want[i] {
			t.Fatalf("row %d is %q, upstream's %q (margin %v)", i+1, row, want[i], items[i].Margin)
		}
	}
	if full() {
		for _, final := range []string{"Final result: ", "Random chance: "} {
			if got, want := after(b.String(), final), after(log, final); got != want {
				t.Errorf("%s%q, upstream's %q", final, got, want)
			}
		}
	}
}
