package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"attnbudget/campaigns"
	"attnbudget/engine"
	"attnbudget/engine/kernel"
	"attnbudget/plan"
	"attnbudget/results"
	"attnbudget/runner"
	"attnbudget/runner/embedded"
	"attnbudget/summary"

	"github.com/spf13/cobra"
)

type runFlags struct {
	dir                    string
	only                   []string
	dryRun                 bool
	until                  string
	timeout                time.Duration
	retryFailed            bool
	allowEnvironmentChange bool
	progress               string
}

func newRun() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a campaign, or go on with it",
		Long: `Runs the campaign in FILE unit by unit into a run directory and prints its tables at the end. Killed or interrupted at any
instant, the same command goes on with the first unit that has no valid record. A changed campaign reruns only what changed.
A campaign with a stage calibrate is calibrated first, because what its masks drop is not known before.

Ctrl-C once finishes the running unit and stops; twice aborts it; a calibration is given up at once. What leaves something to be done
exits 130, and the same command goes on with it. A run in which units failed goes to its end and exits 3.`,
		Example: `  run-campaign run campaigns/quickstart.yaml
  run-campaign run night.yaml --dir results/night --until 07:00
  run-campaign run night.yaml --only 'perplexity/**' --progress json
  run-campaign run night.yaml --retry-failed`,
		Args: positional("FILE"),
		RunE: func(c *cobra.Command, args []string) error { return runCampaign(c, args[0], f) },
	}
	c.Flags().StringVar(&f.dir, "dir", "", "run directory (default runs/NAME)")
	c.Flags().StringArrayVar(&f.only, "only", nil, "run only units whose name matches this glob, for instance 'depth/**'; may be repeated")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would run and why, write nothing")
	c.Flags().StringVar(&f.until, "until", "", "start no block that is not expected to end by this time, for instance 07:00")
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "for one unit, for instance 10m (default: the campaign's)")
	c.Flags().BoolVar(&f.retryFailed, "retry-failed", false, "run failed units again")
	c.Flags().BoolVar(&f.allowEnvironmentChange, "allow-environment-change", false, "go on although the machine, this program or its kernels changed; blocks are never paired across the change")
	c.Flags().StringVar(&f.progress, "progress", string(runner.ProgressAuto), "auto, bar, lines, json or none")
	return c
}

func runCampaign(c *cobra.Command, file string, f runFlags) error {
	progress, err := runner.ParseProgress(f.progress)
	if err != nil {
		return &usageError{fmt.Errorf("--progress: %w", err)}
	}
	o := f.options()
	if o.Until, err = plan.Deadline(f.until, o.Started); err != nil {
		return &usageError{fmt.Errorf("--until: %w", err)}
	}
	if f.timeout < 0 {
		return &usageError{fmt.Errorf("--timeout %v: expected a time such as 10m", f.timeout)}
	}
	release := outliveReaders()
	defer release()
	p, text, err := f.plan(c, file)
	if err != nil {
		return err
	}
	o.Campaign = text
	if err := useKernelsOf(c, p); err != nil {
		return err
	}
	environment, err := runner.Machine(engine.Version, kernel.Name())
	if err != nil {
		return err
	}
	o.Environment = &environment
	path := f.dir
	if path == "" {
		path = filepath.Join("runs", p.Campaign)
	}
	dir, err := openRun(path, p.Campaign, f.dryRun)
	if err != nil {
		return err
	}
	stderr := c.ErrOrStderr()
	if len(p.Pending()) > 0 && !f.dryRun {
		p, err = f.calibrate(c, file, p, dir, o, progress)
		if errors.Is(err, runner.ErrUntil) {
			fmt.Fprintln(stderr, err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	for _, w := range p.Warnings {
		fmt.Fprintln(stderr, "warning: "+w)
	}
	ctx, stop, unwatch := runner.NotifyStop(c.Context(), func(line string) { fmt.Fprintln(stderr, line) })
	defer unwatch()
	o.Stop = stop
	reporter := runner.NewReporter(stderr, progress)
	sum, err := runner.Run(ctx, p, dir, o, embedded.Executor{}, reporter)
	reporter.Close()
	release()
	switch {
	case err == nil && f.dryRun:
		_, err = fmt.Fprintf(c.OutOrStdout(), "%d units done, %d failed, %d left; nothing was written\n", sum.Done, sum.Failed, sum.Left)
		return err
	case sum.Session == "":
		return err
	}
	concluded := conclude(c, dir, sum)
	if err != nil && errors.Is(concluded, errFailedUnits) {
		return err // the run has not gone to its end: why is what counts, and has not been said yet
	}
	return errors.Join(err, concluded)
}

// calibrate makes the calibrations that the plan waits for and plans again, now that their masks are known. The campaign must still
// be the one that run directory, kernels and deadline were taken from.
// Ctrl-C gives a calibration up at once: what it has measured is kept, so that there is nothing to be finished first.
func (f *runFlags) calibrate(c *cobra.Command, file string, p *plan.Plan, dir *results.Dir, o runner.Options, progress runner.ProgressWay) (*plan.Plan, error) {
	ctx, release := untilInterrupted(c.Context())
	defer release()
	reporter := runner.NewReporter(c.ErrOrStderr(), progress)
	err := runner.Calibrate(ctx, p, dir, o, embedded.Executor{}, reporter)
	reporter.Close()
	if err != nil {
		return nil, err
	}
	again, _, err := f.plan(c, file)
	if err == nil && (again.CampaignSHA256 != p.CampaignSHA256 || len(again.Pending()) > 0) {
		err = fmt.Errorf("%s, or a file that it names, changed while it was calibrated; run again", file)
	}
	return again, err
}

// plan loads the campaign, after fetching its models unless nothing is to be written, and plans it. text is what was loaded.
func (f *runFlags) plan(c *cobra.Command, file string) (p *plan.Plan, text []byte, err error) {
	campaign, err := f.load(c, file)
	if err != nil {
		return nil, nil, err
	}
	return campaign.Plan(), campaign.Text, campaign.Close()
}

// load loads the campaign, after fetching its models unless nothing is to be written.
func (f *runFlags) load(c *cobra.Command, file string) (*campaigns.Campaign, error) {
	if f.dryRun {
		return campaigns.Load(c.Context(), file)
	}
	ctx, release := untilInterrupted(c.Context())
	defer release()
	return loadFetching(ctx, file, c.ErrOrStderr())
}

// conclude writes the summary and the tables of what there is and says how the run stands.
func conclude(c *cobra.Command, dir *results.Dir, sum runner.Summary) error {
	s, err := summary.Build(dir.Path())
	if err != nil {
		return err
	}
	if err := summary.Write(dir.Path(), s); err != nil {
		return err
	}
	out := c.OutOrStdout()
	if sum.Left == 0 {
		if err := writeTables(out, s, "text"); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "\n%d units done, %d failed, %d left · records, summary.json and tables in %s\n", sum.Done, sum.Failed, sum.Left, dir.Path())
	switch {
	case sum.Failed > 0:
		fmt.Fprintf(out, "see run-campaign status %s; --retry-failed runs failed units again\n", dir.Path())
		return errFailedUnits
	case sum.Left > 0:
		fmt.Fprintln(out, "the same command goes on")
	}
	return nil
}

// errFailedUnits is a run that went to its end although some units failed.
var errFailedUnits = fmt.Errorf("some units failed: %w", errReported)

func (f *runFlags) options() runner.Options {
	return runner.Options{
		Command: "run-campaign " + strings.Join(os.Args[1:], " "), Only: f.only, RetryFailed: f.retryFailed,
		AllowEnvironmentChange: f.allowEnvironmentChange, DryRun: f.dryRun, Timeout: f.timeout, Started: time.Now(),
	}
}

// openRun opens the run directory, making it unless nothing is to be written.
func openRun(path, campaign string, dryRun bool) (*results.Dir, error) {
	if !dryRun {
		return results.Create(path, campaign)
	}
	dir, err := results.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return dir, dir.CheckCampaign(campaign)
}
