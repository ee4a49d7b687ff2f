package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"attnbudget/engine"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/drop"
	"attnbudget/engine/kernel"
	"attnbudget/internal/markdown"

	"github.com/shirou/gopsutil/v4/cpu"
)

// usualAtOnce is how many masks the command takes at once.
const usualAtOnce = 8

// speed times phase A, which every way of measuring does in full, on one thread in processor time, and counts what the
// sequential test saves in phase B.
func (s *study) speed(ctx context.Context) error {
	apart, err := s.contexts(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"a context for each mask", fmt.Sprintf("%.1f", apart)}}
	together := 0.0
	for _, atOnce := range []int{1, 2, 4, usualAtOnce, 16} {
		rate, err := s.shared(ctx, atOnce)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d masks at once", atOnce)
		switch atOnce {
		case 1:
			name = "1 mask at once"
		case usualAtOnce:
			together, name = rate, name+" (default)"
		}
		rows = append(rows, []string{name, fmt.Sprintf("%.1f", rate)})
	}
	err = s.doc.put("speed", fmt.Sprintf("%d chunks of %d tokens, %s, %s kernels.", s.speedChunks, s.context, processor(), kernel.Name()),
		markdown.Table([]string{"way", "evaluations/s"}, rows))
	return errors.Join(err, s.early(ctx, apart, together))
}

func processor() string {
	infos, err := cpu.Info()
	if err != nil || len(infos) == 0 || infos[0].ModelName == "" {
		return "unknown processor"
	}
	return strings.TrimSpace(infos[0].ModelName)
}

// shared is how many evaluations a second phase A makes with so many masks of a pass.
func (s *study) shared(ctx context.Context, atOnce int) (rate float64, err error) {
	job := s.job(calibrate.Greedy)
	job.Settings = calibrate.Settings{NCtx: s.context, Search: s.speedChunks, Heldout: s.speedChunks, Most: 1, MaxDamage: 100}
	job.AtOnce, job.Threads = atOnce, 1
	begun := time.Duration(-1)
	job.Progress = func(p calibrate.Progress) {
		switch {
		case begun < 0:
			begun = cpuTime()
		case p.Stage == calibrate.StageAlone:
			rate = float64(p.Done) / (cpuTime() - begun).Seconds()
		}
	}
	_, err = calibrate.Run(ctx, job)
	return rate, err
}

// contexts is how many evaluations a second take a context each, the undropped model measured as well but not counted, and
// nothing but the negative log-likelihood read from the logits.
func (s *study) contexts(ctx context.Context) (float64, error) {
	tok, err := s.model.Tokenizer()
	if err != nil {
		return 0, err
	}
	ids := tok.Encode(string(s.text), true, false)
	units := append([]calibrate.Unit{nil}, calibrate.Units(s.model.Roles(), drop.Mask{})...)
	begun := cpuTime()
	for _, u := range units {
		if err := s.apart(ctx, ids, u); err != nil {
			return 0, err
		}
	}
	return float64((len(units)-1)*s.speedChunks) / (cpuTime() - begun).Seconds(), nil
}

func (s *study) apart(ctx context.Context, ids []int32, mask []int) error {
	n := s.context
	c, err := s.model.NewContext(engine.ContextOptions{NCtx: n, Mask: mask, Threads: 1})
	if err != nil {
		return err
	}
	defer c.Close()
	wants := make([]bool, n)
	for i := n / 2; i < n-1; i++ {
		wants[i] = true
	}
	nll := 0.0
	for chunk := range s.speedChunks {
		c.Clear()
		tokens := ids[chunk*n : (chunk+1)*n]
		if err := c.Decode(ctx, &engine.Batch{Tokens: tokens, Logits: wants}); err != nil {
			return err
		}
		for i := n / 2; i < n-1; i++ {
			x, sum := c.Logits(i), 0.0
			for _, l := range x {
				sum += math.Exp(float64(l - x[0]))
			}
			nll += math.Log(sum) - float64(x[tokens[i+1]]-x[0])
		}
	}
	if math.IsNaN(nll) {
		return fmt.Errorf("mask %v: the negative log-likelihood is not a number", mask)
	}
	return nil
}

// early counts what greedy measures with and without the sequential test, and what that takes at the two speeds.
func (s *study) early(ctx context.Context, apart, together float64) error {
	var rows [][]string
	for _, way := range []struct {
		name  string
		alpha float64
		rate  float64
	}{{"everything measured, a context for each mask", -1, apart}, {fmt.Sprintf("losers stop early, %d masks at once", usualAtOnce), 0, together}} {
		job := s.job(calibrate.Greedy)
		job.Settings.Alpha = way.alpha
		r, err := calibrate.Run(ctx, job)
		if err != nil {
			return err
		}
		e := r.Evaluations
		rows = append(rows, []string{way.name, fmt.Sprint(e.Alone), fmt.Sprint(e.Greedy - e.Alone), fmt.Sprintf("%.0f", float64(e.Greedy)/way.rate), r.Steps[len(r.Steps)-1].Mask})
	}
	return s.doc.put("early", markdown.Table([]string{"way", "evaluations of phase A", "of greedy beyond it", "seconds", "last mask"}, rows))
}
