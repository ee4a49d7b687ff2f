package parsers

import (
	"fmt"
	"regexp"
)

// llama-perplexity --hellaswag prints the accuracy after every task with eight decimals, enough to tell which tasks
// were answered correctly. Builds since 2025 add "%" and an interval; older ones print the bare percentage.

const (
	intervalHeader = "task\tacc_norm\t95% confidence interval"
	plainHeader    = "task\tacc_norm"
)

func (t *text) hasLine(s string) bool {
	return t.any(func(l line) bool { return l.text == s })
}

func matchHellaSwagInterval(t *text) bool { return t.hasLine(intervalHeader) }
func matchHellaSwagPlain(t *text) bool    { return t.hasLine(plainHeader) }

func decodeHellaSwagInterval(t *text) ([]Measurement, error) {
	return decodeHellaSwagTable(t, intervalRow)
}

func decodeHellaSwagPlain(t *text) ([]Measurement, error) {
	if t.has(choiceMark) {
		return nil, malformed(0, "HellaSwag tasks", "an output of --multiple-choice")
	}
	return decodeHellaSwagTable(t, plainRow)
}

func decodeHellaSwagTable(t *text, row *regexp.Regexp) ([]Measurement, error) {
	rows, err := accuracyRows(t, row)
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
