package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"attnbudget/engine"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/drop"
	"attnbudget/engine/eval"
)

// evaluate measures masks with the perplexity evaluator on the other text: what each adds to the negative log-likelihood, paired by chunk.
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
		var sum, sum2 float64
		for i, c := range chunks {
			d := (c.NLL - base[i].NLL) / float64(c.Tokens)
			sum, sum2 = sum+d, sum2+d*d
		}
		n := float64(len(chunks))
		mean := sum / n
		out = append(out, calibrate.Estimate{Mean: mean, SE: math.Sqrt((sum2/n - mean*mean) / (n - 1)), Chunks: len(chunks)})
	}
	return out, nil
}

func (s *study) perplexity(ctx context.Context, mask []int) ([]eval.Chunk, error) {
	tok, err := s.model.Tokenizer()
	if err != nil {
		return nil, err
	}
	p, err := eval.NewPerplexity(tok, eval.Input{Name: s.eval.name, Data: s.eval.data}, eval.PerplexityOptions{})
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

// surrogates fits every kind for greedy's masks.
func (s *study) surrogates(ctx context.Context) error {
	r, err := calibrate.Run(ctx, s.job(calibrate.Greedy))
	if err != nil {
		return err
	}
	var plans []calibrate.SurrogatePlan
	head := []string{"mask", "plain"}
	plans = append(plans, calibrate.SurrogatePlan{Kind: calibrate.MeanSurrogate})
	for _, rank := range s.ranks {
		plans = append(plans, calibrate.SurrogatePlan{Kind: calibrate.LinearSurrogate, Rank: rank})
	}
	for _, p := range plans {
		name := string(p.Kind)
		if p.Rank > 0 {
			name += fmt.Sprintf(" %d", p.Rank)
		}
		head = append(head, name, "gain")
	}
	var rows [][]string
	for _, step := range r.Steps {
		mask, err := drop.Resolve(s.model.Roles(), step.Layers)
		if err != nil {
			return err
		}
		row := []string{step.Mask, pm(step.Heldout.NLL)}
		for _, p := range plans {
			job := s.job(calibrate.Greedy)
			job.Surrogate = p
			f, err := calibrate.Fit(ctx, job, mask)
			if err != nil {
				return err
			}
			row = append(row, pm(f.With.NLL), pm(f.Gain))
		}
		rows = append(rows, row)
	}
	s.table(fmt.Sprintf("Surrogates: held-out NLL beyond the undropped model's, nats; gain = plain less surrogate, paired over %d chunks", len(r.Text.Heldout)), head, rows)

	job := s.job(calibrate.Greedy)
	job.Surrogate = calibrate.SurrogatePlan{Kind: calibrate.LinearSurrogate, Rank: 32, Search: true}
	if r, err = calibrate.Run(ctx, job); err != nil {
		return err
	}
	rows = nil
	for _, step := range r.Steps {
		rows = append(rows, []string{step.Mask, pm(step.Search.KL), pm(step.Heldout.NLL)})
	}
	s.table("Greedy with linear surrogates of rank 32 in place, each fitted alone", []string{"mask", "search KL", "held-out NLL"}, rows)
	return nil
}

// prediction compares the held-out damage with that on the other text.
func (s *study) prediction(ctx context.Context) error {
	job := s.job(calibrate.Greedy)
	job.Settings = calibrate.Settings{MaxDamage: s.settings.MaxDamage} // as the command does it
	r, err := calibrate.Run(ctx, job)
	if err != nil {
		return err
	}
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
		d := calibrate.Estimate{Mean: h.Mean - other[i].Mean, SE: math.Hypot(h.SE, other[i].SE)}
		rows = append(rows, []string{step.Mask, pm(h), pm(other[i]), fmt.Sprintf("%+.4f ± %.4f", d.Mean, d.SE)})
	}
	s.table(fmt.Sprintf("Prediction with the default settings (%d held-out chunks) against perplexity on %s", len(r.Text.Heldout), s.eval.name),
		[]string{"mask", "held out, " + s.text.name, s.eval.name, "difference"}, rows)
	return nil
}

// speedChunks is how many chunks each way of measuring is timed on.
const speedChunks = 8

// speed times phase A, which every way of measuring does in full, on one thread in processor time, and counts what the
// sequential test saves in phase B.
func (s *study) speed(ctx context.Context) error {
	rate, err := s.contexts(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"a context for each mask", fmt.Sprintf("%.1f", rate)}}
	for _, atOnce := range []int{1, 2, 4, 8, 16} {
		if rate, err = s.shared(ctx, atOnce); err != nil {
			return err
		}
		rows = append(rows, []string{fmt.Sprintf("%d masks at once", atOnce), fmt.Sprintf("%.1f", rate)})
	}
	s.table(fmt.Sprintf("Speed of phase A: evaluations (one mask on one chunk of 512 tokens) per second of one thread, %d chunks", speedChunks), []string{"way", "evaluations/s"}, rows)
	return s.early(ctx)
}

// shared is how many evaluations a second phase A makes with so many masks of a pass.
func (s *study) shared(ctx context.Context, atOnce int) (rate float64, err error) {
	job := s.job(calibrate.Greedy)
	job.Settings = calibrate.Settings{Search: speedChunks, Heldout: speedChunks, Most: 1, MaxDamage: 100}
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
	ids := tok.Encode(string(s.text.data), true, false)
	units := append([]calibrate.Unit{nil}, calibrate.Units(s.model.Roles(), drop.Mask{})...)
	begun := cpuTime()
	for _, u := range units {
		if err := s.context(ctx, ids, u); err != nil {
			return 0, err
		}
	}
	return float64((len(units)-1)*speedChunks) / (cpuTime() - begun).Seconds(), nil
}

func (s *study) context(ctx context.Context, ids []int32, mask []int) error {
	const n = 512
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
	for chunk := range speedChunks {
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

// early counts what greedy measures with and without the sequential test.
func (s *study) early(ctx context.Context) error {
	var rows [][]string
	for _, alpha := range []float64{-1, 0.05} {
		job := s.job(calibrate.Greedy)
		job.Settings.Alpha = alpha
		r, err := calibrate.Run(ctx, job)
		if err != nil {
			return err
		}
		name := "everything measured"
		if alpha > 0 {
			name = fmt.Sprintf("losers stop early, error rate %g", alpha)
		}
		e := r.Evaluations
		rows = append(rows, []string{name, fmt.Sprint(e.Greedy - e.Alone), r.Steps[len(r.Steps)-1].Mask})
	}
	s.table("Evaluations of greedy beyond phase A", []string{"", "evaluations", "last mask"}, rows)
	return nil
}
