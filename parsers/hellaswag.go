package parsers

import (
	"fmt"
	"math"
)

// The embedded engine's form: a hellaswag_task line per task with its scores, and upstream's table. Pick, margin and
// the table are recomputed from the scores.

const hellaSwagKind = "hellaswag_task"

func matchHellaSwagTasks(t *text) bool { return t.hasKind(hellaSwagKind) }

func decodeHellaSwagTasks(t *text) ([]Measurement, error) {
	answers, _, last, err := scoredTasks(t, hellaSwagKind)
	if err != nil {
		return nil, err
	}
	if err := checkAccuracies(t, intervalRow, answers, last); err != nil {
		return nil, err
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
