package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"attnbudget/campaigns"
	"attnbudget/results"

	"github.com/spf13/cobra"
)

func newPlan() *cobra.Command {
	var dir string
	var asJSON, units bool
	c := &cobra.Command{
		Use:   "plan FILE",
		Short: "Check a campaign and show what it would do",
		Long: `Reads the campaign in FILE, reports every mistake in it, and prints its arms, its units in the order of their execution, and an
estimate of time, memory and disk. What a calibration still has to find out is shown as "?". Nothing is executed and nothing is written.`,
		Example: `  run-campaign plan campaigns/quickstart.yaml
  run-campaign plan night.yaml --units
  run-campaign plan night.yaml --json | jq '.plan.arms[].name'`,
		Args: positional("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			campaign, err := campaigns.Load(c.Context(), args[0])
			if err != nil {
				return err
			}
			defer campaign.Close()
			p := campaign.Plan()
			if err := useKernelsOf(c, p); err != nil {
				return err
			}
			if dir == "" {
				dir = filepath.Join("runs", p.Campaign)
			}
			measured, err := durations(dir)
			if err != nil {
				return err
			}
			estimate := campaign.Estimate(p, measured)
			if asJSON {
				return campaigns.WriteJSON(c.OutOrStdout(), p, estimate)
			}
			return campaigns.WriteText(c.OutOrStdout(), p, estimate, units)
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "run directory whose measured durations improve the estimate (default runs/NAME)")
	c.Flags().BoolVar(&asJSON, "json", false, "print the plan and the estimate as JSON")
	c.Flags().BoolVar(&units, "units", false, "list every unit instead of one line per block")
	return c
}

// durations are how long the good units of a run took, by unit id; none when there is no run. Of a unit that was resumed only the
// last part was timed.
func durations(path string) (map[string]time.Duration, error) {
	dir, err := results.Open(path)
	var none *results.NotRunError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]time.Duration{}
	for r, err := range dir.Records() {
		if err == nil && r.Outcome == results.OK && r.Resumed == 0 {
			out[r.Unit.ID] = r.Ended.Sub(r.Started)
		}
	}
	return out, nil
}
