package runner

import (
	"errors"
	"fmt"
	"strings"

	"attnbudget/plan"
	"attnbudget/results"
)

// decision is what the runner makes of one unit of the plan, given what the run directory holds.
type decision struct {
	unit      *plan.Unit
	record    *results.Record // current usable record, good or failed; nil if none
	failed    bool            // record is a failure
	left      bool            // it has to run for the plan to be complete
	chosen    bool            // Options.Only selects it
	supersede bool            // it is left although record is good: record moves away before its block begins
	why       string          // why it is left, or how it failed
	changes   []plan.Difference
	ranHere   bool // this session executed it, or tried to
}

func (d decision) runs() bool { return d.left && d.chosen }

func selected(decisions []decision) []decision {
	var out []decision
	for _, d := range decisions {
		if d.runs() {
			out = append(out, d)
		}
	}
	return out
}

// inventory is what a run directory holds, without the outputs.
type inventory struct {
	records map[string]*results.Record      // usable, by unit id
	damaged map[string]*results.RecordError // by unit id
	former  map[place][]*results.Record     // usable, of units that the plan no longer has
}

// place is where a unit stands in a campaign whatever its key: the units that an edit turns into one another share it.
type place struct {
	arm, stage string
	block      int
}

func placeOf(u *plan.Unit) place { return place{u.Arm, u.Key.Stage, u.Block} }

// takeInventory reads all records. A record of a newer schema is an error and not a damaged one: to run its unit again
// would be to throw away work that a newer version of the program can read.
func takeInventory(dir *results.Dir, p *plan.Plan) (*inventory, error) {
	inv := &inventory{map[string]*results.Record{}, map[string]*results.RecordError{}, map[place][]*results.Record{}}
	if dir == nil {
		return inv, nil
	}
	planned := make(map[string]bool, len(p.Units))
	for i := range p.Units {
		planned[p.Units[i].ID] = true
	}
	for r, err := range dir.Records() {
		var damaged *results.RecordError
		var schema *results.SchemaError
		switch {
		case errors.As(err, &schema) && schema.Newer():
			return nil, err
		case errors.As(err, &damaged):
			inv.damaged[damaged.Unit] = damaged
		case err != nil:
			return nil, err
		default:
			r.Stdout, r.Stderr = "", ""
			inv.records[r.Unit.ID] = r
			if at := placeOf(&r.Unit); !planned[r.Unit.ID] {
				inv.former[at] = append(inv.former[at], r)
			}
		}
	}
	return inv, nil
}

// newest is the plan's good record that was made last; nil if there is none.
func (inv *inventory) newest(decisions []decision) *results.Record {
	var newest *results.Record
	for _, d := range decisions {
		if r := d.record; r != nil && !d.failed && (newest == nil || r.Ended.After(newest.Ended)) {
			newest = r
		}
	}
	return newest
}

// newestOfOtherKernels is the good record that was made last of those that only the results of the engine's kernels tell from
// records of the plan (engine.ResultVersion); nil if there is none.
func (inv *inventory) newestOfOtherKernels(decisions []decision) *results.Record {
	var newest *results.Record
	for _, d := range decisions {
		version, _, _ := strings.Cut(d.unit.Key.EngineVersion, "+")
		for _, r := range inv.former[placeOf(d.unit)] {
			was, _, _ := strings.Cut(r.Unit.Key.EngineVersion, "+")
			changes := d.unit.Key.Diff(r.Unit.Key)
			if was == version && len(changes) == 1 && changes[0].Field == "engine_version" && r.Outcome == results.OK && (newest == nil || r.Ended.After(newest.Ended)) {
				newest = r
			}
		}
	}
	return newest
}

// survey decides about every unit of the plan, in plan order.
func survey(p *plan.Plan, dir *results.Dir, o Options) ([]decision, *inventory, error) {
	inv, err := takeInventory(dir, p)
	if err != nil {
		return nil, nil, err
	}
	names := make([]string, len(p.Units))
	for i := range p.Units {
		names[i] = p.Units[i].Name
	}
	chosen, err := chosen(o.Only, names)
	if err != nil {
		return nil, nil, err
	}
	decisions := make([]decision, len(p.Units))
	for i := range p.Units {
		decisions[i] = inv.decide(&p.Units[i], o.RetryFailed)
		decisions[i].chosen = chosen[i]
	}
	environment := ""
	if o.Environment != nil {
		environment = o.Environment.ID()
	} else if newest := inv.newest(decisions); newest != nil {
		environment = newest.Environment
	}
	for _, block := range blocks(decisions) {
		keepToOneEnvironment(block, environment)
	}
	return decisions, inv, nil
}

// decide looks at one unit by itself.
func (inv *inventory) decide(u *plan.Unit, retryFailed bool) decision {
	d := decision{unit: u, record: inv.records[u.ID]}
	switch {
	case d.record != nil && d.record.Outcome == results.Failed:
		d.failed = true
		d.left = retryFailed
		d.why = fmt.Sprintf("failed (%s): %s", d.record.Failure.Kind, d.record.Failure.Message)
	case d.record != nil:
	case inv.damaged[u.ID] != nil:
		d.left, d.why = true, inv.damaged[u.ID].Error()
	default:
		d.left, d.why = true, "not run yet"
		if old := inv.nearest(u); old != nil {
			d.changes = u.Key.Diff(old.Unit.Key)
			d.why = describe(d.changes)
		}
	}
	return d
}

// nearest is the former record in the place of u whose key differs in the fewest fields; of equals, the newest.
func (inv *inventory) nearest(u *plan.Unit) *results.Record {
	var best *results.Record
	fewest := 0
	for _, r := range inv.former[placeOf(u)] {
		n := len(u.Key.Diff(r.Unit.Key))
		if best == nil || n < fewest || n == fewest && r.Ended.After(best.Ended) {
			best, fewest = r, n
		}
	}
	return best
}

func describe(changes []plan.Difference) string {
	parts := make([]string, len(changes))
	for i, c := range changes {
		parts[i] = fmt.Sprintf("%s was %q and is %q", c.Field, c.Old, c.New)
	}
	return strings.Join(parts, ", ")
}

// blockOf names the block of a unit.
type blockOf struct {
	condition string
	block     int
}

func block(u *plan.Unit) blockOf { return blockOf{u.Condition, u.Block} }

// blocks groups units by their blocks. Blocks of evaluations count like those of timings: another machine or binary
// rounds otherwise, and a small effect is no larger than that.
func blocks(decisions []decision) map[blockOf][]*decision {
	out := make(map[blockOf][]*decision)
	for i := range decisions {
		b := block(decisions[i].unit)
		out[b] = append(out[b], &decisions[i])
	}
	return out
}

// keepToOneEnvironment marks the good records of a block for a rerun when they could not be paired: records of
// environments other than the present one, in a block that is not complete or mixes environments. A complete block of
// one past environment stays as it is.
func keepToOneEnvironment(units []*decision, environment string) {
	incomplete, environments := false, make(map[string]bool)
	for _, d := range units {
		incomplete = incomplete || d.runs()
		if d.record != nil && !d.failed {
			environments[d.record.Environment] = true
		}
	}
	if !incomplete && len(environments) < 2 {
		return
	}
	for _, d := range units {
		if d.record != nil && !d.failed && d.record.Environment != environment {
			d.left, d.supersede = true, d.chosen
			d.why = fmt.Sprintf("its block is run again as a whole: its record is from environment %s, now it is %s", d.record.Environment, environment)
		}
	}
}
