package eval

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/tokenizer"
)

const stageHellaSwag = "hellaswag"

// HellaSwagTask is a text with four endings, one of them true (Zellers et al. 2019).
type HellaSwagTask struct {
	File    string
	Line    int // of the context, from 1
	Index   int // place in the file, from 0
	Hash    string
	Context string
	Gold    int // 0 to 3
	Endings [4]string
}

func (t HellaSwagTask) place() string { return fmt.Sprintf("%s:%d", t.File, t.Line) }

func (t HellaSwagTask) hash() string { return t.Hash }

func (t HellaSwagTask) texts() []string {
	var s []string
	for _, e := range t.Endings {
		s = append(s, t.Context+" "+e)
	}
	return s
}

// ReadHellaSwag reads upstream's format: six lines a task, the context, the gold index and four endings. Errors are
// *FormatError.
func ReadHellaSwag(in Input) ([]HellaSwagTask, error) {
	lines, err := in.lines()
	if err != nil {
		return nil, err
	}
	var tasks []HellaSwagTask
	seen := make(map[string]int)
	for from := 0; from < len(lines); from += 6 {
		t, err := hellaSwagTask(in.Name, lines[from:min(from+6, len(lines))], from+1)
		if err != nil {
			return nil, err
		}
		t.Index = len(tasks)
		key := hashLines(t.texts()...)
		if first, ok := seen[key]; ok {
			return nil, &FormatError{in.Name, t.Line, fmt.Sprintf("the task is the same as that on line %d", first)}
		}
		seen[key] = t.Line
		tasks = append(tasks, t)
	}
	if len(tasks) == 0 {
		return nil, &FormatError{in.Name, 0, "there are no tasks"}
	}
	return tasks, nil
}

func hellaSwagTask(file string, lines []string, line int) (HellaSwagTask, error) {
	fail := func(i int, format string, a ...any) (HellaSwagTask, error) {
		return HellaSwagTask{}, &FormatError{file, line + i, fmt.Sprintf(format, a...)}
	}
	t := HellaSwagTask{File: file, Line: line, Hash: hashLines(lines...)}
	if len(lines) > 1 {
		gold, err := strconv.Atoi(strings.TrimSpace(lines[1]))
		if err != nil || gold < 0 || gold > 3 {
			return fail(1, "the second line of the task from line %d must be the index of the right ending, 0 to 3, and is %q: is a line missing or too many before it?", line, lines[1])
		}
		t.Gold = gold
	}
	if len(lines) < 6 {
		return fail(0, "the task has %d of 6 lines: context, index of the right ending, four endings", len(lines))
	}
	if strings.TrimSpace(lines[0]) == "" {
		return fail(0, "the context is empty")
	}
	t.Context = lines[0]
	for i, e := range lines[2:] {
		if strings.TrimSpace(e) == "" {
			return fail(2+i, "ending %d is empty", i)
		}
		t.Endings[i] = e
	}
	return t, nil
}

// HellaSwag is a prepared evaluation.
type HellaSwag struct {
	Tasks    []HellaSwagTask // in the order of evaluation
	Warnings []string        // for people

	options TaskOptions
	groups  []group
}

// HellaSwagItem is one finished task and its JSON line.
type HellaSwagItem struct {
	Kind   string     `json:"kind"` // "hellaswag_task"
	N      int        `json:"n"`    // order of evaluation, from 1
	Task   int        `json:"task"` // place in the file, from 0
	Hash   string     `json:"hash"`
	Scores [4]float64 `json:"scores"` // mean log-probability of an ending's tokens, nats
	Gold   int        `json:"gold"`
	Pick   int        `json:"pick"`
	Margin float64    `json:"margin"` // score of the gold ending minus the best of the others
}

const kindHellaSwag = "hellaswag_task"

// NewHellaSwag reads the tasks, selects them (upstream draws even all of them in random order) and tokenises them. The error
// may be a *FormatError or a *TooLongError.
func NewHellaSwag(tok *tokenizer.Tokenizer, in Input, o TaskOptions) (*HellaSwag, error) {
	o = o.withDefaults()
	if err := o.check(stageHellaSwag); err != nil {
		return nil, err
	}
	all, err := ReadHellaSwag(in)
	if err != nil {
		return nil, err
	}
	h := &HellaSwag{options: o}
	if h.Tasks, h.Warnings, err = selectTasks(in.Name, all, o, drawInOrder); err != nil {
		return nil, err
	}
	h.groups, err = fit(tok, h.Tasks, o)
	return h, err
}

// ContextOptions is base with the size that the evaluation needs.
func (h *HellaSwag) ContextOptions(base engine.ContextOptions) engine.ContextOptions {
	return h.options.contextOptions(base)
}

// Run evaluates the tasks that done does not have and calls each for every finished one, in order. The result has done
// in front. The error is a *NotFiniteError if a task has no score; ctx ends it early.
func (h *HellaSwag) Run(ctx context.Context, c Context, done []HellaSwagItem, each func(HellaSwagItem) error) ([]HellaSwagItem, error) {
	if err := checkDone(stageHellaSwag, len(done), len(h.Tasks), func(i int) (n int, hash, want string) {
		return done[i].N, done[i].Hash, h.Tasks[i].Hash
	}); err != nil {
		return nil, err
	}
	items := slices.Clone(done)
	t := taskRun{stage: stageHellaSwag, options: h.options, groups: h.groups, most: 4 * mostTasks, queries: func(_ int, r rows) []query { return continuationQueries(r) }}
	t.finish = func(i int, logProbs []float64) error {
		items = append(items, h.item(i, continuationScores(h.groups[i], logProbs)))
		return each(items[i])
	}
	err := t.run(ctx, c, len(done))
	return items, err
}

// checkDone refuses a checkpoint of other tasks.
func checkDone(stage string, done, tasks int, entry func(i int) (n int, hash, want string)) error {
	if done > tasks {
		return &CheckpointError{stage, fmt.Sprintf("it has %d tasks, the evaluation %d", done, tasks)}
	}
	for i := range done {
		if n, hash, want := entry(i); n != i+1 || hash != want {
			return &CheckpointError{stage, fmt.Sprintf("entry %d is number %d with hash %s, the task's hash is %s", i+1, n, hash, want)}
		}
	}
	return nil
}

// mostTasks is how many tasks of four continuations upstream evaluates at once.
const mostTasks = 32

// continuationQueries asks for every token of every continuation. The first ones come from the last common token.
func continuationQueries(r rows) []query {
	var q []query
	for s, tokens := range r.sequences {
		for j := r.prefix; j < len(tokens); j++ {
			in := summedSingle
			if j == r.prefix {
				in = asProbability
			}
			q = append(q, query{row: r.of(s, j-1), token: tokens[j], in: in})
		}
	}
	return q
}

// continuationScores is the mean log-probability of each continuation.
func continuationScores(g group, logProbs []float64) []float64 {
	scores := make([]float64, len(g.sequences))
	for s, tokens := range g.sequences {
		n := len(tokens) - g.prefix
		for _, v := range logProbs[:n] {
			scores[s] += v
		}
		scores[s] /= float64(n)
		logProbs = logProbs[n:]
	}
	return scores
}

func (h *HellaSwag) item(i int, scores []float64) HellaSwagItem {
	t := h.Tasks[i]
	item := HellaSwagItem{Kind: kindHellaSwag, N: i + 1, Task: t.Index, Hash: t.Hash, Scores: [4]float64(scores), Gold: t.Gold}
	others := math.Inf(-1)
	for s, v := range scores {
		if v > scores[item.Pick] { // the first of equal ones stays
			item.Pick = s
		}
		if s != t.Gold {
			others = max(others, v)
		}
	}
	item.Margin = scores[t.Gold] - others
	return item
}

// Doubts are reasons not to believe the result, for people.
func (h *HellaSwag) Doubts(items []HellaSwagItem) []string {
	right := 0
	for _, t := range items {
		if t.Pick == t.Gold {
			right++
		}
	}
	return withinChance(right, len(items), 0.25)
}

// Write prints the finished tasks as docs/format/output.md says.
func (h *HellaSwag) Write(w io.Writer, items []HellaSwagItem) error {
	o := &printer{w: w}
	for _, t := range items {
		o.json(t)
	}
	o.printf("task\tacc_norm\t95%% confidence interval\n")
	right := 0
	for i, t := range items {
		if t.Pick == t.Gold {
			right++
		}
		low, high := wilson(right, i+1)
		o.printf("%d\t%3.8f%%\t[%3.4f%%, %3.4f%%]\n", i+1, 100*float64(right)/float64(i+1), 100*low, 100*high)
	}
	return o.err
}
