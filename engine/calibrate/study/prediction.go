package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"attnbudget/engine"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/drop"
	"attnbudget/engine/eval"
	"attnbudget/internal/markdown"

	"github.com/montanaflynn/stats"
)

// prediction compares the held-out damage, as the command measures it with its default settings, with that on the other text.
func (s *study) prediction(ctx context.Context) error {
	job := s.job(calibrate.Greedy)
	job.Settings.Search, job.Settings.Heldout, job.Settings.Seed = 0, 0, 0
	r, err := calibrate.Run(ctx, job)
	if err != nil {
		return err
	}
	return s.predict(ctx, r)
}

// predict holds the steps of a report against the other text.
func (s *study) predict(ctx context.Context, r *calibrate.Report) error {
	var masks []string
	for _, step := range r.Steps {
		masks = append(masks, step.Mask)
	}
	other, err := s.evaluate(ctx, masks)
	if err != nil {
		return err
	}
	var rows [][]string
	for i, step := range r.Steps {
		h := step.Heldout.NLL
		name := step.Mask
		if slices.Contains(profilesOf(r, step.Mask), calibrate.Recommended) {
			name += " (recommended)"
		}
		rows = append(rows, []string{name, pm(h), pm(other[i]), fmt.Sprintf("%+.4f ± %.4f", h.Mean-other[i].Mean, math.Hypot(h.SE, other[i].SE))})
	}
	return s.doc.put("prediction", fmt.Sprintf("%d held-out chunks against %d.", len(r.Text.Heldout), other[0].Chunks),
		markdown.Table([]string{"mask", "held out, " + s.settings.text, s.settings.other, "difference"}, rows))
}

// profilesOf are the names of the profiles that have a mask.
func profilesOf(r *calibrate.Report, mask string) []string {
	var out []string
	for _, p := range r.Profiles {
		if p.Mask == mask {
			out = append(out, p.Name)
		}
	}
	return out
}

// evaluate measures masks with the perplexity evaluator on the other text: what each adds to the negative log-likelihood,
// paired by chunk.
func (s *study) evaluate(ctx context.Context, masks []string) ([]calibrate.Estimate, error) {
	base, err := s.perplexity(ctx, nil)
	if err != nil {
		return nil, err
	}
	var out []calibrate.Estimate
	for _, m := range masks {
		layers, err := drop.ParseMask(m)
		if err != nil {
			return nil, err
		}
		chunks, err := s.perplexity(ctx, layers)
		if err != nil {
			return nil, err
		}
		var added []float64
		for i, c := range chunks {
			added = append(added, (c.NLL-base[i].NLL)/float64(c.Tokens))
		}
		mean, err := stats.Mean(added)
		if err != nil {
			return nil, fmt.Errorf("mask %s on %s: %w", m, s.settings.other, err)
		}
		sd, err := stats.StandardDeviationSample(added)
		if err != nil {
			return nil, fmt.Errorf("mask %s on %s: %w", m, s.settings.other, err)
		}
		out = append(out, calibrate.Estimate{Mean: mean, SE: sd / math.Sqrt(float64(len(added))), Chunks: len(added)})
	}
	return out, nil
}

func (s *study) perplexity(ctx context.Context, mask []int) ([]eval.Chunk, error) {
	tok, err := s.model.Tokenizer()
	if err != nil {
		return nil, err
	}
	p, err := eval.NewPerplexity(tok, eval.Input{Name: s.settings.other, Data: s.other}, eval.PerplexityOptions{NCtx: s.context, Chunks: s.otherChunks})
	if err != nil {
		return nil, err
	}
	c, err := s.model.NewContext(p.ContextOptions(engine.ContextOptions{Mask: mask}))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return p.Run(ctx, c, nil, func(eval.Chunk) error { return nil })
}
