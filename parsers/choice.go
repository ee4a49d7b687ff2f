package parsers

import (
	"fmt"
	"math"
	"regexp"
)

// Multiple choice. The embedded engine's form has a multiple_choice_task line per task with its scores; upstream's has the
// table of running accuracies alone, from which the answers are recovered. Both end with "Final result".

const (
	choiceKind = "multiple_choice_task"
	choiceMark = "multiple_choice_score"
)

var choiceFinal = regexp.MustCompile(`Final result: (\S+) \+/- (\S+)$`)

func matchChoiceTasks(t *text) bool { return t.hasKind(choiceKind) }

func matchChoiceUpstream(t *text) bool { return t.has(choiceMark) || t.matches(choiceFinal) }

func decodeChoiceTasks(t *text) ([]Measurement, error) {
	answers, choices, last, err := scoredTasks(t, choiceKind)
	if err != nil {
		return nil, err
	}
	if err := checkAccuracies(t, plainRow, answers, last); err != nil {
		return nil, err
	}
	m, err := finishChoice(t, answers, last)
	if err != nil {
		return nil, err
	}
	for _, n := range choices {
		m.Chance += 1 / float64(n) / float64(len(choices))
	}
	return []Measurement{m}, nil
}

func decodeChoiceUpstream(t *text) ([]Measurement, error) {
	rows, err := accuracyRows(t, plainRow)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, truncated(len(t.lines), "a table row per task", "none")
	}
	answers, err := fromRunningAccuracy(rows)
	if err != nil {
		return nil, err
	}
	if want, _, err := announcedTasks(t); err != nil || want == 0 && !t.matches(choiceFinal) {
		if err == nil {
			err = truncated(len(t.lines), `"Final result: ..." or the number of tasks, which tell whether all are there`, fmt.Sprintf("%d tasks and no such line", len(rows)))
		}
		return nil, err
	}
	m, err := finishChoice(t, answers, rows[len(rows)-1].line)
	if err != nil {
		return nil, err
	}
	return []Measurement{m}, nil
}

// finishChoice compares the answers with how many were announced and with the final line, as far as these are there.
func finishChoice(t *text, answers []Answer, last int) (Measurement, error) {
	m := accuracy(ChoiceAccuracy, answers)
	want, l, err := announcedTasks(t)
	if err == nil && want > 0 {
		err = countTasks(want, l, len(answers), last)
	}
	if err != nil {
		return m, err
	}
	final, l := t.first(choiceFinal)
	if final == nil {
		return m, nil
	}
	score, err := number(l, "final result", final[1])
	if err != nil {
		return m, err
	}
	sigma, err := number(l, "error of the final result", final[2])
	if err != nil {
		return m, err
	}
	if want := 100 * m.Value; !agreesSingle(score, want) {
		return m, contradiction(l, fmt.Sprintf("%.4f, from the tasks", want), final[1])
	}
	if want := 100 * math.Sqrt(m.Value*(1-m.Value)/float64(len(answers)-1)); len(answers) > 1 && !agreesSingle(sigma, want) {
		return m, contradiction(l, fmt.Sprintf("an error of %.4f, from the tasks", want), final[2])
	}
	return m, nil
}
