package parsers

import (
	"fmt"
	"math"
	"regexp"
)

// llama-perplexity --hellaswag prints the accuracy after every task with eight decimals, enough to tell which tasks
// were answered correctly. Builds since 2025 add "%" and an interval; older ones print the bare percentage.

const (
	hellaSwagIntervalHeader = "task\tacc_norm\t95% confidence interval"
	hellaSwagPlainHeader    = "task\tacc_norm"
)

func (t *text) hasLine(s string) bool {
	return t.any(func(l line) bool { return l.text == s })
}

func matchHellaSwagInterval(t *text) bool { return t.hasLine(hellaSwagIntervalHeader) }
func matchHellaSwagPlain(t *text) bool    { return t.hasLine(hellaSwagPlainHeader) }

func decodeHellaSwagInterval(t *text) ([]Measurement, error) {
	return decodeHellaSwagTable(t, hellaSwagIntervalRow)
}

func decodeHellaSwagPlain(t *text) ([]Measurement, error) {
	if t.has("multiple_choice_score") {
		return nil, malformed(0, "HellaSwag tasks", "an output of --multiple-choice")
	}
	return decodeHellaSwagTable(t, hellaSwagPlainRow)
}

func decodeHellaSwagTable(t *text, row *regexp.Regexp) ([]Measurement, error) {
	rows, err := hellaSwagRows(t, row)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, truncated(len(t.lines), "a table row per task", "none")
	}
	want, l, err := announcedTasks(t)
	if err != nil {
		return nil, err
	}
	if want == 0 {
		return nil, truncated(0, `"hellaswag_score : selecting ... tasks", which tells whether all are there`,
			fmt.Sprintf("%d tasks and no such line", len(rows)))
	}
	if err := countTasks(want, l, len(rows), rows[len(rows)-1].line); err != nil {
		return nil, err
	}
	answers, err := fromRunningAccuracy(rows)
	if err != nil {
		return nil, err
	}
	return []Measurement{accuracy(HellaSwagAccuracy, answers)}, nil
}

// fromRunningAccuracy takes differences of the running number of correct answers, which must be whole.
func fromRunningAccuracy(rows []hellaSwagRow) ([]Answer, error) {
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
