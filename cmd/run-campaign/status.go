package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

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
			if campaign == "" && p.Kernels == "" {
				if err := useKernelsOfLast(c, dir); err != nil {
					return err
				}
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

// useKernelsOfLast computes with the kernels of the run's last session unless others are asked for: the stored plan is that of
// the same command. Others whose results differ would make another plan, for which there is no campaign here.
func useKernelsOfLast(c *cobra.Command, dir *results.Dir) error {
	last, err := lastKernels(dir)
	if err != nil || last == "" {
		return err
	}
	if asked := c.Flag("kernels").Value.String(); asked == "" {
		_ = useKernels(last) // a processor that does not have them is another environment anyway
	} else if engine.ResultVersion(kernel.Name()) != engine.ResultVersion(last) {
		return &usageError{fmt.Errorf("--kernels %s: the last session used %s, whose results are others; --campaign FILE says what would be run again", asked, last)}
	}
	return nil
}

// lastKernels are those of the run's last session; empty when it had none or does not say.
func lastKernels(dir *results.Dir) (string, error) {
	id := ""
	for e, err := range dir.Journal() {
		var damaged *results.LineError
		if err != nil && !errors.As(err, &damaged) {
			return "", err
		}
		if err == nil && e.Kind == results.EventSessionStart {
			id = e.Environment
		}
	}
	if id == "" {
		return "", nil
	}
	environment, err := dir.Environment(id)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return environment.Kernels, err
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
