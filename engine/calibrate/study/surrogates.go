package main

import (
	"context"
	"fmt"

	"attnbudget/engine/calibrate"
	"attnbudget/engine/drop"
	"attnbudget/internal/markdown"
)

// surrogates fits every kind for greedy's masks, and searches with them in place.
func (s *study) surrogates(ctx context.Context) error {
	job := s.job(calibrate.Greedy)
	job.Settings.MaxDamage = s.standInDamage
	r, err := calibrate.Run(ctx, job)
	if err != nil {
		return err
	}
	if err := s.fit(ctx, job, r.Steps); err != nil {
		return err
	}
	job.Surrogate = calibrate.SurrogatePlan{Kind: calibrate.LinearSurrogate, Rank: 32, Search: true}
	if r, err = calibrate.Run(ctx, job); err != nil {
		return err
	}
	var rows [][]string
	for _, step := range r.Steps {
		rows = append(rows, []string{step.Mask, pm(step.Search.KL), pm(step.Heldout.NLL)})
	}
	return s.doc.put("surrogate search", markdown.Table([]string{"mask", "search KL", "held-out NLL"}, rows))
}

// fit tabulates surrogates of every kind for the masks of steps.
func (s *study) fit(ctx context.Context, job calibrate.Job, steps []calibrate.StepResult) error {
	plans, head := []calibrate.SurrogatePlan{{Kind: calibrate.MeanSurrogate}}, []string{"mask", "plain", "mean", "gain"}
	for _, rank := range s.ranks {
		plans = append(plans, calibrate.SurrogatePlan{Kind: calibrate.LinearSurrogate, Rank: rank})
		head = append(head, fmt.Sprintf("linear, rank %d", rank), "gain")
	}
	var rows [][]string
	for _, step := range steps {
		mask, err := drop.Resolve(s.model.Roles(), step.Layers)
		if err != nil {
			return err
		}
		row := []string{step.Mask, pm(step.Heldout.NLL)}
		for _, p := range plans {
			job.Surrogate = p
			f, err := calibrate.Fit(ctx, job, mask)
			if err != nil {
				return err
			}
			row = append(row, pm(f.With.NLL), pm(f.Gain))
		}
		rows = append(rows, row)
	}
	return s.doc.put("surrogates", markdown.Table(head, rows))
}
