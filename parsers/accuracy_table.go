package parsers

import (
	"fmt"
	"math"
	"regexp"
)

// HellaSwag and multiple choice print a table of running accuracies. In the embedded engine's form JSON lines with the
// scores of every task stand before it.

// accuracyRow is "n accuracy%" of upstream's table: the accuracy over the first n tasks.
type accuracyRow struct {
	line    int
	percent float64
}

var (
	intervalRow   = regexp.MustCompile(`^(\d+)\t(\S+)%\t\[(\S+)%, (\S+)%\]$`)
	plainRow      = regexp.MustCompile(`^(\d+)\t(\S+)$`)
	eightDecimals = regexp.MustCompile(`^\d+\.\d{8}$`)
)

// accuracyRows reads the rows of the table, which begins with its header.
func accuracyRows(t *text, re *regexp.Regexp) ([]accuracyRow, error) {
	var out []accuracyRow
	for _, l := range t.lines {
		m := re.FindStringSubmatch(l.text)
		if m == nil {
			continue
		}
		n, err := whole(l.n, "task number", m[1])
		if err != nil {
			return nil, err
		}
		if err := nextTask(l.n, n, len(out)); err != nil {
			return nil, err
		}
		p, err := number(l.n, "acc_norm", m[2])
		if err != nil {
			return nil, err
		}
		if !eightDecimals.MatchString(m[2]) {
			return nil, truncated(l.n, "acc_norm with eight decimals", quote(m[2]))
		}
		if len(m) == 5 {
			if err := checkWilson(l.n, p/100, n, m[3], m[4]); err != nil {
				return nil, err
			}
		}
		out = append(out, accuracyRow{l.n, p})
	}
	return out, nil
}

// checkAccuracies compares the table with the tasks, of which the last stands in the given line.
func checkAccuracies(t *text, row *regexp.Regexp, answers []Answer, last int) error {
	rows, err := accuracyRows(t, row)
	if err != nil {
		return err
	}
	if len(rows) < len(answers) {
		return truncated(len(t.lines), fmt.Sprintf("%d table rows, one a task", len(answers)), fmt.Sprint(len(rows)))
	}
	if len(rows) > len(answers) {
		return contradiction(last, fmt.Sprintf("%d tasks, one a table row", len(rows)), fmt.Sprint(len(answers)))
	}
	correct := 0
	for i, r := range rows {
		if answers[i].Correct {
			correct++
		}
		if want := 100 * float64(correct) / float64(i+1); !agrees(r.percent, want, 8) {
			return contradiction(r.line, fmt.Sprintf("%.8f%%, from the picks", want), formatFloat(r.percent))
		}
	}
	return nil
}

// scoredTasks reads the JSON lines of a kind: the answers, how many each task had to choose from, and the last line.
func scoredTasks(t *text, kind string) (answers []Answer, choices []int, last int, err error) {
	for _, l := range t.lines {
		if !l.ofKind(kind) {
			continue
		}
		a, n, err := scoredTask(l, len(answers))
		if err != nil {
			return nil, nil, 0, err
		}
		answers, choices, last = append(answers, a), append(choices, n), l.n
	}
	return answers, choices, last, nil
}

// scoredTask reads a task whose pick is the answer with the highest score, the first of equal ones.
func scoredTask(l line, before int) (a Answer, choices int, err error) {
	o, err := newObject(l)
	if err != nil {
		return a, 0, err
	}
	if a, err = taskItem(o, before); err != nil {
		return a, 0, err
	}
	scores, gold, pick, margin := o.floats("scores"), o.int("gold"), o.int("pick"), o.float("margin")
	if o.err != nil {
		return a, 0, o.err
	}
	if len(scores) < 2 || gold >= len(scores) || pick >= len(scores) {
		return a, 0, contradiction(l.n, "scores of at least two answers, gold and pick among them", quote(l.text))
	}
	best, other := 0, math.Inf(-1)
	for i, s := range scores {
		if s > scores[best] {
			best = i
		}
		if i != gold {
			other = max(other, s)
		}
	}
	if pick != best {
		return a, 0, contradiction(l.n, fmt.Sprintf("pick %d, the first with the highest score", best), fmt.Sprint(pick))
	}
	exact := scores[gold] - other
	if math.Abs(margin-exact) > 1e-5*(1+math.Abs(scores[gold])) {
		return a, 0, contradiction(l.n, fmt.Sprintf("margin %v, from the scores", exact), formatFloat(margin))
	}
	a.Correct, a.Margin = pick == gold, &exact
	return a, len(scores), nil
}

// fromRunningAccuracy takes differences of the running number of correct answers, which must be whole.
func fromRunningAccuracy(rows []accuracyRow) ([]Answer, error) {
	answers := make([]Answer, len(rows))
	before := 0
	for i, r := range rows {
		sum := r.percent * float64(i+1) / 100
		correct := int(math.Round(sum))
		if math.Abs(sum-float64(correct)) > 0.6e-10*float64(i+1)+1e-9 || correct < before || correct > before+1 {
			return nil, contradiction(r.line, fmt.Sprintf("an accuracy of %d or %d of %d tasks", before, before+1, i+1), formatFloat(r.percent)+"%")
		}
		answers[i] = Answer{N: i + 1, Correct: correct > before}
		before = correct
	}
	return answers, nil
}
