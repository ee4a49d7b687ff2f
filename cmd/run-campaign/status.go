package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"attnbudget/campaigns"
	"attnbudget/engine"
	"attnbudget/engine/kernel"
	"attnbudget/plan"
	"attnbudget/results"
	"attnbudget/runner"

	"github.com/spf13/cobra"
)

func newStatus() *cobra.Command {
	var asJSON, all bool
	var campaign string
	c := &cobra.Command{
		Use:   "status DIR",
		Short: "Show what of a run is done, left and failed, and why a unit would run again",
		Example: `  run-campaign status runs/quickstart
  run-campaign status runs/quickstart --campaign campaigns/quickstart.yaml   # what an edited campaign would run again
  run-campaign status runs/quickstart --json | jq '.units[] | select(.status == "failed")'`,
		Args: positional("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := results.Open(args[0])
			if err != nil {
				return err
			}
			p, err := planFor(c.Context(), dir, campaign)
			if err != nil {
				return err
			}
			if err := useKernelsOf(c, p); err != nil {
				return err
			}
			env, err := runner.Machine(engine.Version, kernel.Name())
			if err != nil {
				return err
			}
			units, sum, err := runner.Status(dir, p, runner.Options{Environment: &env})
			if err != nil {
				return err
			}
			if asJSON {
				return writeStatusJSON(c.OutOrStdout(), units, sum)
			}
			return writeStatus(c.OutOrStdout(), units, sum, all)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&campaign, "campaign", "", "compare with this campaign file instead of the plan of the last session")
	c.Flags().BoolVar(&all, "all", false, "list finished units too")
	return c
}

// planFor is the plan of the campaign file, or the run's own when no file is given.
func planFor(ctx context.Context, dir *results.Dir, campaign string) (*plan.Plan, error) {
	if campaign == "" {
		return dir.Plan()
	}
	c, err := campaigns.Load(ctx, campaign)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Plan(), nil
}

func writeStatusJSON(w io.Writer, units []runner.UnitStatus, sum runner.Summary) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Done   int                 `json:"done"`
		Failed int                 `json:"failed"`
		Left   int                 `json:"left"`
		Units  []runner.UnitStatus `json:"units"`
	}{sum.Done, sum.Failed, sum.Left, units})
}

func writeStatus(w io.Writer, units []runner.UnitStatus, sum runner.Summary, all bool) error {
	for _, u := range units {
		if u.Status == runner.UnitDone && !all {
			continue
		}
		if _, err := fmt.Fprintf(w, "%-6s  %s  %s\n", u.Status, u.Unit.Name, u.Why); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d done, %d failed, %d left\n", sum.Done, sum.Failed, sum.Left)
	return err
}
