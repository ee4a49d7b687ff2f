package main

import (
	"fmt"

	"attnbudget/summary"

	"github.com/spf13/cobra"
)

func newSummarize() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use:   "summarize DIR",
		Short: "Rebuild summary.json and the tables of a run from its raw records",
		Long: `Rebuilds summary.json and the files in tables/ of DIR from the raw records alone: the same records give the same bytes.
With --check nothing is written: exit 1 says that what is on disk is not what the records give. The last digits of fractions,
which another processor may round otherwise, are no difference.`,
		Example: `  run-campaign summarize runs/quickstart
  run-campaign summarize runs/quickstart --check`,
		Args: positional("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			if check {
				return checkSummary(c, args[0])
			}
			s, err := summary.Build(args[0])
			if err != nil {
				return err
			}
			if err := summary.Write(args[0], s); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: summary.json and %d tables from %d of %d units\n", args[0], len(s.Tables), s.Units.OK, s.Units.Planned)
			return err
		},
	}
	c.Flags().BoolVar(&check, "check", false, "compare instead of writing; exit 1 when something differs")
	return c
}

func checkSummary(c *cobra.Command, dir string) error {
	differences, err := summary.Check(dir)
	if err != nil {
		return err
	}
	for _, d := range differences {
		fmt.Fprintln(c.OutOrStdout(), d)
	}
	if len(differences) > 0 {
		return fmt.Errorf("%s: %d files are not what the records give; run-campaign summarize %s rebuilds them", dir, len(differences), dir)
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: summary.json and tables are what the records give\n", dir)
	return err
}
