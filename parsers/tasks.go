package parsers

import (
	"fmt"
	"regexp"
	"strconv"
)

// selected is how upstream's task evaluators announce how many tasks are to come: the later line wins, since the
// evaluator picks from what was loaded.
var (
	tasksLoaded   = regexp.MustCompile(`(?:hellaswag|winogrande)_score : loaded (\d+) tasks from prompt`)
	tasksScored   = regexp.MustCompile(`multiple_choice_score ?: calculating TruthfulQA score over (\d+) tasks`)
	tasksSelected = regexp.MustCompile(`(?:hellaswag|winogrande)_score : selecting (\d+) (?:randomized|random) tasks`)
)

// announcedTasks returns how many tasks are to come and the line that says so; 0, 0 when none does.
func announcedTasks(t *text) (n, l int, err error) {
	for _, re := range []*regexp.Regexp{tasksScored, tasksSelected, tasksLoaded} {
		if m, l := t.first(re); m != nil {
			n, err := whole(l, "number of tasks", m[1])
			return n, l, err
		}
	}
	return 0, 0, nil
}

// countTasks compares how many tasks came with how many were announced.
func countTasks(want, wantLine, found, last int) error {
	switch expected := fmt.Sprintf("%d tasks, as announced in line %d", want, wantLine); {
	case found < want:
		return truncated(last, expected, strconv.Itoa(found))
	case found > want:
		return contradiction(last, expected, strconv.Itoa(found))
	}
	return nil
}

// nextTask checks that tasks are counted without a gap.
func nextTask(l, n, before int) error {
	if n != before+1 {
		return contradiction(l, fmt.Sprintf("task %d", before+1), fmt.Sprintf("task %d", n))
	}
	return nil
}

var hexHash = regexp.MustCompile(`^[0-9a-f]{16}$`)

// taskItem reads what both task kinds say about which task it is.
func taskItem(o *object, before int) (Answer, error) {
	a := Answer{N: o.int("n"), Task: ptr(o.int("task")), Hash: o.string("hash")}
	if o.err != nil {
		return a, o.err
	}
	if !hexHash.MatchString(a.Hash) {
		return a, malformed(o.line, "a hash of 16 hexadecimal digits", quote(a.Hash))
	}
	return a, nextTask(o.line, a.N, before)
}

func correctOf(answers []Answer) int {
	n := 0
	for _, a := range answers {
		if a.Correct {
			n++
		}
	}
	return n
}
