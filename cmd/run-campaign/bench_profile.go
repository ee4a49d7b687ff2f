package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/bench"
	"attnbudget/engine/bench/limits"
	"attnbudget/engine/builtin"

	"github.com/spf13/cobra"
)

func runProfile(c *cobra.Command, f benchFlags) error {
	if err := checkProfileFormat(f.output); err != nil {
		return err
	}
	m, tests, err := f.open(c.Context())
	if err != nil {
		return err
	}
	defer m.Close()
	machine := limits.Measure(f.model.threads)
	bar := newBar(c.ErrOrStderr(), "bench")
	defer bar.done()
	var out []bench.Profile
	for i, o := range tests {
		o.Progress = func(done, total int) { bar.set(int64(i*total+done), int64(len(tests)*total)) }
		p, err := bench.RunProfile(c.Context(), m, o, machine)
		if err != nil {
			return err
		}
		out = append(out, p)
	}
	bar.done()
	return bench.WriteProfiles(c.OutOrStdout(), f.output, out)
}

func runLoad(c *cobra.Command, f benchFlags) error {
	if err := checkProfileFormat(f.output); err != nil {
		return err
	}
	if builtin.IsName(f.model.model) {
		return &usageError{fmt.Errorf("--load needs a GGUF file, -m FILE: %s is part of this program and always in memory", f.model.model)}
	}
	o, err := f.context.options()
	if err != nil {
		return err
	}
	if err := f.bindApart(c.Context(), &o); err != nil {
		return err
	}
	o.Threads = f.model.threads
	prompt := 1
	if c.Flags().Changed("n-prompt") {
		lengths, err := bench.Counts(f.prompts)
		if err != nil || len(lengths) != 1 || lengths[0] == 0 {
			return &usageError{fmt.Errorf("--load takes one prompt length of at least 1, found -p %s", f.prompts)}
		}
		prompt = lengths[0]
	}
	loads, err := bench.RunLoad(c.Context(), bench.LoadOptions{
		Path: f.model.model, Context: o, Prompt: prompt, Repetitions: f.repetitions, Cold: f.cold, NoTouch: f.noTouch,
	})
	if err != nil {
		return err
	}
	return bench.WriteLoads(c.OutOrStdout(), f.output, loads)
}

// bindApart is dropFlags.bind with a model that is closed again: the one that is measured must not have been opened.
func (f *benchFlags) bindApart(ctx context.Context, o *engine.ContextOptions) error {
	if f.context.drop.profile == "" && f.context.drop.surrogate == "" {
		return nil
	}
	m, err := f.model.open()
	if err != nil {
		return err
	}
	return errors.Join(f.context.drop.bind(ctx, o, m, f.model), m.Close())
}

func checkProfileFormat(format string) error {
	if slices.Contains(bench.ProfileFormats(), format) {
		return nil
	}
	return &usageError{fmt.Errorf("--profile and --load have no output format %q; there are %s", format, strings.Join(bench.ProfileFormats(), ", "))}
}
