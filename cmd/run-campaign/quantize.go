package main

import (
	"fmt"
	"strings"

	"attnbudget/engine/builtin"
	"attnbudget/engine/quant"
	"attnbudget/engine/source"

	"github.com/spf13/cobra"
)

func newQuantize() *cobra.Command {
	var o quant.Options
	c := &cobra.Command{
		Use:   "quantize IN OUT TYPE",
		Short: "Quantise an F32, F16 or BF16 model, as llama-quantize does",
		Long: `Writes the model IN to OUT in the format TYPE, with upstream's choice of types for each tensor. Memory stays small whatever the model's
size; an interrupted quantisation leaves no file.

Types: ` + strings.Join(quant.MixNames(), " "),
		Example: `  run-campaign quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M
  run-campaign quantize builtin:glossary-5m glossary-q8_0.gguf Q8_0`,
		Args: positional("IN", "OUT", "TYPE"),
		RunE: func(c *cobra.Command, args []string) error {
			mix, err := quant.ParseMix(args[2])
			if err != nil {
				return &usageError{err}
			}
			bar := newBar(c.ErrOrStderr(), "quantize")
			defer bar.done()
			o.Progress = bar.set
			if !builtin.IsName(args[0]) {
				err = quant.QuantizeFile(c.Context(), args[0], args[1], mix, o)
			} else if f, openErr := source.File(args[0]); openErr != nil {
				err = openErr
			} else {
				err = quant.QuantizeTo(c.Context(), f, args[1], mix, o)
			}
			if err != nil {
				return err
			}
			bar.done()
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s written as %s\n", args[1], mix)
			return err
		},
	}
	c.Flags().BoolVar(&o.Pure, "pure", false, "give every matrix the same type")
	addThreads(c, &o.Threads)
	return c
}
