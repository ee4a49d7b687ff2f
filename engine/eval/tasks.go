package eval

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/tokenizer"
)

// TaskOptions of an evaluation by tasks; a zero field takes its default.
type TaskOptions struct {
	Tasks     int // so many; default all
	NCtx      int // tokens per sequence: the context has as many times the cells as sequences; default 512
	NBatch    int // tokens decoded at once; default 2048
	Sequences int // of the context: how many continuations are evaluated at once; default 4, as upstream
	Threads   int // for reading logits; default one per processor

	Selection Selection // of the tasks; default as upstream draws them
	Corrected bool      // Winogrande: the result is by the corrected rule, not by upstream's; both are recorded
}

// parallelSequences is upstream's least number of sequences for task evaluators.
const parallelSequences = 4

func (o TaskOptions) withDefaults() TaskOptions {
	o.NCtx, o.NBatch, o.Sequences = defaultInt(o.NCtx, 512), defaultInt(o.NBatch, 2048), defaultInt(o.Sequences, parallelSequences)
	return o
}

func (o TaskOptions) check(stage string) error {
	if o.Tasks < 0 || o.NCtx < 1 || o.NBatch < 1 || o.Sequences < parallelSequences {
		return fmt.Errorf("%s: %d tasks, a context of %d, batches of %d, %d sequences: none may be negative, and there must be at least %d sequences",
			stage, o.Tasks, o.NCtx, o.NBatch, o.Sequences, parallelSequences)
	}
	return nil
}

// Cells is the size of the context the options ask for.
func (o TaskOptions) Cells() int {
	o = o.withDefaults()
	return o.Sequences * o.NCtx
}

// contextOptions is base with the size that an evaluation needs.
func (o TaskOptions) contextOptions(base engine.ContextOptions) engine.ContextOptions {
	base.NCtx, base.NBatch, base.NSeqMax = o.Cells(), min(o.NBatch, o.Cells()), o.Sequences
	return base
}

// Task is a HellaSwagTask, a WinograndeTask or a ChoiceTask.
type Task interface {
	texts() []string // what is tokenised: one per continuation
	place() string   // file and line, for messages
	hash() string
}

// LongestTask finds the task that needs the most cells of a context.
func LongestTask[T Task](tok *tokenizer.Tokenizer, tasks []T) (place string, cells int) {
	for _, t := range tasks {
		if n := newGroup(tok, t).cells(); n > cells {
			place, cells = t.place(), n
		}
	}
	return place, cells
}

// hashLines identifies a task by its content: 16 hexadecimal digits of the SHA-256 of its lines joined by newlines.
func hashLines(lines ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:8])
}

// group is the continuations of one task. Their common beginning is evaluated once, for all of them.
type group struct {
	sequences [][]int32
	prefix    int // tokens of the common beginning
	place     string
}

func newGroup(tok *tokenizer.Tokenizer, t Task) group {
	g := group{place: t.place()}
	for _, text := range t.texts() {
		g.sequences = append(g.sequences, tok.Encode(text, true, false))
	}
	shortest := slices.MinFunc(g.sequences, func(a, b []int32) int { return cmp.Compare(len(a), len(b)) })
	for g.prefix < len(shortest) {
		for _, s := range g.sequences {
			if s[g.prefix] != shortest[g.prefix] {
				return g
			}
		}
		g.prefix++
	}
	return g
}

// cells is how many tokens the group puts into a context.
func (g group) cells() int {
	n := g.prefix
	for _, s := range g.sequences {
		n += len(s) - g.prefix
	}
	return n
}

// check refuses groups that cannot be scored: no common beginning to predict from, or a continuation without a token
// of its own.
func (g group) check() error {
	if g.prefix == 0 {
		return fmt.Errorf("%s: the continuations have no token in common to be predicted from", g.place)
	}
	for i, s := range g.sequences {
		if len(s) == g.prefix {
			return fmt.Errorf("%s: continuation %d has no token of its own: it is the beginning of all the others", g.place, i+1)
		}
	}
	return nil
}

// rows tells where the tokens of a group are in a batch.
type rows struct {
	group
	base int // row of the group's first token
}

// of is the row of token j of sequence s.
func (r rows) of(s, j int) int {
	if j < r.prefix {
		return r.base + j
	}
	row := r.base + j
	for _, before := range r.sequences[:s] {
		row += len(before) - r.prefix
	}
	return row
}

// add puts the group into b, as sequences from seq on. Logits are wanted of the last common token and of those behind it, of
// a continuation's last only if ends is set.
func (g group) add(b *batch, seq int, ends bool) rows {
	r := rows{g, len(b.Tokens)}
	all := make([]int32, len(g.sequences))
	for i := range all {
		all[i] = int32(seq + i)
	}
	for pos, token := range g.sequences[0][:g.prefix] {
		b.add(token, pos, pos == g.prefix-1, all...)
	}
	for i, s := range g.sequences {
		for pos := g.prefix; pos < len(s); pos++ {
			b.add(s[pos], pos, ends || pos < len(s)-1, int32(seq+i))
		}
	}
	return r
}

// taskRun evaluates groups, as many at once as upstream does.
type taskRun struct {
	stage   string
	options TaskOptions
	groups  []group
	most    int  // sequences that upstream evaluates at once if the context has them
	ends    bool // upstream computes logits after the last token of a continuation too
	queries func(i int, r rows) []query
	finish  func(i int, logProbs []float64) error // answers to the queries of group i, in their order
}

// run finishes the groups from start on. Batches are always cut in the same places, so that a run that was continued gives
// the very figures of one that was not: groups before start are evaluated again where their batch is not complete.
func (t taskRun) run(ctx context.Context, c Context, start int) error {
	s := scorer{c, t.options.Threads}
	for from := 0; from < len(t.groups); {
		to := t.packed(from)
		if to > start {
			if err := t.evaluate(ctx, s, from, to, start); err != nil {
				return err
			}
		}
		from = to
	}
	return nil
}

// packed is the end of the batch that begins with group from: as many as there are sequences and cells, at least one.
func (t taskRun) packed(from int) int {
	context := (t.options.Cells() + 255) / 256 * 256 // the step of contexts, here and upstream
	cells, sequences := 0, 0
	for i := from; i < len(t.groups); i++ {
		g := t.groups[i]
		cells += g.cells()
		sequences += len(g.sequences)
		if i > from && (cells > context || sequences > min(t.most, t.options.Sequences)) {
			return i
		}
	}
	return len(t.groups)
}

// evaluate evaluates the groups [from, to) in one batch and finishes those from start on.
func (t taskRun) evaluate(ctx context.Context, s scorer, from, to, start int) error {
	var b batch
	var queries [][]query
	seq := 0
	for i := from; i < to; i++ {
		queries = append(queries, t.queries(i, t.groups[i].add(&b, seq, t.ends)))
		seq += len(t.groups[i].sequences)
	}
	values, err := t.answer(ctx, s, &b, queries)
	if err != nil {
		return fmt.Errorf("%s: task %d (%s): %w", t.stage, from+1, t.groups[from].place, err)
	}
	for i := from; i < to; i++ {
		n := len(queries[i-from])
		if v, bad := notFinite(values[:n]); bad {
			return &NotFiniteError{t.stage, fmt.Sprintf("task %d (%s)", i+1, t.groups[i].place), v}
		}
		if i >= start {
			if err := t.finish(i, values[:n]); err != nil {
				return err
			}
		}
		values = values[n:]
	}
	return nil
}

// answer scores a batch; the answers are in the order of the queries.
func (t taskRun) answer(ctx context.Context, s scorer, b *batch, queries [][]query) ([]float64, error) {
	all := slices.Concat(queries...)
	order := identity(len(all))
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(all[x].row, all[y].row) })
	sorted := make([]query, len(all))
	for i, o := range order {
		sorted[i] = all[o]
	}
	s.context.Clear()
	values, err := s.score(ctx, b, sorted)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(all))
	for i, o := range order {
		out[o] = values[i]
	}
	return out, nil
}

// fit makes groups of tasks and refuses those that the evaluation cannot take.
func fit[T Task](tok *tokenizer.Tokenizer, tasks []T, o TaskOptions) ([]group, error) {
	groups := make([]group, len(tasks))
	for i, t := range tasks {
		g := newGroup(tok, t)
		if err := g.check(); err != nil {
			return nil, err
		}
		if g.cells() > o.Cells() {
			return nil, &TooLongError{g.place, g.cells(), o.Cells()}
		}
		if len(g.sequences) > o.Sequences {
			return nil, fmt.Errorf("%s: the task has %d continuations and the context %d sequences: raise them", g.place, len(g.sequences), o.Sequences)
		}
		groups[i] = g
	}
	return groups, nil
}
