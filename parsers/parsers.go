// Package parsers turns the raw output of a unit into measurements. It is pure: bytes in, measurements out. It reads
// no file, knows neither campaigns nor run directories, compares nothing and repairs nothing: output that is cut
// short, contradicts itself or holds a value that is not a number is an error that names the line, never a partial
// value.
//
// It reads the forms of docs/format/output.md and those of upstream llama.cpp's llama-bench, llama-perplexity and
// server logs, one decoder per form. Logs may be UTF-16, have CRLF line ends, carry upstream's time prefix, and hold
// standard error after, before or between the lines of standard output; inside a JSON array they may not.
package parsers

import "strings"

// Stage kinds whose output Decode reads.
const (
	Throughput     = "throughput"
	Depth          = "depth"
	KV             = "kv"
	Perplexity     = "perplexity"
	HellaSwag      = "hellaswag"
	Winogrande     = "winogrande"
	MultipleChoice = "multiple-choice"
	KLDivergence   = "kl-divergence"
)

// form is one way in which the output of a stage is written.
type form struct {
	name   string
	match  func(*text) bool
	decode func(*text) ([]Measurement, error)
}

// forms lists the forms of a stage, the most specific first.
func forms(stage string) []form {
	switch stage {
	case Throughput, Depth:
		return []form{
			{"llama-bench SQL", matchBenchSQL, decodeBenchSQL},
			{"llama-bench JSON array", matchBenchJSON, decodeBenchJSON},
			{"llama-bench JSON lines", matchBenchJSONL, decodeBenchJSONL},
			{"llama-bench CSV", matchBenchCSV, decodeBenchCSV},
			{"llama-bench Markdown", matchBenchMarkdown, decodeBenchMarkdown},
		}
	case Perplexity:
		return []form{
			{"perplexity chunks", matchPerplexityChunks, decodePerplexityChunks},
			{"llama-perplexity running values", matchPerplexityRunning, decodePerplexityRunning},
			{"llama-perplexity table (--ppl-output-type 1)", matchPerplexityTable, decodePerplexityTable},
		}
	case HellaSwag:
		return []form{
			{"hellaswag tasks", matchHellaSwagTasks, decodeHellaSwagTasks},
			{"llama-perplexity HellaSwag with intervals", matchHellaSwagInterval, decodeHellaSwagInterval},
			{"llama-perplexity HellaSwag without intervals", matchHellaSwagPlain, decodeHellaSwagPlain},
		}
	case Winogrande:
		return []form{
			{"winogrande tasks", matchWinograndeTasks, decodeWinograndeTasks},
			{"llama-perplexity Winogrande", matchWinograndeUpstream, decodeWinograndeUpstream},
		}
	case MultipleChoice:
		return []form{
			{"multiple choice tasks", matchChoiceTasks, decodeChoiceTasks},
			{"llama-perplexity --multiple-choice", matchChoiceUpstream, decodeChoiceUpstream},
		}
	case KLDivergence:
		return []form{
			{"kl-divergence chunks", matchDivergenceChunks, decodeDivergenceChunks},
			{"llama-perplexity --kl-divergence", matchDivergenceUpstream, decodeDivergenceUpstream},
		}
	case KV:
		return []form{
			{"kv", matchKV, decodeKV},
			{"llama.cpp cache size lines", matchKVCache, decodeKVCache},
			{"llama.cpp KV self size line", matchKVSelf, decodeKVSelf},
		}
	}
	return nil
}

// Decode reads the raw output of one unit of the stage. It fails with a *DecodeError, whose kind errors.Is finds:
// ErrForm, ErrTruncated, ErrContradiction or ErrNaN. On success there is at least one measurement, and every number
// in it is finite.
func Decode(stage string, raw []byte) ([]Measurement, error) {
	known := forms(stage)
	if known == nil {
		return nil, &DecodeError{Stage: stage, Kind: ErrForm, Expected: "a stage with a parser", Found: quote(stage)}
	}
	t, err := newText(raw)
	if err != nil {
		return nil, inStage(err, stage, "")
	}
	for _, f := range known {
		if !f.match(t) {
			continue
		}
		m, err := f.decode(t)
		if err != nil {
			return nil, inStage(err, stage, f.name)
		}
		if err := finite(m); err != nil {
			return nil, inStage(err, stage, f.name)
		}
		return m, nil
	}
	return nil, unknownForm(stage, known, t)
}

// foreign are outputs of llama-perplexity that look much like those of other stages, by what they print.
var foreign = []struct{ mark, tool string }{
	{"kl_divergence:", "--kl-divergence"},
	{divergenceStatistics, "--kl-divergence"},
	{choiceMark, "--multiple-choice"},
	{"Final result: ", "--multiple-choice"},
}

// unknownForm says what was looked for and shows the line that most likely says why it is not there.
func unknownForm(stage string, known []form, t *text) error {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
	}
	e := &DecodeError{Stage: stage, Kind: ErrForm, Expected: "one of: " + strings.Join(names, ", "), Found: "no output at all"}
	for _, f := range foreign {
		if t.has(f.mark) {
			e.Found = "an output of llama-perplexity " + f.tool
			return e
		}
	}
	most := 0
	for _, l := range t.lines {
		if w := l.telling(); w > most {
			most, e.Line, e.Found = w, l.n, quote(l.text)
		}
	}
	return e
}

// telling ranks a line by how likely it says why an output is not what it should be; 0 for an empty one.
func (l line) telling() int {
	switch s := strings.ToLower(l.text); {
	case strings.TrimSpace(s) == "":
		return 0
	case l.level == 'E' || strings.Contains(s, "you need at least"):
		return 3
	case strings.Contains(s, "error"):
		return 2
	}
	return 1
}
