package campaigns

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"attnbudget/plan"
)

// Nominal figures for a plan of which nothing has been measured yet. They are those of an ordinary laptop core; the first
// measured units replace them.
const (
	nominalRate    = 10e9 // multiplications and additions a second and thread
	nominalRead    = 8e9  // bytes of weights a second, which bounds generation: every token reads them all
	nominalStart   = 150 * time.Millisecond
	recordBytes    = 8 << 10 // a record with its output, without per-item lines
	itemBytes      = 256     // a per-chunk or per-task line
	tokenBytes     = 28      // what a line of kl-divergence says of each scored token
	activationRows = 16      // rows of the residual stream's width that a context holds per token of a batch
)

// cost is what a unit is expected to do.
type cost struct {
	operations float64 // multiplications and additions
	read       float64 // bytes of weights in generation
}

func (k cost) time(threads int) time.Duration {
	seconds := max(k.operations/(nominalRate*float64(threads)), k.read/nominalRead)
	return nominalStart + time.Duration(seconds*float64(time.Second))
}

// cost counts the work of a unit: two operations for each parameter and token, and four for each visible position, layer
// with attention and element of the residual stream, which stands for the heads.
func (c *Campaign) cost(cond plan.Condition, arm plan.Arm) cost {
	m := c.model(arm.Model)
	info := m.engine.Info()
	attending := m.attending() - len(arm.Mask.Layers)
	pass := func(from, n int64) float64 { // n tokens after from others
		visible := float64(n)*float64(from) + float64(n)*float64(n+1)/2
		return 2*float64(info.Params)*float64(n) + 4*float64(attending)*float64(info.Embd)*visible
	}
	size, _ := m.bytes(arm.Format)
	prompt, generate, depth := int64(cond.Prompt), int64(cond.Generate), int64(cond.Depth)
	switch cond.Stage {
	case plan.Throughput, plan.Depth:
		k := cost{operations: pass(depth, prompt) + pass(0, prompt)} // the warm-up is a prompt without depth
		if generate > 0 {
			k.operations += pass(depth+prompt, generate) + pass(0, 1)
			k.read = float64(generate+1) * float64(size)
		}
		return k
	case plan.Perplexity, plan.KLDivergence, plan.HellaSwag, plan.Winogrande, plan.MultipleChoice:
		w := c.work[workKey{arm.Model, cond.Name}]
		return cost{operations: float64(w.passes) * pass(0, w.length)}
	}
	return cost{}
}

// Estimate says what the plan is expected to take. measured holds the durations of units, by their ids, that a run of this
// or a similar plan has finished; they and what they say of the rest replace the nominal figures. Time is that of the whole
// plan, on one machine.
func (c *Campaign) Estimate(p *plan.Plan, measured map[string]time.Duration) plan.Estimate {
	e := estimator{campaign: c, plan: p, measured: measured, stages: map[string]*ratio{}, arms: map[[2]string]*ratio{}}
	e.index()
	e.learn()
	var total time.Duration
	for _, u := range p.Units {
		total += e.unit(u)
	}
	for _, s := range p.States {
		total += e.state(s)
	}
	for _, cal := range p.Pending() {
		total += e.calibration(cal)
	}
	return plan.Estimate{Time: total, Memory: e.memory(), Disk: e.disk(), Method: e.method()}
}

type estimator struct {
	campaign   *Campaign
	plan       *plan.Plan
	measured   map[string]time.Duration
	conditions map[string]plan.Condition
	byName     map[string]plan.Arm

	all    ratio
	stages map[string]*ratio    // by stage
	arms   map[[2]string]*ratio // by condition and arm
}

// ratio is how much longer units took than nominally.
type ratio struct{ took, nominal time.Duration }

func (r *ratio) add(took, nominal time.Duration) {
	r.took += took
	r.nominal += nominal
}

func (r *ratio) of(nominal time.Duration) (time.Duration, bool) {
	if r == nil || r.nominal == 0 {
		return nominal, false
	}
	return time.Duration(float64(nominal) * float64(r.took) / float64(r.nominal)), true
}

func (e *estimator) index() {
	e.conditions, e.byName = map[string]plan.Condition{}, map[string]plan.Arm{}
	for _, cond := range e.plan.Conditions {
		e.conditions[cond.Name] = cond
	}
	for _, a := range e.plan.Arms {
		e.byName[a.Name] = a
	}
}

func (e *estimator) nominal(u plan.Unit) time.Duration {
	return e.campaign.cost(e.conditions[u.Condition], e.byName[u.Arm]).time(e.plan.Threads)
}

func (e *estimator) learn() {
	for _, u := range e.plan.Units {
		took, ok := e.measured[u.ID]
		if !ok {
			continue
		}
		nominal := e.nominal(u)
		e.all.add(took, nominal)
		if e.stages[u.Key.Stage] == nil {
			e.stages[u.Key.Stage] = &ratio{}
		}
		e.stages[u.Key.Stage].add(took, nominal)
		pair := [2]string{u.Condition, u.Arm}
		if e.arms[pair] == nil {
			e.arms[pair] = &ratio{}
		}
		e.arms[pair].add(took, nominal)
	}
}

// unit is the measured time of a unit, or that of the nearest kin: its other repetitions, its stage, the whole plan.
func (e *estimator) unit(u plan.Unit) time.Duration {
	if took, ok := e.measured[u.ID]; ok {
		return took
	}
	nominal := e.nominal(u)
	for _, r := range []*ratio{e.arms[[2]string{u.Condition, u.Arm}], e.stages[u.Key.Stage], &e.all} {
		if d, ok := r.of(nominal); ok {
			return d
		}
	}
	return nominal
}

// state is the time to fill a cache once, a prompt of its depth, or to evaluate the text that logits are made of.
func (e *estimator) state(s plan.State) time.Duration {
	var k cost
	switch s.Key.Kind {
	case plan.StateCache:
		k = e.campaign.cost(plan.Condition{Stage: plan.Throughput, Prompt: s.Key.Depth}, e.byName[s.Arm])
		k.operations /= 2 // no warm-up
	case plan.StateLogits:
		i := slices.IndexFunc(e.plan.Units, func(u plan.Unit) bool { return u.State == s.ID })
		k = e.campaign.cost(e.conditions[e.plan.Units[i].Condition], e.byName[s.Arm])
	}
	d, _ := e.all.of(k.time(e.plan.Threads))
	return d
}

// calibration is the time of its evaluations, one chunk each.
func (e *estimator) calibration(cal plan.Calibration) time.Duration {
	k := e.campaign.cost(plan.Condition{Stage: plan.Throughput, Prompt: cal.Key.Context}, plan.Arm{Model: cal.Model})
	k.operations *= float64(e.campaign.calibrated[cal.Model].evaluations) / 2 // no warm-up
	d, _ := e.all.of(k.time(e.plan.Threads))
	return d
}

// memory is that of the largest unit: weights, caches, activations of a batch and the logits that are asked for.
func (e *estimator) memory() int64 {
	var most int64
	for _, cond := range e.plan.Conditions {
		for _, arm := range e.plan.Arms {
			m := e.campaign.model(arm.Model)
			size, _ := m.bytes(arm.Format)
			info := m.engine.Info()
			rows, sequences := int64(1), 1
			switch cond.Stage {
			case plan.Perplexity, plan.KLDivergence:
				sequences = max(1, batch/cond.Context)
				rows = int64(sequences) * int64(cond.Context) / 2
			case plan.HellaSwag, plan.Winogrande, plan.MultipleChoice:
				sequences = 4
				rows = batch
			}
			cells := max(cond.Context*sequences, cond.Prompt+cond.Generate+cond.Depth)
			unit := size + m.cacheBytes(arm, cells) + 4*(ubatch*activationRows*int64(info.Embd)+rows*int64(info.Vocab))
			most = max(most, unit)
		}
	}
	return most
}

// disk adds the quantised models, the states that are there at one time and the records.
func (e *estimator) disk() int64 {
	var models, records int64
	made := map[string]bool{}
	for _, arm := range e.plan.Arms {
		m := e.campaign.model(arm.Model)
		if key := m.Fingerprint + arm.Format; arm.Format != m.Format && !made[key] {
			made[key] = true
			size, _ := m.bytes(arm.Format)
			models += size
		}
	}
	for _, u := range e.plan.Units {
		w := e.campaign.work[workKey{e.byName[u.Arm].Model, u.Condition}]
		item := int64(itemBytes)
		if u.Key.Stage == plan.KLDivergence {
			item += tokenBytes * w.length / 2
		}
		records += recordBytes + item*w.passes
	}
	return models + e.plan.StateBytes(e.plan.Units) + records
}

func (e *estimator) method() string {
	found := 0
	for _, u := range e.plan.Units {
		if _, ok := e.measured[u.ID]; ok {
			found++
		}
	}
	var b strings.Builder
	switch {
	case found == 0:
		fmt.Fprintf(&b, "counted operations at a nominal %.0f billion a second and thread", nominalRate/1e9)
	case found == len(e.plan.Units):
		b.WriteString("measured")
	default:
		fmt.Fprintf(&b, "%d of %d units measured, the rest from counted operations at the rate of the measured ones", found, len(e.plan.Units))
	}
	return b.String()
}
