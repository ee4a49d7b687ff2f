package main

import (
	"fmt"
	"math"

	"attnbudget/summary/stat"

	"github.com/montanaflynn/stats"
)

// comparison is what the rounds of a cell say.
type comparison struct {
	cell          cell
	ours, theirs  float64 // medians, tokens per second; 0 = not measured
	ratio         stat.Interval
	lowest, most  float64 // of the pairs' ratios
	memory        float64 // our peak memory over theirs; 0 = not known
	oursPeak      int64
	bytes, ops    float64 // of a token
	collections   int64
	others        []float64 // of each process
	oursN, pairsN int
}

// compare pairs sample i of a process with sample i of the other engine's process next to it: A1 with B1, A2 with B2 of
// A1 B1 B2 A2. What slows the machine for longer than a pair takes drops out of the ratios.
func compare(c cell, rounds []record) comparison {
	out := comparison{cell: c}
	var us, them, logs []float64
	var ourPeak, theirPeak int64
	for _, round := range rounds {
		for i, r := range round.Runs {
			out.others = append(out.others, r.Others)
			if r.Engine == ours {
				us = append(us, r.Samples...)
				ourPeak = max(ourPeak, r.PeakBytes)
				out.bytes, out.ops = r.BytesPerToken, r.OperationsPerToken
				out.collections += r.Collections
			} else {
				them = append(them, r.Samples...)
				theirPeak = max(theirPeak, r.PeakBytes)
			}
			if i%2 == 1 && round.Runs[i-1].Engine != r.Engine {
				logs = append(logs, pairs(round.Runs[i-1], r)...)
			}
		}
	}
	out.ours, out.theirs, out.oursN, out.pairsN, out.oursPeak = median(us), median(them), len(us), len(logs), ourPeak
	if ourPeak > 0 && theirPeak > 0 {
		out.memory = float64(ourPeak) / float64(theirPeak)
	}
	if len(logs) > 0 {
		out.ratio = stat.RatioHL(logs, 0.95)
		out.lowest, out.most = math.Inf(1), 0
		for _, l := range logs {
			out.lowest, out.most = min(out.lowest, math.Exp(l)), max(out.most, math.Exp(l))
		}
	}
	return out
}

// pairs are the logarithms of ours over theirs, sample by sample.
func pairs(a, b run) []float64 {
	if a.Engine != ours {
		a, b = b, a
	}
	var out []float64
	for i := range min(len(a.Samples), len(b.Samples)) {
		out = append(out, math.Log(a.Samples[i]/b.Samples[i]))
	}
	return out
}

func median(x []float64) float64 {
	m, err := stats.Median(x)
	if err != nil {
		return 0 // nothing measured
	}
	return m
}

// medians is the ratio of medians, which the bar is about.
func (c comparison) medians() float64 {
	if c.theirs == 0 {
		return 0
	}
	return c.ours / c.theirs
}

// spread is the interval of the ratio, or where there are too few pairs for one, their range.
func (c comparison) spread() string {
	switch {
	case c.pairsN == 0:
		return ""
	case c.ratio.Bounded:
		return fmt.Sprintf("%.2f [%.2f, %.2f]", c.ratio.Est, c.ratio.Lo, c.ratio.Hi)
	}
	return fmt.Sprintf("%.2f, %.2f to %.2f in %d pairs", c.ratio.Est, c.lowest, c.most, c.pairsN)
}

// missed says by how much the bar is missed; empty = it is reached, there is none, or nothing to compare with.
func (c comparison) missed() string {
	least, _ := c.cell.bar()
	if r := c.medians(); r > 0 && r < least {
		return fmt.Sprintf("%.2f of %.1f, %.0f %% short", r, least, 100*(1-r/least))
	}
	return ""
}
