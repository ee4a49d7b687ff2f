package summary

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"attnbudget/parsers"
	"attnbudget/plan"
	"attnbudget/results"
)

// place is where units of all blocks belong.
type place struct {
	arm, condition string
}

// observation is one planned unit and what its record says.
type observation struct {
	unit    *plan.Unit
	record  *results.Record // nil: there is none
	values  map[string]parsers.Measurement
	failure *Failure // set when the record gives no values
}

func (o *observation) ok() bool     { return o.values != nil }
func (o *observation) file() string { return recordFile(o.unit.ID) }

// dataset is the plan with its observations.
type dataset struct {
	source
	arms       map[string]plan.Arm
	conditions map[string]plan.Condition
	at         map[place][]*observation // ascending by block
	units      Units
	notes      []string
	compared   map[comparison]Effect // cache
}

func newDataset(src source) *dataset {
	ds := &dataset{
		source: src,
		arms:   map[string]plan.Arm{}, conditions: map[string]plan.Condition{},
		at: map[place][]*observation{}, compared: map[comparison]Effect{},
	}
	for _, a := range src.plan.Arms {
		ds.arms[a.Name] = a
	}
	for _, c := range src.plan.Conditions {
		ds.conditions[c.Name] = c
	}
	planned := map[string]bool{}
	for i := range src.plan.Units {
		u := &src.plan.Units[i]
		planned[u.ID] = true
		o := observe(u, src.records[u.ID])
		ds.count(o)
		p := place{u.Arm, u.Condition}
		ds.at[p] = append(ds.at[p], o)
	}
	for _, obs := range ds.at {
		slices.SortFunc(obs, func(a, b *observation) int { return a.unit.Block - b.unit.Block })
	}
	ds.note(planned)
	return ds
}

func (ds *dataset) count(o *observation) {
	ds.units.Planned++
	switch {
	case o.ok():
		ds.units.OK++
	case o.failure != nil:
		ds.units.Failed++
	default:
		ds.units.Missing++
	}
}

func (ds *dataset) note(planned map[string]bool) {
	ds.notes = append(ds.notes, ds.plan.Warnings...)
	if ds.plan.Order == plan.OrderSequential {
		ds.notes = append(ds.notes, sequentialNote)
	}
	ds.notes = append(ds.notes, ds.damaged...)
	stale := 0
	for id := range ds.records {
		if !planned[id] {
			stale++
		}
	}
	if stale > 0 {
		ds.notes = append(ds.notes, count(stale, "record")+" of units that are no longer in the plan left out")
	}
}

// sequentialNote qualifies every timing of a run that asked for no interleaving.
const sequentialNote = "the arms ran one after the other and not interleaved: drift of the machine looks like an effect, and intervals do not show it"

// observe decodes a record. One that says something else than its unit asks for counts as a failure.
func observe(u *plan.Unit, r *results.Record) *observation {
	o := &observation{unit: u, record: r}
	if r == nil {
		return o
	}
	fail := func(kind, message string) *observation {
		o.failure = &Failure{Unit: u.Name, Block: u.Block, Kind: kind, Message: message, Record: o.file()}
		return o
	}
	if r.Outcome == results.Failed {
		return fail(r.Failure.Kind, r.Failure.Message)
	}
	ms, err := parsers.Decode(u.Key.Stage, []byte(r.Stdout))
	switch {
	case errors.Is(err, parsers.ErrNaN):
		return fail(results.NaN, err.Error())
	case err != nil:
		return fail(results.Unparsable, err.Error())
	}
	if err := fits(u.Key, ms); err != nil {
		return fail(results.Unparsable, err.Error())
	}
	o.values = make(map[string]parsers.Measurement, len(ms))
	for _, m := range ms {
		o.values[m.Metric] = m
	}
	return o
}

// fits checks that an output is of the unit whose record it is in.
func fits(k plan.Key, ms []parsers.Measurement) error {
	seen := map[string]bool{}
	for _, m := range ms {
		if seen[m.Metric] {
			return fmt.Errorf("the output has several %s, expected one", m.Metric)
		}
		seen[m.Metric] = true
		if m.Rounding > 0 && k.Engine == plan.EngineEmbedded {
			return fmt.Errorf("the output has %s only as rounded text: its JSON lines are missing", m.Metric)
		}
	}
	if k.Stage != plan.Throughput && k.Stage != plan.Depth {
		return nil
	}
	m := ms[0]
	if len(m.Samples) > 1 {
		return fmt.Errorf("the output has %d samples, expected one: a unit is one repetition", len(m.Samples))
	}
	for _, want := range []struct{ label, value string }{
		{"n_prompt", fmt.Sprint(k.Prompt)}, {"n_gen", fmt.Sprint(k.Generate)}, {"n_depth", fmt.Sprint(k.Depth)},
		{"n_threads", fmt.Sprint(k.Threads)}, {"type_k", k.TypeK}, {"type_v", k.TypeV}, {"attention_drop_layers", k.Mask}, {"attention_surrogate", k.Surrogate},
	} {
		// The embedded engine leaves out a surrogate that there is none of, and nothing else.
		if found, said := m.Labels[want.label]; (said || k.Engine == plan.EngineEmbedded) && found != want.value {
			return fmt.Errorf("the output says %s %q, the unit asks for %q", want.label, found, want.value)
		}
	}
	return nil
}

// vocab is the size of the vocabulary of an arm's model, 0 if unknown.
func (ds *dataset) vocab(arm string) int {
	for _, m := range ds.plan.Models {
		if m.Name == ds.arms[arm].Model {
			return m.Vocab
		}
	}
	return 0
}

// control is the name of the control arm, or empty.
func (ds *dataset) control() string {
	for _, a := range ds.plan.Arms {
		if a.Control {
			return a.Name
		}
	}
	return ""
}

// environments lists those of the records in use, in the order in which the plan meets them.
func (ds *dataset) environments() []Environment {
	var order []string
	used := map[string]int{}
	for i := range ds.plan.Units {
		r := ds.records[ds.plan.Units[i].ID]
		if r == nil {
			continue
		}
		if used[r.Environment] == 0 {
			order = append(order, r.Environment)
		}
		used[r.Environment]++
	}
	out := []Environment{}
	for i, id := range order {
		e := Environment{ID: id, Records: used[id]}
		if full, ok := ds.source.environments[id]; ok {
			e.CPU, e.Commit, e.Kernels = full.CPU, full.Commit, full.Kernels
			if first, ok := ds.source.environments[order[0]]; ok && i > 0 {
				e.Changes = full.Diff(first)
			}
		}
		out = append(out, e)
	}
	return out
}

// places lists arm and condition of all planned units, conditions first, in the order of the plan.
func (ds *dataset) places() []place {
	var out []place
	for _, c := range ds.plan.Conditions {
		for _, a := range ds.plan.Arms {
			if p := (place{a.Name, c.Name}); len(ds.at[p]) > 0 {
				out = append(out, p)
			}
		}
	}
	return out
}

// metrics lists what the good records at a place measure, in the order of plan.Metrics; without any, the first metric
// of the stage, so that a place where everything failed has a cell too.
func (ds *dataset) metrics(p place) []string {
	found := map[string]bool{}
	for _, o := range ds.at[p] {
		for m := range maps.Keys(o.values) {
			found[m] = true
		}
	}
	var out []string
	for _, m := range plan.Metrics() {
		of := slices.Contains(plan.MetricStages(m), ds.conditions[p.condition].Stage)
		if of && (found[m] || len(found) == 0 && len(out) == 0) {
			out = append(out, m)
		}
	}
	return out
}

func ptr[T any](v T) *T { return &v }
