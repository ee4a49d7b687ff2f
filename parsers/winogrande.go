package parsers

import "fmt"

// The embedded engine's form: a winogrande_task line per task with the scores of both readings by upstream's rule and
// by the corrected one, then upstream's line. Picks and running accuracy are recomputed from the scores.

const winograndeKind = "winogrande_task"

func matchWinograndeTasks(t *text) bool { return t.hasKind(winograndeKind) }

func decodeWinograndeTasks(t *text) ([]Measurement, error) {
	var answers, corrected []Answer
	for _, l := range t.lines {
		if !l.ofKind(winograndeKind) {
			continue
		}
		o, err := newObject(l)
		if err != nil {
			return nil, err
		}
		a, err := taskItem(o, len(answers))
		if err != nil {
			return nil, err
		}
		asUpstream, err := winograndeTask(o, a, "scores", "pick")
		if err != nil {
			return nil, err
		}
		asMeant, err := winograndeTask(o, a, "corrected", "corrected_pick")
		if err != nil {
			return nil, err
		}
		answers, corrected = append(answers, asUpstream), append(corrected, asMeant)
	}
	rows, err := winograndeRows(t)
	if err != nil {
		return nil, err
	}
	if len(rows) < len(answers) {
		return nil, truncated(len(t.lines), fmt.Sprintf("%d upstream lines, one a task", len(answers)), fmt.Sprint(len(rows)))
	}
	if len(rows) > len(answers) {
		return nil, contradiction(len(t.lines), fmt.Sprintf("%d tasks, one an upstream line", len(rows)), fmt.Sprint(len(answers)))
	}
	for i, r := range rows {
		if r.answer.Correct != answers[i].Correct {
			return nil, contradiction(r.line, "the pick of the task's JSON line", "the other")
		}
	}
	if err := checkWinograndeEnd(t, rows, false); err != nil {
		return nil, err
	}
	return []Measurement{accuracy(WinograndeAccuracy, answers), accuracy(WinograndeFixed, corrected)}, nil
}

// winograndeTask reads one of the two rules: its scores and its pick, 1 or 2.
func winograndeTask(o *object, a Answer, scoresName, pickName string) (Answer, error) {
	scores, gold, pick := o.floats(scoresName), o.int("gold"), o.int(pickName)
	if o.err != nil {
		return a, o.err
	}
	if len(scores) != 2 || gold < 1 || gold > 2 {
		return a, contradiction(o.line, "two "+scoresName+" and gold 1 or 2", fmt.Sprintf("%v and %d", scores, gold))
	}
	if want := winograndePick(scores[0], scores[1]); pick != want {
		return a, contradiction(o.line, fmt.Sprintf("%s %d, from %v", pickName, want, scores), fmt.Sprint(pick))
	}
	a.Correct, a.Margin = pick == gold, ptr(scores[gold-1]-scores[2-gold])
	return a, nil
}

// winograndePick is upstream's rule: the first reading only where it scores strictly higher.
func winograndePick(first, second float64) int {
	if first > second {
		return 1
	}
	return 2
}
