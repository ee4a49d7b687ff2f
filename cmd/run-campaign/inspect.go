package main

import (
	"attnbudget/engine/builtin"
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
			r, err := inspectModel(args[0], fingerprint)
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

func inspectModel(name string, fingerprint bool) (*inspect.Report, error) {
	if !builtin.IsName(name) {
		return inspect.File(name, fingerprint)
	}
	f, err := openBuiltin(name)
	if err != nil {
		return nil, err
	}
	r := inspect.Of(f)
	if fingerprint {
		if r.Fingerprint, err = builtin.SHA256(name); err != nil {
			return nil, err
		}
	}
	return r, nil
}
