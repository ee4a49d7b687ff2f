package summary

import (
	"cmp"
	"fmt"

	"attnbudget/parsers"
	"attnbudget/plan"
	"attnbudget/summary/stat"

	"github.com/montanaflynn/stats"
)

// timed tells whether a stage measures time, so that its repetitions differ.
func timed(stage string) bool { return stage == plan.Throughput || stage == plan.Depth }

func (ds *dataset) cells() []Cell {
	out := []Cell{}
	for _, p := range ds.places() {
		for _, m := range ds.metrics(p) {
			out = append(out, ds.cell(p, m))
		}
	}
	return out
}

func (ds *dataset) cell(p place, metric string) Cell {
	c := Cell{Arm: p.arm, Condition: p.condition, Metric: metric, Values: []BlockValue{}, Records: []string{}}
	var first map[string]parsers.Measurement
	for _, o := range ds.at[p] {
		c.Planned++
		m, measured := o.values[metric]
		switch {
		case measured:
			c.OK++
			c.Unit = m.Unit
			c.Values = append(c.Values, BlockValue{o.unit.Block, m.Value, o.record.Environment, o.file()})
			c.Records = append(c.Records, o.file())
			if first == nil {
				first = o.values
			}
		case o.failure != nil:
			c.Failures = append(c.Failures, *o.failure)
		case o.record == nil:
			c.Missing++
		}
	}
	if first == nil {
		return c
	}
	if timed(ds.conditions[p.condition].Stage) {
		c.timing()
		return c
	}
	c.quality(first)
	c.guessing(first[metric].Chance, ds.vocab(p.arm))
	return c
}

// timing summarises values that differ from block to block.
func (c *Cell) timing() {
	x := make([]float64, len(c.Values))
	environments := map[string]bool{}
	for i, v := range c.Values {
		x[i] = v.Value
		environments[v.Environment] = true
	}
	median := stat.Median(x, Level)
	mean, _ := stats.Mean(x)
	c.Value, c.Interval, c.Mean = &median.Est, &median, &mean
	if len(x) > 1 {
		sd, _ := stats.StandardDeviationSample(x)
		c.StdDev = &sd
	}
	if len(environments) > 1 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("measured in %d environments", len(environments)))
	}
}

// quality takes the first value: a deterministic stage gives the same every time, and is said to if it does not.
func (c *Cell) quality(values map[string]parsers.Measurement) {
	m := values[c.Metric]
	c.Value = &m.Value
	for _, v := range c.Values[1:] {
		if v.Value != m.Value {
			c.Warnings = append(c.Warnings, fmt.Sprintf("block %d gives %v, block %d gives %v: expected the same", c.Values[0].Block, m.Value, v.Block, v.Value))
		}
	}
	switch {
	case len(m.Answers) > 0:
		c.Interval = ptr(stat.Wilson(correct(m.Answers), len(m.Answers), Level))
	case c.Metric == plan.MetricPerplexity:
		c.chunked(values[plan.MetricNLL])
		c.TokenError = m.StdErr
	default:
		c.chunked(m)
		c.TokenError = m.StdErr
	}
	if m.Rounding > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("read from rounded output, within %v", m.Rounding))
	}
}

// guessing warns of a score that guessing gets too. share is the accuracy of guessing, 0 where it is the metric's; vocab
// the number of tokens that a model chooses from, 0 if unknown.
func (c *Cell) guessing(share float64, vocab int) {
	share = cmp.Or(share, chance(c.Metric))
	switch {
	case share > 0 && c.Interval != nil && c.Interval.Lo <= share:
		c.Warnings = append(c.Warnings, fmt.Sprintf("no better than guessing: the interval reaches down to %.0f %%", 100*share))
	case c.Metric == plan.MetricPerplexity && vocab > 0 && *c.Value > float64(vocab):
		c.Warnings = append(c.Warnings, fmt.Sprintf("worse than guessing, which has a perplexity of %d, the size of the vocabulary", vocab))
	}
}

// chunked gives a mean, or what is a function of one, its interval over chunks.
func (c *Cell) chunked(mean parsers.Measurement) {
	if len(mean.Chunks) == 0 {
		return
	}
	chunks := statChunks(mean.Chunks)
	i, err := stat.ChunkMean(chunks, Level)
	if err != nil {
		c.Warnings = append(c.Warnings, err.Error())
		return
	}
	switch c.Metric {
	case plan.MetricPerplexity:
		i = i.Exp()
	case plan.MetricRMSDeltaP:
		i = i.Sqrt()
	}
	c.Interval = &i
	if mean.StdErr == nil || c.Metric == plan.MetricRMSDeltaP { // whose error is that of the root
		return
	}
	if e, ok := stat.DesignEffect(chunks, *mean.StdErr); ok {
		c.DesignEffect = &e
	}
}

func statChunks(chunks []parsers.Chunk) []stat.Chunk {
	out := make([]stat.Chunk, len(chunks))
	for i, c := range chunks {
		out[i] = stat.Chunk{Tokens: c.Tokens, Sum: c.Sum}
	}
	return out
}

func correct(answers []parsers.Answer) int {
	n := 0
	for _, a := range answers {
		if a.Correct {
			n++
		}
	}
	return n
}
