package eval

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/tokenizer"
)

const stageWinogrande = "winogrande"

// WinograndeTask is a sentence with a blank and two words for it, one of them right (Sakaguchi et al. 2020).
type WinograndeTask struct {
	File    string
	Line    int // from 1
	Index   int // place in the file, from 0
	Hash    string
	Before  string // the blank
	After   string
	Choices [2]string
	Answer  int // 1 or 2
}

func (t WinograndeTask) place() string { return fmt.Sprintf("%s:%d", t.File, t.Line) }

func (t WinograndeTask) hash() string { return t.Hash }

func (t WinograndeTask) texts() []string {
	return []string{t.Before + t.Choices[0] + t.After, t.Before + t.Choices[1] + t.After}
}

// ReadWinogrande reads upstream's format: index,sentence,choice 1,choice 2,answer, with quotes as in CSV. All rows are
// returned; skipped is how many of the last ones upstream would not see (0 or 1). Errors are *FormatError.
func ReadWinogrande(in Input) (tasks []WinograndeTask, skipped int, err error) {
	lines, err := in.lines()
	if err != nil {
		return nil, 0, err
	}
	seen := make(map[string]int)
	for i, line := range lines {
		t, err := winograndeTask(in.Name, line, i+1)
		if err != nil {
			return nil, 0, err
		}
		t.Index = len(tasks)
		key := hashLines(t.texts()...)
		if first, ok := seen[key]; ok {
			return nil, 0, &FormatError{in.Name, t.Line, fmt.Sprintf("the task is the same as that on line %d", first)}
		}
		seen[key] = t.Line
		tasks = append(tasks, t)
	}
	if len(tasks) == 0 {
		return nil, 0, &FormatError{in.Name, 0, "there are no tasks"}
	}
	text, _ := in.decode()
	text = strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if !strings.HasSuffix(text, "\n") {
		skipped = 1
	}
	return tasks, skipped, nil
}

func winograndeTask(file, line string, no int) (WinograndeTask, error) {
	fail := func(format string, a ...any) (WinograndeTask, error) {
		return WinograndeTask{}, &FormatError{file, no, fmt.Sprintf(format, a...)}
	}
	if strings.TrimSpace(line) == "" {
		return fail("the line is empty")
	}
	r := csv.NewReader(strings.NewReader(line))
	r.FieldsPerRecord = -1
	r.LazyQuotes = !strings.Contains(line, `,"`) // quotation marks inside a field that is not quoted are text
	fields, err := r.Read()
	var bad *csv.ParseError
	switch {
	case errors.As(err, &bad):
		return fail("column %d: %v: quotes around a field must be closed, and doubled inside", bad.Column, bad.Err)
	case err != nil:
		return fail("%v", err)
	case len(fields) != 5:
		return fail("the row has %d fields instead of 5: index,sentence,choice 1,choice 2,answer; a field with commas needs quotes", len(fields))
	}
	t := WinograndeTask{File: file, Line: no, Hash: hashLines(fields[1:]...), Choices: [2]string{fields[2], fields[3]}}
	var blank bool
	if t.Before, t.After, blank = strings.Cut(fields[1], "_"); !blank {
		return fail("the sentence %q has no underscore for the blank", fields[1])
	}
	for i, c := range t.Choices {
		if strings.TrimSpace(c) == "" {
			return fail("choice %d is empty", i+1)
		}
	}
	if t.Choices[0] == t.Choices[1] {
		return fail("both choices are %q", t.Choices[0])
	}
	switch strings.TrimSpace(fields[4]) {
	case "1":
		t.Answer = 1
	case "2":
		t.Answer = 2
	default:
		return fail("the answer must be 1 or 2 and is %q", fields[4])
	}
	return t, nil
}

// Winogrande is a prepared evaluation.
type Winogrande struct {
	Tasks    []WinograndeTask // in the order of evaluation
	Warnings []string         // for people

	options TaskOptions
	groups  []group
	spans   [][2]span
}

// WinograndeItem is one finished task and its JSON line. Scores are mean log-probabilities in nats.
type WinograndeItem struct {
	Kind          string     `json:"kind"`   // "winogrande_task"
	N             int        `json:"n"`      // order of evaluation, from 1
	Task          int        `json:"task"`   // place in the file, from 0
	Hash          string     `json:"hash"`   // of sentence, choices and answer
	Rule          string     `json:"rule"`   // of the result: "upstream" or "corrected"
	Scores        [2]float32 `json:"scores"` // by upstream's rule, as Pick
	Corrected     [2]float32 `json:"corrected"`
	Gold          int        `json:"gold"` // 1 or 2, as the picks
	Pick          int        `json:"pick"`
	CorrectedPick int        `json:"corrected_pick"`
}

const kindWinogrande = "winogrande_task"

// The rules by which a sentence is scored (package comment).
const (
	ruleUpstream  = "upstream"
	ruleCorrected = "corrected"
)

// NewWinogrande reads the tasks, selects them (upstream takes them in the file's order, or draws them if fewer are wanted)
// and tokenises them. The error may be a *FormatError or a *TooLongError.
func NewWinogrande(tok *tokenizer.Tokenizer, in Input, o TaskOptions) (*Winogrande, error) {
	o = o.withDefaults()
	if err := o.check(stageWinogrande); err != nil {
		return nil, err
	}
	all, skipped, err := ReadWinogrande(in)
	if err != nil {
		return nil, err
	}
	w := &Winogrande{options: o}
	if skipped > 0 && !o.Corrected {
		w.Warnings = append(w.Warnings, fmt.Sprintf("%s: the row of line %d is left out, as upstream does, because no empty line follows it; add one to count it", in.Name, all[len(all)-1].Line))
		if all = all[:len(all)-skipped]; len(all) == 0 {
			return nil, &FormatError{in.Name, 1, "the only row is left out, as upstream does, because no empty line follows it: add one"}
		}
	}
	var warnings []string
	if w.Tasks, warnings, err = selectTasks(in.Name, all, o, drawSome); err != nil {
		return nil, err
	}
	w.Warnings = append(w.Warnings, warnings...)
	if w.groups, err = fit(tok, w.Tasks, o); err != nil {
		return nil, err
	}
	for i, t := range w.Tasks {
		w.spans = append(w.spans, scoredSpans(tok, t, w.groups[i]))
	}
	return w, nil
}

// ContextOptions is base with the size that the evaluation needs.
func (w *Winogrande) ContextOptions(base engine.ContextOptions) engine.ContextOptions {
	return w.options.contextOptions(base)
}

// span is the tokens of a sentence that are scored, from and up to.
type span struct{ from, to int }

// minTrailing is how many tokens a sentence must go on for, after the sentences differ, for the choice not to be scored.
const minTrailing = 3

// scoredSpans applies upstream's rule for what is scored: the tokens behind the choice or, where little follows, all from
// the first that differs; not the last token, unless it is the only one.
func scoredSpans(tok *tokenizer.Tokenizer, t WinograndeTask, g group) [2]span {
	from := [2]int{g.prefix, g.prefix}
	var behind [2]int
	skip := true
	for s, tokens := range g.sequences {
		// Never before the sentences differ: upstream reads other tasks' logits where a choice begins the other one
		// and what follows completes it.
		behind[s] = max(g.prefix, len(tok.Encode(t.Before+t.Choices[s], true, false)))
		skip = skip && len(tokens)-g.prefix > minTrailing && behind[s] < len(tokens)
	}
	if skip {
		from = behind
	}
	var spans [2]span
	for s, tokens := range g.sequences {
		spans[s] = span{from[s], len(tokens)}
		if len(tokens)-from[s] > 1 {
			spans[s].to--
		}
	}
	return spans
}

// mostSentences is how many tasks upstream evaluates at once.
const mostSentences = 128

// queries asks for the scored tokens of both sentences and last, if the defect is at work, for the second sentence's first
// token by the wrong logits.
func (w *Winogrande) queries(i int, r rows) []query {
	var q []query
	for s, sp := range w.spans[i] {
		for j := sp.from; j < sp.to; j++ {
			q = append(q, query{row: r.of(s, j-1), token: r.sequences[s][j], in: summedSingle})
		}
	}
	if w.defective(i) {
		q = append(q, query{row: r.of(0, len(r.sequences[0])-1), token: r.sequences[1][r.prefix], in: summedSingle})
	}
	return q
}

// defective reports whether upstream uses the wrong logits for the first scored token of the second sentence.
func (w *Winogrande) defective(i int) bool { return w.spans[i][1].from == w.groups[i].prefix }

// Run evaluates the tasks that done does not have and calls each for every finished one, in order. The result has done
// in front. The error is a *NotFiniteError if a task has no score; ctx ends it early.
func (w *Winogrande) Run(ctx context.Context, c Context, done []WinograndeItem, each func(WinograndeItem) error) ([]WinograndeItem, error) {
	if err := checkDone(stageWinogrande, len(done), len(w.Tasks), func(i int) (n int, hash, want string) {
		return done[i].N, done[i].Hash, w.Tasks[i].Hash
	}); err != nil {
		return nil, err
	}
	items := slices.Clone(done)
	t := taskRun{stage: stageWinogrande, options: w.options, groups: w.groups, most: 2 * mostSentences, ends: true, queries: w.queries}
	t.finish = func(i int, logProbs []float64) error {
		items = append(items, w.item(i, logProbs))
		return each(items[i])
	}
	err := t.run(ctx, c, len(done))
	return items, err
}

func (w *Winogrande) item(i int, logProbs []float64) WinograndeItem {
	t := w.Tasks[i]
	item := WinograndeItem{Kind: kindWinogrande, N: i + 1, Task: t.Index, Hash: t.Hash, Rule: w.rule(), Gold: t.Answer}
	first := w.spans[i][0].to - w.spans[i][0].from
	second := w.spans[i][1].to - w.spans[i][1].from
	item.Corrected = [2]float32{meanSingle(logProbs[:first]), meanSingle(logProbs[first : first+second])}
	item.Scores = item.Corrected
	if w.defective(i) {
		asUpstream := slices.Clone(logProbs[first : first+second])
		asUpstream[0] = logProbs[first+second]
		item.Scores[1] = meanSingle(asUpstream)
	}
	item.Pick, item.CorrectedPick = better(item.Scores), better(item.Corrected)
	return item
}

// meanSingle is the mean in float32 arithmetic, as upstream computes it.
func meanSingle(values []float64) float32 {
	var sum float32
	for _, v := range values {
		sum += float32(v)
	}
	return sum / float32(len(values))
}

// better is the number of the higher score; 2 if they are equal.
func better(scores [2]float32) int {
	if scores[0] > scores[1] {
		return 1
	}
	return 2
}

func (w *Winogrande) rule() string {
	if w.options.Corrected {
		return ruleCorrected
	}
	return ruleUpstream
}

// by is the scores and the pick by a rule.
func (t WinograndeItem) by(rule string) (scores [2]float32, pick int) {
	if rule == ruleCorrected {
		return t.Corrected, t.CorrectedPick
	}
	return t.Scores, t.Pick
}

// rightBy counts the right picks by a rule.
func rightBy(rule string, items []WinograndeItem) (right int) {
	for _, t := range items {
		if _, pick := t.by(rule); pick == t.Gold {
			right++
		}
	}
	return right
}

// Doubts are reasons not to believe the result, for people.
func (w *Winogrande) Doubts(items []WinograndeItem) []string {
	return withinChance(rightBy(w.rule(), items), len(items), 0.5)
}

// Write prints the finished tasks as docs/format/output.md says: the result by the rule that was asked for and, where that is
// not upstream's, the result by upstream's too.
func (w *Winogrande) Write(out io.Writer, items []WinograndeItem) error {
	o := &printer{w: out}
	for _, t := range items {
		o.json(t)
	}
	right := 0
	for i, t := range items {
		scores, pick := t.by(w.rule())
		if pick == t.Gold {
			right++
		}
		o.printf("%d\t%.4f\t%10.6f  %10.6f  %d  %d\n", i+1, 100*float64(right)/float64(i+1), scores[0], scores[1], pick, t.Gold)
	}
	if n := len(items); n >= 100 {
		o.printf("Final Winogrande score(%d tasks): %s\n", n, winograndeScore(right, n))
		if w.options.Corrected {
			o.printf("By upstream's rule: %s\n", winograndeScore(rightBy(ruleUpstream, items), n))
		}
	}
	return o.err
}

// winograndeScore is a score in percent and its standard error, in upstream's arithmetic.
func winograndeScore(right, n int) string {
	p := float32(right) / float32(n)
	sigma := 100 * math.Sqrt(float64(p*(1-p)/float32(n-1)))
	return fmt.Sprintf("%.4f +/- %.4f", 100*p, float32(sigma))
}
