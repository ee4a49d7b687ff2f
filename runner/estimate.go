package runner

import (
	"time"

	"attnbudget/plan"
	"attnbudget/results"
)

// estimator predicts how long units take from units that have been measured: of the same arm and condition if there are
// any, else of the same condition, else of the same stage.
type estimator struct {
	sums map[estimateKey]*mean
}

type estimateKey struct{ stage, condition, arm string }

type mean struct {
	sum time.Duration
	n   int
}

func newEstimator(p *plan.Plan, inv *inventory) *estimator {
	e := &estimator{make(map[estimateKey]*mean)}
	for i := range p.Units {
		// The last part of a resumed unit says nothing about the time of a whole one.
		if r := inv.records[p.Units[i].ID]; r != nil && r.Outcome == results.OK && r.Resumed == 0 {
			e.add(&p.Units[i], r.Ended.Sub(r.Started))
		}
	}
	return e
}

func (e *estimator) keys(u *plan.Unit) [3]estimateKey {
	return [3]estimateKey{{u.Key.Stage, u.Condition, u.Arm}, {u.Key.Stage, u.Condition, ""}, {u.Key.Stage, "", ""}}
}

func (e *estimator) add(u *plan.Unit, d time.Duration) {
	for _, k := range e.keys(u) {
		if e.sums[k] == nil {
			e.sums[k] = new(mean)
		}
		e.sums[k].sum += d
		e.sums[k].n++
	}
}

// unit returns the expected time of u; false if nothing like it has been measured.
func (e *estimator) unit(u *plan.Unit) (time.Duration, bool) {
	for _, k := range e.keys(u) {
		if m := e.sums[k]; m != nil {
			return m.sum / time.Duration(m.n), true
		}
	}
	return 0, false
}

// left is the expected time in seconds of all tasks; nil if one of them is of a stage that has not been measured.
func (e *estimator) left(tasks []decision) *float64 {
	var sum time.Duration
	for _, t := range tasks {
		d, ok := e.unit(t.unit)
		if !ok {
			return nil
		}
		sum += d
	}
	s := sum.Seconds()
	return &s
}
