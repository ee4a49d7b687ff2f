package campaigns

import (
	"fmt"
	"path/filepath"
	"strings"

	"attnbudget/engine/builtin"
	"attnbudget/engine/eval"
	"attnbudget/plan"
)

// The batch sizes of every unit: upstream's defaults. They are part of a unit's key, so they are written out.
const (
	batch  = 2048
	ubatch = 512
)

// condition is a plan.Condition with its stage and the place in the file that asks for it.
type condition struct {
	plan.Condition
	stage int // index in Spec.Stages
	at    path
}

// expandConditions makes the conditions of all stages, in the order of the file, without the fingerprints of their inputs.
// A condition that stands there twice is noted as a mistake and kept once, as is one that would have the name of another, by which
// the runner tells them apart. Stages with mistakes have none.
func (c *Campaign) expandConditions() {
	seen := map[string]condition{}
	for i, s := range c.Stages {
		if !c.doc.clean(at("stages", i)) {
			continue
		}
		for _, cond := range c.conditionsOf(s, i) {
			cond.stage = i
			cond.Repetitions = 1
			if cond.Stage == plan.Throughput || cond.Stage == plan.Depth {
				cond.Repetitions = c.Run.Repetitions
			}
			if first, twice := seen[cond.Name]; twice {
				line := c.doc.node(first.at).Line
				if first.Condition == cond.Condition {
					c.doc.wrong(cond.at, "leave one of them out", "the condition %q is already there, in line %d", cond.Name, line)
				} else {
					c.doc.wrong(cond.at, "give one of the files another name", "the condition would be called %q, as that in line %d is", cond.Name, line)
				}
				continue
			}
			seen[cond.Name] = cond
			c.conditions = append(c.conditions, cond)
		}
	}
}

func (c *Campaign) conditionsOf(s Stage, i int) []condition {
	var out []condition
	add := func(at path, cond plan.Condition) {
		cond.Batch, cond.UBatch = batch, ubatch
		out = append(out, condition{Condition: cond, at: at})
	}
	switch {
	case s.Throughput != nil:
		p := at("stages", i, plan.Throughput)
		for j, n := range s.Throughput.Prompt {
			add(p.key("prompt").item(j), plan.Condition{Name: fmt.Sprintf("pp%d", n), Stage: plan.Throughput, Prompt: n})
		}
		for j, n := range s.Throughput.Generate {
			add(p.key("generate").item(j), plan.Condition{Name: fmt.Sprintf("tg%d", n), Stage: plan.Throughput, Generate: n})
		}
	case s.Depth != nil:
		for j, depth := range s.Depth.Depths {
			p := at("stages", i, plan.Depth, "depths", j)
			if n := s.Depth.Prompt; n > 0 {
				add(p, plan.Condition{Name: fmt.Sprintf("pp%d @ d%d", n, depth), Stage: plan.Depth, Depth: depth, Prompt: n})
			}
			if n := s.Depth.Generate; n > 0 {
				add(p, plan.Condition{Name: fmt.Sprintf("tg%d @ d%d", n, depth), Stage: plan.Depth, Depth: depth, Generate: n})
			}
		}
	case s.KV != nil:
		for j, n := range s.KV.Contexts {
			add(at("stages", i, plan.KV, "contexts", j), plan.Condition{Name: fmt.Sprintf("kv %d", n), Stage: plan.KV, Context: n})
		}
	case s.Perplexity != nil:
		add(at("stages", i, plan.Perplexity), c.textCondition(plan.Perplexity, s.Perplexity))
	case s.KLDivergence != nil:
		cond := c.textCondition(plan.KLDivergence, &s.KLDivergence.Perplexity)
		if format := s.KLDivergence.LogitsFormat; format != eval.LogitsUpstream.String() {
			cond.Name, cond.LogitsFormat = cond.Name+" "+format, format
		}
		add(at("stages", i, plan.KLDivergence), cond)
	case s.HellaSwag != nil:
		add(at("stages", i, plan.HellaSwag), c.tasksCondition(plan.HellaSwag, s.HellaSwag))
	case s.Winogrande != nil:
		add(at("stages", i, plan.Winogrande), c.tasksCondition(plan.Winogrande, s.Winogrande))
	case s.MultipleChoice != nil:
		add(at("stages", i, plan.MultipleChoice), c.tasksCondition(plan.MultipleChoice, s.MultipleChoice))
	}
	return out
}

func (c *Campaign) textCondition(stage string, x *Perplexity) plan.Condition {
	name := fmt.Sprintf("%s %s c%d%s", stage, c.inputName(x.Text), x.Context, limitName(x.Chunks))
	return plan.Condition{Name: name, Stage: stage, Input: c.resolvePath(x.Text), Context: x.Context, Chunks: x.Chunks}
}

func (c *Campaign) tasksCondition(stage string, t *Tasks) plan.Condition {
	name := stage + " " + c.inputName(t.Tasks)
	if t.Context != defaultContext {
		name += fmt.Sprintf(" c%d", t.Context)
	}
	return plan.Condition{Name: name + limitName(t.Limit), Stage: stage, Input: c.resolvePath(t.Tasks), Context: t.Context, Tasks: t.Limit}
}

// defaultContext is the default of `context` in the quality stages.
const defaultContext = 512

func limitName(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" n%d", n)
}

// inputName is how a text or task file is called in the name of a condition: its bare name, or the path as written where
// two files of the campaign share that.
func (c *Campaign) inputName(source string) string {
	bare := bareName(source)
	for _, s := range c.Stages {
		if other := s.input(); other != "" && bareName(other) == bare && c.resolvePath(other) != c.resolvePath(source) {
			return source
		}
	}
	return bare
}

func bareName(source string) string {
	base := filepath.Base(strings.TrimPrefix(source, builtin.Prefix))
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// input is the text or task file of a stage, as written; empty for stages without.
func (s Stage) input() string {
	switch {
	case s.Perplexity != nil:
		return s.Perplexity.Text
	case s.HellaSwag != nil:
		return s.HellaSwag.Tasks
	case s.Winogrande != nil:
		return s.Winogrande.Tasks
	case s.MultipleChoice != nil:
		return s.MultipleChoice.Tasks
	case s.KLDivergence != nil:
		return s.KLDivergence.Text
	}
	return ""
}

// resolvePath makes a path absolute, from the folder of the campaign file; builtin names stay as they are.
func (c *Campaign) resolvePath(source string) string {
	if source == "" || builtin.IsName(source) || filepath.IsAbs(source) {
		return source
	}
	return filepath.Join(c.folder, filepath.FromSlash(source))
}
