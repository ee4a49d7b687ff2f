package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"attnbudget/atomicfile"
	"attnbudget/cachedir"
	"attnbudget/engine/builtin"
	"attnbudget/engine/calibrate"
	"attnbudget/engine/source"

	"github.com/spf13/cobra"
)

// calibrateFlags are the flags of calibrate as they are written.
type calibrateFlags struct {
	model                     modelFlags
	file, report              string
	metric, search, surrogate string
	rank                      int
	withSurrogates            bool
	atOnce                    int
	settings                  calibrate.Settings
}

func newCalibrate() *cobra.Command {
	var f calibrateFlags
	c := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure which attention layers can be dropped, and recommend masks",
		Long: `Measures what dropping the attention of each layer alone does to the model's predictions, searches for the least harmful mask of
every size on one half of a text, checks the masks on the other half, and recommends the largest inside the quality budget.

Beside the report NAME.json it leaves NAME.journal, from which a calibration that was interrupted goes on, two pictures, NAME.layers.svg
and NAME.curve.svg, and with --surrogate NAME.PROFILE.surrogate.gguf for each profile that something was fitted for.`,
		Example: `  run-campaign calibrate -m model.gguf
  run-campaign calibrate -m model.gguf -f text.txt --quality-budget 0.02 --search beam -o model.calibration.json
  run-campaign calibrate -m model.gguf --surrogate linear --rank 32`,
		Args: positional(),
		RunE: func(c *cobra.Command, _ []string) error { return runCalibrate(c, f) },
	}
	f.model.add(c)
	s := &f.settings
	c.Flags().StringVarP(&f.file, "file", "f", "builtin:calibration", "text to measure on, or builtin:NAME; it should not be the text of a later evaluation")
	c.Flags().StringVarP(&f.report, "output", "o", "", "report; default: beside the model, NAME.calibration.json")
	addCount(c, &s.NCtx, "ctx-size", "c", 512, "tokens of a chunk, of which the second half is scored")
	c.Flags().Float64Var(&s.Budget, "quality-budget", 0.05, "what the recommended mask may add to the negative log-likelihood, nats a token, held out")
	c.Flags().Float64Var(&s.MaxDamage, "max-damage", 0, "where the search ends, in the same unit; 0 = four times the budget")
	c.Flags().StringVar(&f.metric, "metric", "kl", "what the search minimises: kl, the divergence from the undropped model, or nll; the budget is in nats of NLL either way")
	c.Flags().StringVar(&f.search, "search", "greedy", "greedy, beam or evolve")
	addCount(c, &s.Search, "search-chunks", "", 32, "most chunks of the search split")
	addCount(c, &s.Heldout, "heldout-chunks", "", 64, "most chunks of the held-out split")
	addCount(c, &s.Most, "steps", "", 0, "most steps of the search; 0 = no limit")
	addCount(c, &s.Shortlist, "shortlist", "", 0, "most layers that are tried in company; 0 = all that alone stay inside --max-damage")
	addCount(c, &s.Beam, "beam-width", "", 4, "masks of a step that beam goes on with")
	addCount(c, &s.Limit, "evaluations", "", 0, "most evaluations of evolve beyond greedy's; 0 = no limit")
	c.Flags().Float64Var(&s.Alpha, "alpha", 0.05, "error rate of the test that stops losers early; negative = nothing stops early")
	c.Flags().Uint64Var(&s.Seed, "seed", 0, "of the order of chunks and of evolve")
	addCount(c, &f.atOnce, "at-once", "", 0, "masks of one pass over the weights; 0 = choose")
	c.Flags().StringVar(&f.surrogate, "surrogate", "none", "fit what stands in for dropped attention: none, mean or linear")
	addCount(c, &f.rank, "rank", "", 32, "of linear surrogates")
	c.Flags().BoolVar(&f.withSurrogates, "search-with-surrogates", false, "search and measure masks with the surrogates in place")
	return c
}

// parse turns words into settings; a mistake is a usage error.
func (f *calibrateFlags) parse() (plan calibrate.SurrogatePlan, err error) {
	var errs [3]error
	f.settings.Metric, errs[0] = calibrate.ParseMetric(f.metric)
	f.settings.Strategy, errs[1] = calibrate.ParseStrategy(f.search)
	plan.Kind, errs[2] = calibrate.ParseSurrogateKind(f.surrogate)
	plan.Rank, plan.Search = f.rank, f.withSurrogates
	if plan.Kind != calibrate.LinearSurrogate {
		plan.Rank = 0
	} else if plan.Rank < 1 {
		errs[2] = fmt.Errorf("--rank %d: expected at least 1", f.rank)
	}
	if plan.Search && plan.Kind == calibrate.NoSurrogate {
		errs[2] = errors.New("--search-with-surrogates needs --surrogate mean or linear")
	}
	if err := errors.Join(errs[:]...); err != nil {
		return plan, &usageError{err}
	}
	return plan, nil
}

func runCalibrate(c *cobra.Command, f calibrateFlags) error {
	plan, err := f.parse()
	if err != nil {
		return err
	}
	text, err := readInput(f.file)
	if err != nil {
		return err
	}
	m, err := f.model.open()
	if err != nil {
		return err
	}
	defer m.Close()
	fingerprint, err := source.Fingerprint(c.Context(), f.model.model)
	if err != nil {
		return err
	}
	report := f.report
	if report == "" {
		report = f.model.reportPath()
	}
	if err := atomicfile.Check(report); err != nil { // it is written last, hours later
		return err
	}
	base := strings.TrimSuffix(report, ".json")
	journal := base + ".journal"
	unlock, err := cachedir.Lock(c.Context(), journal)
	if err != nil {
		return err
	}
	defer unlock()
	bar := newBar(c.ErrOrStderr(), "calibrate")
	defer bar.done()
	r, err := calibrate.Run(c.Context(), calibrate.Job{
		Model: m, Fingerprint: fingerprint, Text: text.Data, TextName: text.Name, Settings: f.settings,
		Journal: journal, AtOnce: f.atOnce, Threads: f.model.threads, Surrogate: plan,
		SurrogateFile: func(profile string) string { return base + "." + profile + ".surrogate.gguf" },
		Progress:      func(p calibrate.Progress) { bar.set(int64(p.Done), int64(p.Total)) },
	})
	bar.done()
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w; what was measured is kept in %s, and the same command goes on from there", err, journal)
	}
	if err != nil {
		return err
	}
	return writeCalibration(c, r, report, base)
}

// writeCalibration leaves the pictures, then the report, and prints the table.
func writeCalibration(c *cobra.Command, r *calibrate.Report, report, base string) error {
	for _, part := range []struct {
		path string
		make func(*calibrate.Report) ([]byte, error)
	}{
		{base + ".layers.svg", calibrate.BarsSVG}, {base + ".curve.svg", calibrate.CurveSVG}, {report, (*calibrate.Report).JSON},
	} {
		data, err := part.make(r)
		if err != nil {
			return err
		}
		if err := atomicfile.WriteBytes(part.path, data); err != nil {
			return err
		}
	}
	if err := calibrate.WriteTable(c.OutOrStdout(), r); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "\nreport %s, pictures %s.layers.svg and %s.curve.svg\n", report, base, base)
	return err
}

// reportPath is where a calibration's report is unless another place is named: beside the model, in the current folder for a
// built-in one.
func (f *modelFlags) reportPath() string {
	if builtin.IsName(f.model) {
		return strings.TrimPrefix(f.model, builtin.Prefix) + ".calibration.json"
	}
	name := strings.TrimSuffix(filepath.Base(f.model), ".gguf")
	return filepath.Join(filepath.Dir(f.model), name+".calibration.json")
}
