package main

import (
	"fmt"
	"math"
	"os"
	"time"

	"attnbudget/engine/generate"

	"github.com/spf13/cobra"
)

func newGenerate() *cobra.Command {
	var model modelFlags
	var context contextFlags
	var o generate.Options
	var file string
	c := &cobra.Command{
		Use:   "generate",
		Short: "Continue a prompt, streaming the text",
		Long: `Prints the prompt and continues it, token by token, until the model's end token, -n tokens or a full context. How many tokens that were,
and how fast, stands on standard error. Without --temp the likeliest token is taken each time.`,
		Example: `  run-campaign generate -p 'tiger: large feline of' -n 32
  run-campaign generate -m model.gguf -f prompt.txt -n 128 --temp 0.8 --top-k 40 --top-p 0.95 --seed 7`,
		Args: positional(),
		RunE: func(c *cobra.Command, _ []string) error {
			if file != "" {
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				o.Prompt = string(text)
			}
			if t := o.Sampling.Temperature; math.IsNaN(t) || math.IsInf(t, 0) {
				return &usageError{fmt.Errorf("--temp %v: expected a number, 0 = greedy", t)}
			}
			co, err := context.options()
			if err != nil {
				return err
			}
			m, err := model.open()
			if err != nil {
				return err
			}
			defer m.Close()
			if err := context.drop.bind(c.Context(), &co, m, model); err != nil {
				return err
			}
			ec, err := m.NewContext(co)
			if err != nil {
				return err
			}
			defer ec.Close()
			out := c.OutOrStdout()
			if _, err := fmt.Fprint(out, o.Prompt); err != nil {
				return err
			}
			r, err := generate.Run(c.Context(), m, ec, o, out)
			fmt.Fprintln(out)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "prompt %d tokens, %s · generated %d tokens, %s · stopped by %s\n",
				len(r.Prompt), rate(len(r.Prompt), r.PromptTime), len(r.Tokens), rate(len(r.Tokens), r.GenerateTime), r.Stopped)
			return nil
		},
	}
	model.add(c)
	context.add(c, 0, "context in tokens; 0 = what the model was trained for")
	c.Flags().StringVarP(&o.Prompt, "prompt", "p", "", "text to continue")
	c.Flags().StringVarP(&file, "file", "f", "", "file with the text to continue")
	c.Flags().IntVarP(&o.Tokens, "n-predict", "n", 128, "at most so many new tokens; 0 or -1 = until the end token or a full context")
	c.Flags().Float64Var(&o.Sampling.Temperature, "temp", 0, "temperature; 0 = greedy")
	c.Flags().IntVar(&o.Sampling.TopK, "top-k", 40, "keep the k likeliest tokens; 0 = all")
	c.Flags().Float64Var(&o.Sampling.TopP, "top-p", 0.95, "keep the likeliest tokens up to this probability; 1 = all")
	c.Flags().Uint64Var(&o.Sampling.Seed, "seed", 1, "of the sampling")
	c.Flags().BoolVar(&o.IgnoreEOS, "ignore-eos", false, "go on past end tokens")
	c.MarkFlagsMutuallyExclusive("prompt", "file")
	return c
}

func rate(tokens int, d time.Duration) string {
	if d <= 0 {
		return "no time"
	}
	return fmt.Sprintf("%.1f t/s", float64(tokens)/d.Seconds())
}
