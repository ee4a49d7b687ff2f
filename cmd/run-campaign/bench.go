package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/bench"

	"github.com/spf13/cobra"
)

type benchFlags struct {
	model                      modelFlags
	context                    contextFlags
	prompts, generates, depths string
	pairs                      []string
	repetitions                int
	output                     string
	noWarmup                   bool
	seed                       uint64
	profile                    bool
	load, cold, noTouch        bool
}

func newBench() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure prompt processing and generation, as llama-bench does",
		Long: `Measures tokens per second of prompt processing (pp) and generation (tg), with llama-bench's options, output formats and field
names. Lists (128,512) and ranges (0-4096+1024) are accepted for -p, -n and -d. To compare settings use a campaign: it interleaves them.

Before the first sample of a test all weights are brought into memory and one untimed pass of its shape is made. No garbage collection
runs inside a sample. The forms json and jsonl also say, counted and not estimated, what a sample did: garbage collections, page faults,
and bytes, operations and calls by kind of work.

--profile says where the time goes, by kind of work and by layer, beside the limits of the machine. --load measures the way from a closed
file to the first token instead. Both print tables (-o md) or json or jsonl.`,
		Example: `  run-campaign bench -m model.gguf
  run-campaign bench -m model.gguf -p 512 -n 64 -d 0,4096 -r 5 -o jsonl
  run-campaign bench -m model.gguf -p 0 -n 32 -d 4096 -ctk q8_0 -ctv q8_0 --attention-drop-layers 19,20
  run-campaign bench -m model.gguf -p 0 -n 32 -d 4096 -r 2 --profile
  run-campaign bench -m model.gguf --load --cold -r 3`,
		Args: positional(),
		RunE: func(c *cobra.Command, _ []string) error { return runBench(c, f) },
	}
	f.model.add(c)
	f.context.add(c, -1, "")
	c.Flags().StringVarP(&f.prompts, "n-prompt", "p", "512", "prompt lengths; 0 = none")
	c.Flags().StringVarP(&f.generates, "n-gen", "n", "128", "numbers of generated tokens; 0 = none")
	c.Flags().StringVarP(&f.depths, "n-depth", "d", "0", "tokens in the cache before the timed part")
	c.Flags().StringArrayVar(&f.pairs, "pg", nil, "prompt and generation in one test, for instance 512,128 (also -pg)")
	addCount(c, &f.repetitions, "repetitions", "r", 5, "samples of each test")
	c.Flags().StringVarP(&f.output, "output", "o", "md", strings.Join(bench.Formats(), ", "))
	c.Flags().BoolVar(&f.noWarmup, "no-warmup", false, "skip the untimed first pass of each test")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "of the tokens")
	c.Flags().BoolVar(&f.profile, "profile", false, "attribute the time to kinds of work and layers")
	c.Flags().BoolVar(&f.load, "load", false, "measure the time from a closed file to the first token; -p is the prompt, by default 1 token")
	c.Flags().BoolVar(&f.cold, "cold", false, "with --load: from the disk, not from the system's page cache")
	c.Flags().BoolVar(&f.noTouch, "no-touch", false, "with --load: fetch the weights page by page as they are needed")
	c.MarkFlagsMutuallyExclusive("profile", "load")
	return c
}

func runBench(c *cobra.Command, f benchFlags) error {
	switch {
	case (f.cold || f.noTouch) && !f.load:
		return &usageError{errors.New("--cold and --no-touch are of --load, which is not given")}
	case f.repetitions < 1:
		return &usageError{fmt.Errorf("-r %d: expected at least 1 sample of each test", f.repetitions)}
	case f.load:
		return runLoad(c, f)
	case f.profile:
		return runProfile(c, f)
	}
	if err := bench.CheckFormat(f.output); err != nil {
		return &usageError{err}
	}
	m, tests, err := f.open(c.Context())
	if err != nil {
		return err
	}
	defer m.Close()
	bar := newBar(c.ErrOrStderr(), "bench")
	defer bar.done()
	var out []bench.Result
	for i, o := range tests {
		o.Progress = func(done, total int) { bar.set(int64(i*total+done), int64(len(tests)*total)) }
		r, err := bench.Run(c.Context(), m, o)
		if err != nil {
			return err
		}
		out = append(out, r)
		if f.output == "jsonl" { // a later test may fail: what is measured is out
			if err := bench.Write(c.OutOrStdout(), f.output, out[i:]); err != nil {
				return err
			}
		}
	}
	bar.done()
	if f.output == "jsonl" {
		return nil
	}
	return bench.Write(c.OutOrStdout(), f.output, out)
}

// open opens the model and makes the tests for it.
func (f *benchFlags) open(ctx context.Context) (*engine.Model, []bench.Options, error) {
	tests, err := f.tests()
	if err != nil {
		return nil, nil, err
	}
	m, err := f.model.open()
	if err != nil {
		return nil, nil, err
	}
	o := engine.ContextOptions{Mask: tests[0].Mask}
	if err := f.context.drop.bind(ctx, &o, m, f.model); err != nil {
		return nil, nil, errors.Join(err, m.Close())
	}
	for i := range tests {
		tests[i].Mask, tests[i].Surrogates = o.Mask, o.Surrogates
	}
	return m, tests, nil
}

func (f *benchFlags) tests() ([]bench.Options, error) {
	o, err := f.context.options()
	if err != nil {
		return nil, err
	}
	lists := map[string][]int{}
	for flag, list := range map[string]string{"-p": f.prompts, "-n": f.generates, "-d": f.depths} {
		if lists[flag], err = bench.Counts(list); err != nil {
			return nil, &usageError{fmt.Errorf("%s: %w", flag, err)}
		}
	}
	var pairs []bench.Pair
	for _, s := range f.pairs {
		p, err := bench.ParsePair(s)
		if err != nil {
			return nil, &usageError{fmt.Errorf("-pg: %w", err)}
		}
		pairs = append(pairs, p)
	}
	base := bench.Options{
		Batch: o.NBatch, UBatch: o.NUBatch, TypeK: o.TypeK, TypeV: o.TypeV, Mask: o.Mask, Threads: f.model.threads,
		Repetitions: f.repetitions, NoWarmup: f.noWarmup,
		Trace: fmt.Sprintf("seed %d", f.seed), DepthTrace: fmt.Sprintf("seed %d depth", f.seed),
	}
	tests := bench.Tests(base, lists["-p"], lists["-n"], lists["-d"], pairs)
	if len(tests) == 0 {
		return nil, &usageError{fmt.Errorf("nothing to measure: -p, -n and -pg are all 0 or empty")}
	}
	return tests, nil
}
