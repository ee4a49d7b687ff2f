package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"attnbudget/cachedir"
	"attnbudget/engine"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/source"
	"attnbudget/internal/markdown"

	"github.com/montanaflynn/stats"
)

// fetched are the models of make models, by the names of their parts.
var fetched = []struct{ part, file string }{
	{"smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"},
	{"gemma-3-270m", "gemma-3-270m-q4_k_m.gguf"},
}

// realModels calibrates the real models that are there.
func (s *study) realModels(ctx context.Context) error {
	text, err := os.ReadFile(s.realText)
	if errors.Is(err, fs.ErrNotExist) {
		s.doc.skip("real models", err.Error()+"; -real-text names another text")
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := cachedir.Path()
	if err != nil {
		return err
	}
	for _, m := range fetched {
		path := filepath.Join(dir, "models", m.file)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			s.doc.skip(m.part, err.Error()+"; make models fetches it")
			continue
		}
		r, err := s.calibrateReal(ctx, path, text)
		if err != nil {
			return err
		}
		if err := s.putReal(m.part, r); err != nil {
			return err
		}
	}
	return nil
}

func (s *study) calibrateReal(ctx context.Context, path string, text []byte) (*calibrate.Report, error) {
	m, err := source.Model(path, engine.Options{})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	fingerprint, err := source.Fingerprint(ctx, path)
	if err != nil {
		return nil, err
	}
	return calibrate.Run(ctx, calibrate.Job{
		Model: m, Fingerprint: fingerprint, Text: text, TextName: filepath.Base(s.realText),
		Settings: calibrate.Settings{NCtx: s.context, Search: 8, Heldout: 16, Most: 3},
	})
}

// putReal tabulates the layers that do least and most harm alone, and greedy's steps.
func (s *study) putReal(part string, r *calibrate.Report) error {
	const best, worst = 4, 2
	var rows [][]string
	var kl, nll []float64
	for i, u := range r.Units {
		kl, nll = append(kl, u.Search.KL.Mean), append(nll, u.Search.NLL.Mean)
		if i < best || i >= len(r.Units)-worst {
			rows = append(rows, []string{list(u.Layers), pm(u.Search.KL), pm(u.Search.NLL)})
		}
	}
	klMedian, err := stats.Median(kl)
	if err != nil {
		return err
	}
	nllMedian, err := stats.Median(nll)
	if err != nil {
		return err
	}
	if len(rows) == best+worst {
		middle := []string{fmt.Sprintf("median of the %d layers", len(r.Units)), fmt.Sprintf("%.4f", klMedian), fmt.Sprintf("%.4f", nllMedian)}
		rows = append(rows[:best], append([][]string{middle}, rows[best:]...)...)
	}
	var steps [][]string
	for _, t := range r.Steps {
		names := strings.Join(profilesOf(r, t.Mask), ", ")
		for _, p := range r.Profiles {
			if p.Mask == t.Mask && !p.WithinBudget {
				names += ", outside the budget"
				break
			}
		}
		steps = append(steps, []string{t.Mask, pm(t.Heldout.NLL), pm(t.Heldout.KL), names})
	}
	return s.doc.put(part,
		markdown.Table([]string{"alone", "KL, search split", "NLL, search split"}, rows),
		markdown.Table([]string{"greedy", "held-out NLL", "held-out KL", "profile"}, steps))
}
