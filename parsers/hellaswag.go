package parsers

import (
	"fmt"
	"math"
	"regexp"
)

// The embedded engine's form: a hellaswag_task line per task with its scores, and upstream's table. Pick, margin and
// the table are recomputed from the scores.

const hellaSwagKind = "hellaswag_task"

func matchHellaSwagTasks(t *text) bool { return t.hasKind(hellaSwagKind) }

func decodeHellaSwagTasks(t *text) ([]Measurement, error) {
	var answers []Answer
	last := 0
	for _, l := range t.lines {
		if !l.ofKind(hellaSwagKind) {
			continue
		}
		a, err := hellaSwagTask(l, len(answers))
		if err != nil {
			return nil, err
		}
		answers, last = append(answers, a), l.n
	}
	rows, err := hellaSwagRows(t, hellaSwagIntervalRow)
	if err != nil {
		return nil, err
	}
	if len(rows) < len(answers) {
		return nil, truncated(len(t.lines), fmt.Sprintf("%d table rows, one a task", len(answers)), fmt.Sprint(len(rows)))
	}
	if len(rows) > len(answers) {
		return nil, contradiction(last, fmt.Sprintf("%d tasks, one a table row", len(rows)), fmt.Sprint(len(answers)))
	}
	for i, r := range rows {
		if want := 100 * float64(correctOf(answers[:i+1])) / float64(i+1); !agrees(r.percent, want, 8) {
			return nil, contradiction(r.line, fmt.Sprintf("%.8f%%, from the picks", want), formatFloat(r.percent))
		}
	}
	want, l, err := announcedTasks(t)
	if err != nil {
		return nil, err
	}
	if want > 0 {
		if err := countTasks(want, l, len(answers), last); err != nil {
			return nil, err
		}
	}
	return []Measurement{accuracy(HellaSwagAccuracy, answers)}, nil
}

func hellaSwagTask(l line, before int) (Answer, error) {
	o, err := newObject(l)
	if err != nil {
		return Answer{}, err
	}
	a, err := taskItem(o, before)
	if err != nil {
		return a, err
	}
	scores, gold, pick, margin := o.floats("scores"), o.int("gold"), o.int("pick"), o.float("margin")
	if o.err != nil {
		return a, o.err
	}
	if len(scores) < 2 || gold >= len(scores) || pick >= len(scores) {
		return a, contradiction(l.n, "scores of at least two endings, gold and pick among them", quote(l.text))
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
		return a, contradiction(l.n, fmt.Sprintf("pick %d, the first with the highest score", best), fmt.Sprint(pick))
	}
	exact := scores[gold] - other
	if math.Abs(margin-exact) > 1e-5*(1+math.Abs(scores[gold])) {
		return a, contradiction(l.n, fmt.Sprintf("margin %v, from the scores", exact), formatFloat(margin))
	}
	a.Correct, a.Margin = pick == gold, &exact
	return a, nil
}

// hellaSwagRow is "n accuracy%" of upstream's table: the accuracy over the first n tasks.
type hellaSwagRow struct {
	line    int
	percent float64
}

var (
	hellaSwagIntervalRow = regexp.MustCompile(`^(\d+)\t(\S+)%\t\[(\S+)%, (\S+)%\]$`)
	hellaSwagPlainRow    = regexp.MustCompile(`^(\d+)\t(\S+)$`)
	eightDecimals        = regexp.MustCompile(`^\d+\.\d{8}$`)
)

// hellaSwagRows reads the rows of the table, which begins with its header.
func hellaSwagRows(t *text, re *regexp.Regexp) ([]hellaSwagRow, error) {
	var out []hellaSwagRow
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
		out = append(out, hellaSwagRow{l.n, p})
	}
	return out, nil
}

// checkWilson recomputes the printed Wilson score interval (Wilson 1927), z = 1.95996398454 as upstream has it.
func checkWilson(l int, p float64, n int, lo, hi string) error {
	const z = 1.95996398454
	f := float64(n)
	centre := (p + z*z/(2*f)) / (1 + z*z/f)
	half := z / (1 + z*z/f) * math.Sqrt(p*(1-p)/f+z*z/(4*f*f))
	for _, c := range []struct {
		printed string
		exact   float64
	}{{lo, centre - half}, {hi, centre + half}} {
		v, err := number(l, "interval", c.printed)
		if err != nil {
			return err
		}
		if !agrees(v, 100*c.exact, 4) {
			return contradiction(l, fmt.Sprintf("the Wilson limit %.4f%%", 100*c.exact), c.printed)
		}
	}
	return nil
}
