package main

import (
	"os"

	"attnbudget/runner/embedded"

	"github.com/spf13/cobra"
)

// newUnit is the child's side of the embedded executor: one job from standard input, its raw output to standard output.
func newUnit() *cobra.Command {
	return &cobra.Command{
		Use:    embedded.Subcommand,
		Hidden: true,
		Args:   positional(),
		RunE: func(c *cobra.Command, _ []string) error {
			messages := os.NewFile(embedded.ProgressFD, "messages")
			defer messages.Close()
			return embedded.Child(c.Context(), c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr(), messages)
		},
	}
}
