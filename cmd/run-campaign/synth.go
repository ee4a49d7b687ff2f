package main

import (
	"errors"
	"fmt"
	"strings"

	"attnbudget/engine/quant"
	"attnbudget/engine/synth"

	"github.com/spf13/cobra"
)

func newSynth() *cobra.Command {
	var o synth.Options
	c := &cobra.Command{
		Use:   "synth SHAPE TYPE OUT",
		Short: "Write a random-weight model of a true shape, to measure speed and memory without the weights",
		Long: `Writes a model with the tensors, sizes and metadata of SHAPE and random weights of format TYPE (F16, Q4_0, Q4_K_M ...) to OUT.

Shapes: ` + strings.Join(synth.Names(), " "),
		Example: `  run-campaign synth llama-3.2-1b Q4_K_M llama-1b.gguf --layers 4
  run-campaign synth llama-3.1-8b F16 llama-8b.gguf --sparse`,
		Args: positional("SHAPE", "TYPE", "OUT"),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := quant.ParseMix(args[1]); err != nil {
				return &usageError{err}
			}
			err := synth.Write(c.Context(), args[2], args[0], args[1], o)
			var unknown *synth.UnknownShapeError
			if errors.As(err, &unknown) {
				return &usageError{err}
			}
			if err == nil {
				_, err = fmt.Fprintf(c.OutOrStdout(), "%s written: %s in %s\n", args[2], args[0], args[1])
			}
			return err
		},
	}
	addCount(c, &o.Layers, "layers", "", 0, "cut the model to its first layers; 0 = all")
	c.Flags().BoolVar(&o.Sparse, "sparse", false, "leave the weights as a hole in the file: no disk space, for questions of memory")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "of the weights")
	return c
}
