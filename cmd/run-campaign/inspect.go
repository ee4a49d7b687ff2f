package main

import (
	"attnbudget/engine/inspect"

	"github.com/spf13/cobra"
)

func newInspect() *cobra.Command {
	var asJSON, fingerprint, tensors bool
	c := &cobra.Command{
		Use:   "inspect MODEL",
		Short: "Show what is in a GGUF file: metadata, tensors, roles of layers, KV bytes",
		Example: `  run-campaign inspect builtin:glossary-5m
  run-campaign inspect model.gguf --fingerprint --json`,
		Args: positional("MODEL"),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := inspect.File(c.Context(), args[0], fingerprint)
			if err != nil {
				return err
			}
			if asJSON {
				return r.WriteJSON(c.OutOrStdout())
			}
			return r.WriteText(c.OutOrStdout(), tensors)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&fingerprint, "fingerprint", false, "compute the SHA-256 of the file, which reads all of it")
	c.Flags().BoolVar(&tensors, "tensors", false, "list every tensor")
	return c
}
