package summary

import (
	"cmp"
	"slices"

	"attnbudget/parsers"
	"attnbudget/plan"
	"attnbudget/summary/stat"
)

const (
	// tFrom is the number of chunks from which the mean of their differences counts as normal.
	tFrom = 20
	// signedRankTo is the number of chunks up to which the signed rank is computed: its time grows with their cube, and the mean
	// of so many differences needs no second method.
	signedRankTo = 1000
)

// chunkDifference is the difference of the means a token by Student's t, and by what the number of chunks makes the headline
// and, where there is one, its check.
func chunkDifference(arm, against []stat.Chunk) (t, head stat.Interval, check *stat.Interval, err error) {
	t, err = stat.ChunkDifference(arm, against, Level)
	if n := len(arm); err != nil || n < signedRankFrom || n > signedRankTo {
		return t, t, nil, err
	}
	hl, err := stat.ChunkDifferenceHL(arm, against, Level)
	if len(arm) < tFrom {
		return t, hl, &t, err
	}
	return t, t, &hl, err
}

// comparePerplexity pairs chunks of the same text.
func (ds *dataset) comparePerplexity(e *Effect) {
	arm, against, ok := ds.both(e)
	if !ok {
		return
	}
	if a, b := ds.arms[e.Arm].Model, ds.arms[e.Against].Model; a != b {
		e.Refused = "perplexities of different models (" + a + ", " + b + ") are not compared: their tokens may differ"
		return
	}
	a, b := statChunks(arm.values[plan.MetricNLL].Chunks), statChunks(against.values[plan.MetricNLL].Chunks)
	t, head, check, err := chunkDifference(a, b)
	if err != nil {
		e.Refused = err.Error()
		return
	}
	difference := t
	if e.Metric == plan.MetricPerplexity {
		difference, _ = stat.PerplexityDifference(a, b, Level) // its errors are those of the first: the same chunks
	}
	e.P = tTest(t)
	e.Ratio, e.Difference = e.adopt(head.Exp()), e.adopt(difference)
	if check != nil {
		if c := check.Exp(); c.Bounded {
			e.Check = e.adopt(c)
		}
	}
	if slices.Equal(a, b) {
		e.Verdict = Equal
		return
	}
	e.decideRatio()
}

// compareAccuracy pairs the answers to the same tasks, told by their hashes. Different sets of tasks are refused: what
// they have in common need not be what either set asks.
func (ds *dataset) compareAccuracy(e *Effect) {
	arm, against, ok := ds.both(e)
	if !ok {
		return
	}
	a, b, reason := pairAnswers(arm.values[e.Metric].Answers, against.values[e.Metric].Answers)
	if reason != "" {
		e.Refused = reason
		return
	}
	counts := stat.CountPaired(a, b)
	exact, mid := stat.McNemar(counts.Won, counts.Lost)
	e.Flips, e.P = &Flips{counts.N(), counts.Won, counts.Lost, exact, mid}, &mid
	e.Difference = ptr(stat.Newcombe(counts, Level))
	if r, err := stat.AccuracyRatio(counts, Level); err == nil {
		e.Ratio = &r
	}
	head := side(e.Difference, 0)
	switch {
	case counts.Won+counts.Lost == 0:
		e.Verdict = Equal
		return
	case (head != 0) != (mid < 1-Level):
		e.warn("Newcombe's interval and McNemar's mid-p (%.3f) disagree", mid)
		head = 0
	}
	e.Verdict = verdictOf(e.Metric, head)
}

// pairAnswers brings two lists of answers into the same order, or says why it cannot.
func pairAnswers(a, b []parsers.Answer) (x, y []bool, reason string) {
	byHash := func(list []parsers.Answer) []parsers.Answer {
		return slices.SortedStableFunc(slices.Values(list), func(p, q parsers.Answer) int { return cmp.Compare(p.Hash, q.Hash) })
	}
	a, b = byHash(a), byHash(b)
	if len(a) != len(b) {
		return nil, nil, "the arms answered different numbers of tasks"
	}
	for i := range a {
		switch {
		case a[i].Hash == "" || b[i].Hash == "":
			return nil, nil, "an output does not say which tasks were answered"
		case a[i].Hash != b[i].Hash:
			return nil, nil, "the arms answered different tasks"
		}
		x, y = append(x, a[i].Correct), append(y, b[i].Correct)
	}
	return x, y, ""
}
