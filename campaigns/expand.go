package campaigns

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"attnbudget/engine"
	"attnbudget/engine/kernel"
	"attnbudget/plan"
)

// Plan expands the campaign: equal campaigns over equal files give equal plans. It reads nothing.
func (c *Campaign) Plan() *plan.Plan {
	arms := c.plannedArms()
	order := c.order(len(arms))
	p := &plan.Plan{
		Schema: plan.Schema, Campaign: c.Name, CampaignSHA256: c.SHA256,
		Seed: c.Run.Seed, Order: order, Repetitions: c.Run.Repetitions, Threads: c.Run.Threads, Kernels: c.Run.Kernels, Until: c.Run.Until,
		Arms: arms, Baseline: c.arms[c.base].Name,
		Tables: c.tables(c.arms, c.arms[c.base]),
	}
	p.Timeout, _ = time.ParseDuration(cmp.Or(c.Run.Timeout, "0s"))
	for _, m := range c.models {
		p.Models = append(p.Models, m.Model)
	}
	p.Calibrations = c.calibrations
	for _, cond := range c.conditions {
		p.Conditions = append(p.Conditions, cond.Condition)
	}
	c.addUnits(p, order)
	p.Warnings = append(slices.Clone(c.Warnings), c.orderWarnings(order, len(arms))...)
	if len(p.Pending()) > 0 {
		p.Warnings = append(p.Warnings, pendingWarning)
	}
	return p
}

// plannedArms are the arms of the matrix and the control.
func (c *Campaign) plannedArms() []plan.Arm {
	arms := slices.Clone(c.arms)
	if c.Control != "" {
		control := arms[c.base]
		control.Name += "/control"
		control.Control = true
		arms = append(arms, control)
	}
	return arms
}

// addUnits lists the units stage by stage in the order of the file, and the states they need.
func (c *Campaign) addUnits(p *plan.Plan, order string) {
	states := map[string]bool{}
	names := map[string]int{}
	for stage := range c.Stages {
		conditions := slices.DeleteFunc(slices.Clone(c.conditions), func(cond condition) bool { return cond.stage != stage })
		if len(conditions) == 0 { // calibrate
			continue
		}
		c.blocks(conditions, order, len(p.Arms), func(cond condition, block, position, a int) {
			arm := p.Arms[a]
			u := plan.Unit{Arm: arm.Name, Condition: cond.Name, Block: block, Position: position, Key: c.key(cond, arm, block)}
			if u.Name = unitName(cond.Condition, arm.Name, block); names[u.Name] > 0 {
				u.Name = fmt.Sprintf("%s-%d", u.Name, names[u.Name]+1)
			}
			names[unitName(cond.Condition, arm.Name, block)]++
			u.ID = u.Key.ID()
			if s, needed := c.state(cond, arm); needed {
				u.State = s.ID
				if !states[s.ID] {
					states[s.ID] = true
					p.States = append(p.States, s)
				}
			}
			p.Units = append(p.Units, u)
		})
	}
}

func (c *Campaign) key(cond condition, arm plan.Arm, block int) plan.Key {
	k := plan.Key{
		ModelFingerprint: c.model(arm.Model).Fingerprint, Format: arm.Format, Mask: arm.Mask.Drops(), Surrogate: arm.Mask.SurrogateHash,
		TypeK: arm.TypeK, TypeV: arm.TypeV, Engine: arm.Engine, EngineVersion: c.engineVersion(), Threads: c.Run.Threads,
		Stage: cond.Stage, Prompt: cond.Prompt, Generate: cond.Generate, Depth: cond.Depth, Context: cond.Context,
		Batch: cond.Batch, UBatch: cond.UBatch, InputSHA256: cond.SHA256, Chunks: cond.Chunks, Tasks: cond.Tasks,
		Block: block, Control: arm.Control, LogitsFormat: cond.LogitsFormat,
	}
	switch cond.Stage {
	case plan.Throughput, plan.Depth:
		k.Trace = c.trace(cond, block)
	case plan.KLDivergence:
		k.Base = c.baseArm(arm.Model).Setting()
	}
	return k
}

// engineVersion is that of the results of the kernels that the campaign names, or else of those that this process uses.
func (s *Spec) engineVersion() string {
	return engine.ResultVersion(cmp.Or(s.Run.Kernels, kernel.Name()))
}

// state is what units of the arm at the condition load; needed is false where they load nothing.
func (c *Campaign) state(cond condition, arm plan.Arm) (s plan.State, needed bool) {
	switch {
	case cond.Stage == plan.KLDivergence:
		arm = *c.baseArm(arm.Model)
		s.Bytes = c.work[workKey{arm.Model, cond.Name}].logits
		s.Key = plan.StateKey{Kind: plan.StateLogits, InputSHA256: cond.SHA256, Context: cond.Context, Chunks: cond.Chunks, LogitsFormat: cond.LogitsFormat}
	case cond.Depth > 0:
		s.Bytes = c.model(arm.Model).cacheBytes(arm, cond.Depth)
		s.Key = plan.StateKey{Kind: plan.StateCache, Depth: cond.Depth, Trace: c.depthTrace(cond.Depth)}
	default:
		return s, false
	}
	s.Arm = arm.Name
	s.Key.ModelFingerprint, s.Key.Format, s.Key.Mask = c.model(arm.Model).Fingerprint, arm.Format, arm.Mask.Drops()
	s.Key.Surrogate = arm.Mask.SurrogateHash
	s.Key.TypeK, s.Key.TypeV, s.Key.Engine, s.Key.EngineVersion = arm.TypeK, arm.TypeV, arm.Engine, c.engineVersion()
	s.Key.Batch, s.Key.UBatch = cond.Batch, cond.UBatch
	s.ID = s.Key.ID()
	return s, true
}

// pendingWarning is said of a plan before its calibrations.
const pendingWarning = "what some masks drop is not known before the calibration, which run does first; until then the plan counts them as dropping nothing, " +
	"so time and memory are upper bounds, the order may change, and masks that turn out equal become one"

func (c *Campaign) orderWarnings(order string, arms int) []string {
	var out []string
	speed := slices.ContainsFunc(c.conditions, func(cond condition) bool { return cond.Repetitions > 1 })
	if order == plan.OrderABBA && speed && c.Run.Repetitions%2 == 1 {
		out = append(out, fmt.Sprintf("abba with %d repetitions runs one order once more than the other: an even number balances them", c.Run.Repetitions))
	}
	if order == plan.OrderSequential && speed && arms > 1 {
		out = append(out, "the sequential order runs arms one after the other: a drift of the machine looks like an effect")
	}
	return out
}
