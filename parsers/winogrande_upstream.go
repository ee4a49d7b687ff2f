package parsers

import (
	"fmt"
	"math"
	"regexp"
)

// llama-perplexity --winogrande: task, running accuracy in percent, the two scores, pick and right answer. From 100
// tasks on a final line follows.

var (
	winograndeRow   = regexp.MustCompile(`^(\d+)\t(\S+)\t\s*(\S+)\s+(\S+)\s+([12])\s+([12])$`)
	winograndeFinal = regexp.MustCompile(`Final Winogrande score\((\d+) tasks\): (\S+) \+/- (\S+)$`)
)

// finalFrom is the number of tasks from which upstream prints its final line.
const finalFrom = 100

type winograndeLine struct {
	line    int
	percent float64
	answer  Answer
}

func matchWinograndeUpstream(t *text) bool { return t.matches(winograndeRow) }

func decodeWinograndeUpstream(t *text) ([]Measurement, error) {
	rows, err := winograndeRows(t)
	if err != nil {
		return nil, err
	}
	if err := checkWinograndeEnd(t, rows, true); err != nil {
		return nil, err
	}
	answers := make([]Answer, len(rows))
	for i, r := range rows {
		answers[i] = r.answer
	}
	return []Measurement{accuracy(WinograndeAccuracy, answers)}, nil
}

func winograndeRows(t *text) ([]winograndeLine, error) {
	var out []winograndeLine
	correct := 0
	for _, l := range t.lines {
		m := winograndeRow.FindStringSubmatch(l.text)
		if m == nil {
			continue
		}
		r, err := winograndeLineOf(l, m, len(out))
		if err != nil {
			return nil, err
		}
		if r.answer.Correct {
			correct++
		}
		out = append(out, r)
		if want := 100 * float64(correct) / float64(len(out)); !agrees(r.percent, want, 4) {
			return nil, contradiction(l.n, fmt.Sprintf("an accuracy of %.4f, from the picks", want), m[2])
		}
	}
	return out, nil
}

func winograndeLineOf(l line, m []string, before int) (winograndeLine, error) {
	r := winograndeLine{line: l.n}
	n, err := whole(l.n, "task number", m[1])
	if err != nil {
		return r, err
	}
	if err := nextTask(l.n, n, before); err != nil {
		return r, err
	}
	if r.percent, err = number(l.n, "accuracy", m[2]); err != nil {
		return r, err
	}
	var score [2]float64
	for i := range score {
		if score[i], err = number(l.n, "score", m[3+i]); err != nil {
			return r, err
		}
	}
	pick, gold := int(m[5][0]-'0'), int(m[6][0]-'0')
	// Equal as printed, the scores may differ in a digit that was not.
	if score[0] != score[1] && pick != winograndePick(score[0], score[1]) {
		return r, contradiction(l.n, fmt.Sprintf("pick %d, from the scores", winograndePick(score[0], score[1])), m[5])
	}
	r.answer = Answer{N: n, Correct: pick == gold, Margin: ptr(score[gold-1] - score[2-gold])}
	return r, nil
}

// checkWinograndeEnd finds out whether all tasks are there: by the final line, and by the announcement, which upstream
// writes to its log. needed says that one of the two must be there.
func checkWinograndeEnd(t *text, rows []winograndeLine, needed bool) error {
	last := rows[len(rows)-1]
	m, l := t.first(winograndeFinal)
	if m != nil {
		if err := checkWinograndeFinal(m, l, rows); err != nil {
			return err
		}
	}
	if m == nil && len(rows) >= finalFrom {
		return truncated(len(t.lines), fmt.Sprintf(`"Final Winogrande score(...)", printed from %d tasks on`, finalFrom), "the end of the output")
	}
	want, wantLine, err := announcedTasks(t)
	if err != nil {
		return err
	}
	if want > 0 {
		return countTasks(want, wantLine, len(rows), last.line)
	}
	if m == nil && needed {
		return truncated(0, `"winogrande_score : loaded ... tasks", which tells whether all are there`, fmt.Sprintf("%d tasks and no such line", len(rows)))
	}
	return nil
}

func checkWinograndeFinal(m []string, l int, rows []winograndeLine) error {
	n, err := whole(l, "number of tasks", m[1])
	if err != nil {
		return err
	}
	if err := countTasks(n, l, len(rows), rows[len(rows)-1].line); err != nil {
		return err
	}
	score, err := number(l, "final score", m[2])
	if err != nil {
		return err
	}
	sigma, err := number(l, "error of the final score", m[3])
	if err != nil {
		return err
	}
	correct := 0
	for _, r := range rows {
		if r.answer.Correct {
			correct++
		}
	}
	p := float64(correct) / float64(n)
	if want := 100 * p; !agreesSingle(score, want) {
		return contradiction(l, fmt.Sprintf("%.4f, from the tasks", want), m[2])
	}
	if want := 100 * math.Sqrt(p*(1-p)/float64(n-1)); n > 1 && !agreesSingle(sigma, want) {
		return contradiction(l, fmt.Sprintf("an error of %.4f, from the tasks", want), m[3])
	}
	return nil
}

// agreesSingle is agrees for four decimals of a percentage that was computed in single precision, as upstream does.
func agreesSingle(printed, exact float64) bool {
	return math.Abs(printed-exact) <= 0.5e-4+1e-5
}
