package main

import (
	"fmt"
	"io"

	"attnbudget/summary"

	"github.com/spf13/cobra"
)

func newTables() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "tables DIR",
		Short: "Print the tables of a run, rebuilt from its raw records",
		Example: `  run-campaign tables runs/quickstart
  run-campaign tables runs/quickstart --format markdown > tables.md`,
		Args: positional("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := summary.Build(args[0])
			if err != nil {
				return err
			}
			return writeTables(c.OutOrStdout(), s, format)
		},
	}
	c.Flags().StringVar(&format, "format", "text", "text, markdown or csv")
	return c
}

func writeTables(w io.Writer, s *summary.Summary, format string) error {
	write := map[string]func(*summary.Table, io.Writer) error{
		"text":     (*summary.Table).WriteText,
		"markdown": (*summary.Table).WriteMarkdown,
		"csv":      (*summary.Table).WriteCSV,
	}[format]
	if write == nil {
		return &usageError{fmt.Errorf("--format %s: expected text, markdown or csv", format)}
	}
	for i := range s.Tables {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := write(&s.Tables[i], w); err != nil {
			return err
		}
	}
	return nil
}
