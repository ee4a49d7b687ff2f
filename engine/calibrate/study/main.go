// Command study produces the tables of docs/calibration.md: the searches beside one another, surrogates of several kinds and
// ranks, how well a held-out damage predicts that on another text, and what the short cuts of the calibrator are worth in
// time. Run it as
//
//	go run ./engine/calibrate/study
//
// It measures and prints; it is not part of the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/source"
)

// study is what its sections share.
type study struct {
	out         io.Writer
	model       *engine.Model
	fingerprint string
	text, eval  input
	settings    calibrate.Settings
	ranks       []int
}

type input struct {
	name string
	data []byte
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "study: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("study", flag.ContinueOnError)
	path := flags.String("m", "builtin:glossary-5m", "model")
	text := flags.String("f", "builtin:calibration", "text to calibrate on")
	eval := flags.String("e", "builtin:evaluation", "another text, to check predictions on")
	most := flags.Float64("max-damage", 0.6, "where searches end, nats")
	chunks := flags.Int("chunks", 0, "most chunks of each split; 0 = all")
	sections := flags.String("sections", "searches,surrogates,prediction,speed", "what to do")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := open(*path, *text, *eval)
	if err != nil {
		return err
	}
	s.out = out
	s.settings = calibrate.Settings{MaxDamage: *most, Search: *chunks, Heldout: *chunks, Seed: 1}
	if *chunks == 0 {
		s.settings.Search, s.settings.Heldout = 1<<20, 1<<20
	}
	s.ranks = []int{8, 32, 128}
	defer s.model.Close()
	for _, name := range strings.Split(*sections, ",") {
		section, ok := map[string]func(context.Context) error{
			"searches": s.searches, "surrogates": s.surrogates, "prediction": s.prediction, "speed": s.speed,
		}[name]
		if !ok {
			return fmt.Errorf("no section %q", name)
		}
		if err := section(ctx); err != nil {
			return err
		}
	}
	return nil
}

func open(path, text, eval string) (*study, error) {
	s := &study{}
	var errs [4]error
	s.text, errs[0] = read(text)
	s.eval, errs[1] = read(eval)
	s.model, errs[2] = source.Model(path, engine.Options{})
	s.fingerprint, errs[3] = source.Fingerprint(path)
	return s, errors.Join(errs[:]...)
}

func read(name string) (input, error) {
	data, err := source.Read(name)
	return input{name, data}, err
}

// job is a calibration with the study's settings.
func (s *study) job(strategy calibrate.Strategy) calibrate.Job {
	o := s.settings
	o.Strategy = strategy
	return calibrate.Job{Model: s.model, Fingerprint: s.fingerprint, Text: s.text.data, TextName: s.text.name, Settings: o}
}

func (s *study) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// table prints Markdown.
func (s *study) table(title string, head []string, rows [][]string) {
	s.printf("\n%s\n\n| %s |\n|%s\n", title, strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, r := range rows {
		s.printf("| %s |\n", strings.Join(r, " | "))
	}
}

func pm(e calibrate.Estimate) string { return fmt.Sprintf("%.4f ± %.4f", e.Mean, e.SE) }

// searches compares the strategies, evolve with as many evaluations as beam took.
func (s *study) searches(ctx context.Context) error {
	var reports []*calibrate.Report
	limit := 0
	for _, strategy := range []calibrate.Strategy{calibrate.Greedy, calibrate.Beam, calibrate.Evolve} {
		job := s.job(strategy)
		job.Settings.Limit = limit
		r, err := calibrate.Run(ctx, job)
		if err != nil {
			return err
		}
		if strategy == calibrate.Beam {
			limit = r.Evaluations.Search - r.Evaluations.Greedy
		}
		reports = append(reports, r)
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
	head := []string{"layers"}
	for _, r := range reports {
		n := string(r.Settings.Strategy)
		head = append(head, n, n+" search KL", n+" held-out NLL")
	}
	g, b, e := reports[0].Evaluations, reports[1].Evaluations, reports[2].Evaluations
	s.table(fmt.Sprintf("Searches (%s; %d search and %d held-out chunks; evaluations: greedy %d, beam %d, evolve %d with greedy's)",
		s.text.name, len(reports[0].Text.Search), len(reports[0].Text.Heldout), g.Greedy, b.Search, e.Greedy+e.Search), head, rows)
	return s.metrics(ctx, reports[0])
}

// metrics compares the orders that the two metrics put the layers in with the order on the other text.
func (s *study) metrics(ctx context.Context, r *calibrate.Report) error {
	var masks []string
	for _, u := range r.Units {
		masks = append(masks, strings.Trim(strings.ReplaceAll(fmt.Sprint(u.Layers), " ", ","), "[]"))
	}
	other, err := s.evaluate(ctx, masks)
	if err != nil {
		return err
	}
	var rows [][]string
	for i, u := range r.Units {
		rows = append(rows, []string{masks[i], pm(u.Search.KL), pm(u.Search.NLL), pm(other[i])})
	}
	slices.SortFunc(rows, func(a, b []string) int { return slices.Compare(a[:1], b[:1]) })
	s.table("Every layer alone", []string{"layer", "KL, " + s.text.name, "NLL, " + s.text.name, "NLL by perplexity, " + s.eval.name}, rows)
	return nil
}
