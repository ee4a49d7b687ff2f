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

// realModels studies the real models that are there.
func (s *study) realModels(ctx context.Context) error {
	var texts [2][]byte
	for i, path := range []string{s.realText, s.realOther} {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			s.doc.skip("real models", err.Error()+"; -real-text and -real-other name other texts")
			return nil
		}
		if err != nil {
			return err
		}
		texts[i] = text
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
		if err := s.realModel(ctx, m.part, path, texts[0], texts[1]); err != nil {
			return err
		}
	}
	return nil
}

// realModel studies one model on few chunks: it takes hours otherwise.
func (s *study) realModel(ctx context.Context, part, path string, text, other []byte) error {
	m, err := source.Model(path, engine.Options{})
	if err != nil {
		return err
	}
	defer m.Close()
	r := &study{settings: s.settings, doc: s.doc, model: m, text: text, other: other}
	r.settings.model, r.settings.text, r.settings.other = path, filepath.Base(s.realText), filepath.Base(s.realOther)
	r.search, r.heldout, r.otherChunks, r.steps, r.damage = 8, 16, 40, 3, 0.2
	r.doc.model = part
	if r.fingerprint, err = source.Fingerprint(ctx, path); err != nil {
		return err
	}
	greedy, err := r.compare(ctx, calibrate.Greedy, calibrate.Beam)
	if err != nil {
		return err
	}
	return errors.Join(r.putReal(greedy), r.predict(ctx, greedy), r.fit(ctx, r.job(calibrate.Greedy), greedy.Steps))
}

// putReal tabulates the layers that do least and most harm alone, and greedy's steps.
func (s *study) putReal(r *calibrate.Report) error {
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
	return s.doc.put("layers",
		markdown.Table([]string{"alone", "KL, search split", "NLL, search split"}, rows),
		markdown.Table([]string{"greedy", "held-out NLL", "held-out KL", "profile"}, steps))
}
