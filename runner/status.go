package runner

import (
	"attnbudget/plan"
	"attnbudget/results"
)

// What a unit's status can be.
const (
	UnitDone   = "done"
	UnitFailed = "failed"
	UnitLeft   = "left"
)

// UnitStatus says how one unit of the plan stands.
type UnitStatus struct {
	Unit    plan.Unit         `json:"unit"`
	Status  string            `json:"status"`            // UnitDone, UnitFailed or UnitLeft
	Runs    bool              `json:"runs"`              // the next run, with the options given, executes it
	Why     string            `json:"why,omitempty"`     // why it is left or how it failed
	Changes []plan.Difference `json:"changes,omitempty"` // fields of the key that differ from the nearest record of the same arm, stage and block that the plan no longer has
}

// Status compares the plan with the run directory without writing or locking anything. Of the options, Only,
// RetryFailed and Environment matter; without an Environment that of the newest record is assumed. dir may be nil, a
// run that has not begun.
func Status(dir *results.Dir, p *plan.Plan, o Options) ([]UnitStatus, Summary, error) {
	decisions, _, err := survey(p, dir, o)
	if err != nil {
		return nil, Summary{}, err
	}
	out := make([]UnitStatus, len(decisions))
	for i, d := range decisions {
		out[i] = UnitStatus{Unit: *d.unit, Status: UnitDone, Runs: d.runs(), Why: d.why, Changes: d.changes}
		switch {
		case d.failed:
			out[i].Status = UnitFailed
		case d.left:
			out[i].Status = UnitLeft
		}
	}
	return out, count(decisions), nil
}
