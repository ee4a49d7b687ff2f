package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"

	"attnbudget/engine/calibrate"
	"attnbudget/internal/markdown"
)

// searches compares the strategies, and all layers alone.
func (s *study) searches(ctx context.Context) error {
	greedy, err := s.compare(ctx, calibrate.Greedy, calibrate.Beam, calibrate.Evolve)
	if err != nil {
		return err
	}
	return s.alone(ctx, greedy)
}

// compare tabulates strategies, greedy the first, which it returns; those after beam get as many evaluations as beam took.
func (s *study) compare(ctx context.Context, strategies ...calibrate.Strategy) (greedy *calibrate.Report, err error) {
	var reports []*calibrate.Report
	limit, counts := 0, ""
	for _, strategy := range strategies {
		job := s.job(strategy)
		job.Settings.Limit = limit
		r, err := calibrate.Run(ctx, job)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
		switch e := r.Evaluations; strategy {
		case calibrate.Greedy:
			counts = fmt.Sprintf("Evaluations: greedy %d", e.Greedy)
		case calibrate.Beam:
			limit = e.Search - e.Greedy
			counts += fmt.Sprintf("; beam %d", e.Search)
		case calibrate.Evolve:
			counts += fmt.Sprintf("; evolve, told to take as many as beam, %d with those of greedy, from which it begins", e.Greedy+e.Search)
		}
	}
	head := []string{"layers"}
	for _, r := range reports {
		head = append(head, string(r.Settings.Strategy), "search KL", "held-out NLL")
	}
	var rows [][]string
	for i := range reports[0].Steps {
		row := []string{fmt.Sprint(len(reports[0].Steps[i].Layers))}
		for _, r := range reports {
			t := r.Steps[i]
			row = append(row, t.Mask, pm(t.Search.KL), pm(t.Heldout.NLL))
		}
		rows = append(rows, row)
	}
	text := reports[0].Text
	err = s.doc.put("searches", fmt.Sprintf("%d search and %d held-out chunks. %s.", len(text.Search), len(text.Heldout), counts), markdown.Table(head, rows))
	return reports[0], err
}

// alone compares what the two metrics say of every layer with what perplexity says on the other text, and with what upstream
// says of the built-in model.
func (s *study) alone(ctx context.Context, r *calibrate.Report) error {
	units := slices.Clone(r.Units)
	slices.SortFunc(units, func(a, b calibrate.UnitResult) int { return slices.Compare(a.Layers, b.Layers) })
	var masks []string
	for _, u := range units {
		masks = append(masks, list(u.Layers))
	}
	other, err := s.evaluate(ctx, masks)
	if err != nil {
		return err
	}
	var zeroed map[string]string
	if s.settings.model == "builtin:glossary-5m" {
		if zeroed, err = zeroedLayers(); err != nil {
			return err
		}
	}
	var rows [][]string
	for i, u := range units {
		rows = append(rows, []string{masks[i], pm(u.Search.KL), pm(u.Search.NLL), pm(other[i]), zeroed[masks[i]]})
	}
	return s.doc.put("alone",
		fmt.Sprintf("%d search chunks, perplexity on %d chunks.", len(r.Text.Search), other[0].Chunks),
		markdown.Table([]string{"layer", "KL, search split", "NLL, search split", "NLL by perplexity, " + s.settings.other, "MODEL.md"}, rows))
}

// modelCard has upstream's perplexities of the built-in model with one layer's output zeroed, in rows "| 3 | 25.780 ± 0.325 |".
const modelCard = "engine/builtin/MODEL.md"

var zeroedRow = regexp.MustCompile(`(?m)^\| (none|\d+) \| ([0-9.]+) ± `)

// zeroedLayers is what zeroing a layer's output adds to the negative log-likelihood by the model card.
func zeroedLayers() (map[string]string, error) {
	text, err := os.ReadFile(modelCard)
	if err != nil {
		return nil, err
	}
	nll := map[string]float64{}
	for _, m := range zeroedRow.FindAllStringSubmatch(string(text), -1) {
		var perplexity float64
		if _, err := fmt.Sscan(m[2], &perplexity); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", modelCard, m[0], err)
		}
		nll[m[1]] = math.Log(perplexity)
	}
	out := map[string]string{}
	for layer, x := range nll {
		out[layer] = fmt.Sprintf("%.4f", x-nll["none"])
	}
	return out, nil
}
