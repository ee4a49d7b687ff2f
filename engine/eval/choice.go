package eval

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/tokenizer"
)

const stageChoice = "multiple-choice"

// ChoiceTask is a question with answers of which one is right (ARC, MMLU, TruthfulQA mc1).
type ChoiceTask struct {
	File     string
	Line     int // of JSON lines, from 1; 0 in a binary file
	Index    int // place in the file, from 0
	Hash     string
	Question string
	Answers  []string
	Gold     int // from 0
}

func (t ChoiceTask) place() string {
	if t.Line > 0 {
		return fmt.Sprintf("%s:%d", t.File, t.Line)
	}
	return fmt.Sprintf("%s: task %d", t.File, t.Index)
}

func (t ChoiceTask) hash() string { return t.Hash }

func (t ChoiceTask) texts() []string {
	var s []string
	for _, a := range t.Answers {
		s = append(s, t.Question+" "+a)
	}
	return s
}

func (t ChoiceTask) contentHash() string {
	return hashLines(append([]string{t.Question, fmt.Sprint(t.Gold)}, t.Answers...)...)
}

// check refuses what is no question with answers.
func (t ChoiceTask) check() error {
	switch {
	case blank(t.Question) || len(t.Answers) < 2 || slices.ContainsFunc(t.Answers, blank):
		return fmt.Errorf("a question and two answers at least are needed, none of them empty; it has %q and %q", t.Question, t.Answers)
	case len(t.Answers) > maxAnswers:
		return fmt.Errorf("it has %d answers, at most %d are read", len(t.Answers), maxAnswers)
	}
	return nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// maxAnswers is the most answers upstream takes.
const maxAnswers = 100

// choiceReader reads the little-endian numbers and counted strings of a multiple-choice file.
type choiceReader struct {
	data []byte
	at   int
}

var errCutOff = errors.New("the file is cut off")

func (r *choiceReader) number() (int, error) {
	if len(r.data)-r.at < 4 {
		return 0, errCutOff
	}
	n := binary.LittleEndian.Uint32(r.data[r.at:])
	r.at += 4
	return int(n), nil
}

func (r *choiceReader) text() (string, error) {
	n, err := r.number()
	if err != nil {
		return "", err
	}
	if n > len(r.data)-r.at {
		return "", errCutOff
	}
	s := string(r.data[r.at : r.at+n])
	r.at += n
	return s, nil
}

// answers reads one set of answers with their labels, 1 for a right one.
func (r *choiceReader) answers() (texts []string, labels []int, err error) {
	n, err := r.number()
	if err != nil {
		return nil, nil, err
	}
	if n > maxAnswers {
		return nil, nil, fmt.Errorf("it has %d answers, at most %d are read", n, maxAnswers)
	}
	for range n {
		s, err := r.text()
		if err != nil {
			return nil, nil, err
		}
		texts = append(texts, s)
	}
	for range n {
		l, err := r.number()
		if err != nil {
			return nil, nil, err
		}
		labels = append(labels, l)
	}
	return texts, labels, nil
}

// task reads a task: the question, the answers of which one is right, and a second set that is not used.
func (r *choiceReader) task() (ChoiceTask, error) {
	var t ChoiceTask
	var err error
	if t.Question, err = r.text(); err != nil {
		return t, err
	}
	var labels []int
	if t.Answers, labels, err = r.answers(); err != nil {
		return t, err
	}
	if _, _, err = r.answers(); err != nil {
		return t, err
	}
	if err := t.check(); err != nil {
		return t, err
	}
	t.Gold = slices.Index(labels, 1)
	if t.Gold < 0 || slices.Contains(labels[t.Gold+1:], 1) {
		return t, fmt.Errorf("exactly one answer must be labelled 1; the labels are %v", labels)
	}
	t.Hash = t.contentHash()
	return t, nil
}

// ReadChoices reads upstream's binary format, uint32 n; uint32 offsets [n]; n tasks, or JSON lines with "question",
// "choices" and "gold", from 0, which it tells by their content. Errors are *FormatError.
func ReadChoices(in Input) ([]ChoiceTask, error) {
	if in.isText() {
		return readChoiceLines(in)
	}
	fail := func(format string, a ...any) ([]ChoiceTask, error) {
		return nil, &FormatError{in.Name, 0, fmt.Sprintf(format, a...)}
	}
	head := choiceReader{data: in.Data}
	n, err := head.number()
	if err != nil || n == 0 {
		return fail("there are no tasks: the file must begin with their number")
	}
	if n > (len(in.Data)-head.at)/4 {
		return fail("the file says it has %d tasks, but is too short even for their offsets: it is neither in upstream's binary format nor JSON lines", n)
	}
	tasks := make([]ChoiceTask, 0, n)
	seen := make(map[string]int)
	left := len(in.Data) - 4 - 4*n // bytes for tasks
	for i := range n {
		offset, _ := head.number()
		if offset < 4+4*n || offset > len(in.Data) {
			return fail("task %d: its offset %d lies outside the file's tasks", i, offset)
		}
		r := choiceReader{data: in.Data, at: offset}
		t, err := r.task()
		if err != nil {
			return fail("task %d, at byte %d: %v", i, offset, err)
		}
		if left -= r.at - offset; left < 0 {
			return fail("task %d, at byte %d, overlaps with tasks before it: together they are longer than the file", i, offset)
		}
		t.File, t.Index = in.Name, i
		key := hashLines(t.texts()...)
		if first, ok := seen[key]; ok {
			return fail("task %d is the same as task %d", i, first)
		}
		seen[key] = i
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// Choice is a prepared evaluation.
type Choice struct {
	Tasks    []ChoiceTask // in the order of evaluation
	Warnings []string     // for people

	options TaskOptions
	groups  []group
}

// ChoiceItem is one finished task and its JSON line.
type ChoiceItem struct {
	Kind   string    `json:"kind"` // "multiple_choice_task"
	N      int       `json:"n"`    // order of evaluation, from 1
	Task   int       `json:"task"` // place in the file, from 0
	Hash   string    `json:"hash"`
	Scores []float32 `json:"scores"` // mean log-probability of an answer's tokens, nats
	Gold   int       `json:"gold"`
	Pick   int       `json:"pick"`
	Margin float64   `json:"margin"` // score of the gold answer minus the best of the others
}

const kindChoice = "multiple_choice_task"

// NewChoice reads the tasks, selects them (upstream takes them in the file's order, or draws them if fewer are wanted) and
// tokenises them. The error may be a *FormatError or a *TooLongError.
func NewChoice(tok *tokenizer.Tokenizer, in Input, o TaskOptions) (*Choice, error) {
	o = o.withDefaults()
	if err := o.check(stageChoice); err != nil {
		return nil, err
	}
	all, err := ReadChoices(in)
	if err != nil {
		return nil, err
	}
	var c Choice
	if c.Tasks, c.Warnings, err = selectTasks(in.Name, all, o, drawSome); err != nil {
		return nil, err
	}
	for _, t := range c.Tasks {
		o.Sequences = max(o.Sequences, len(t.Answers))
	}
	c.options = o
	c.groups, err = fit(tok, c.Tasks, o)
	return &c, err
}

// ContextOptions is base with the size that the evaluation needs.
func (c *Choice) ContextOptions(base engine.ContextOptions) engine.ContextOptions {
	return c.options.contextOptions(base)
}

// Run evaluates the tasks that done does not have and calls each for every finished one, in order. The result has done
// in front. The error is a *NotFiniteError if a task has no score; ctx ends it early.
func (c *Choice) Run(ctx context.Context, m Context, done []ChoiceItem, each func(ChoiceItem) error) ([]ChoiceItem, error) {
	if err := checkDone(stageChoice, len(done), len(c.Tasks), func(i int) (n int, hash, want string) {
		return done[i].N, done[i].Hash, c.Tasks[i].Hash
	}); err != nil {
		return nil, err
	}
	items := slices.Clone(done)
	t := taskRun{stage: stageChoice, options: c.options, groups: c.groups, most: 4 * mostTasks, queries: func(_ int, r rows) []query { return continuationQueries(r) }}
	t.finish = func(i int, logProbs []float64) error {
		items = append(items, c.item(i, logProbs))
		return each(items[i])
	}
	err := t.run(ctx, m, len(done))
	return items, err
}

func (c *Choice) item(i int, logProbs []float64) ChoiceItem {
	t := c.Tasks[i]
	item := ChoiceItem{Kind: kindChoice, N: i + 1, Task: t.Index, Hash: t.Hash, Gold: t.Gold}
	others := math.Inf(-1)
	for s, tokens := range c.groups[i].sequences {
		n := len(tokens) - c.groups[i].prefix
		item.Scores = append(item.Scores, meanSingle(logProbs[:n]))
		logProbs = logProbs[n:]
		if item.Scores[s] > item.Scores[item.Pick] { // the first of equal ones stays
			item.Pick = s
		}
		if s != t.Gold {
			others = max(others, float64(item.Scores[s]))
		}
	}
	item.Margin = float64(item.Scores[t.Gold]) - others
	return item
}

// Doubts are reasons not to believe the result, for people.
func (c *Choice) Doubts(items []ChoiceItem) []string {
	right, chance := 0, 0.0
	for _, t := range items {
		if t.Pick == t.Gold {
			right++
		}
		chance += 1 / float64(len(t.Scores)) / float64(len(items))
	}
	return withinChance(right, len(items), chance)
}

// Write prints the finished tasks: their JSON lines and upstream's lines.
func (c *Choice) Write(w io.Writer, items []ChoiceItem) error {
	o := &printer{w: w}
	for _, t := range items {
		o.json(t)
	}
	o.printf("task\tacc_norm\n")
	right, answers := 0, 0
	for i, t := range items {
		if t.Pick == t.Gold {
			right++
		}
		answers += len(t.Scores)
		o.printf("%d\t%.8f\n", i+1, 100*float64(right)/float64(i+1))
	}
	if n := len(items); n > 1 {
		for _, l := range []struct {
			name string
			p    float32
		}{{"Final result", float32(right) / float32(n)}, {"Random chance", float32(n) / float32(answers)}} {
			sigma := float32(math.Sqrt(float64(l.p * (1 - l.p) / float32(n-1))))
			o.printf("%s: %.4f +/- %.4f\n", l.name, 100*l.p, 100*sigma)
		}
	}
	return o.err
}
