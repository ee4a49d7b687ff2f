// Command run-campaign runs declarative experiment campaigns on language models in GGUF files, and single
// measurements on one model. Each command is one file; the work is done in the packages it calls.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"attnbudget/campaigns"
	"attnbudget/engine/kernel"
	"attnbudget/engine/source"
	"attnbudget/plan"
	"attnbudget/results"
	"attnbudget/runner"

	"github.com/spf13/cobra"
)

// Exit codes, documented in the help text and the README.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2 // wrong flags, or mistakes in the campaign
	exitFailedUnits = 3 // the run went to its end, but some units failed
	exitLocked      = 4 // another process holds the run directory
	exitInterrupted = 130
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(expandLlamaFlags(args))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, errReported) {
		fmt.Fprintln(stderr, "run-campaign: "+err.Error())
	}
	return exitCode(err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "run-campaign",
		Short: "Run experiment campaigns on language models in GGUF files",
		Long: `Runs declarative experiment campaigns on language models in GGUF files: which layers' attention can be dropped,
what that buys in speed and memory and what it costs in quality, with interleaved repetitions and every number traced to a raw record.

Exit codes: 0 done · 1 failed · 2 usage or campaign mistake · 3 finished with failed units · 4 run directory locked · 130 interrupted`,
		Example: `  run-campaign plan campaigns/quickstart.yaml
  run-campaign run campaigns/quickstart.yaml
  run-campaign tables runs/quickstart --format markdown`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	chooseKernels(root)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w\nsee '%s --help'", err, c.CommandPath())}
	})
	root.AddGroup(&cobra.Group{ID: "campaign", Title: "Campaigns:"}, &cobra.Group{ID: "model", Title: "One model:"})
	for _, c := range []*cobra.Command{newRun(), newPlan(), interruptible(newFetch()), newStatus(), newSummarize(), newTables()} {
		c.GroupID = "campaign"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{newBench(), newPerplexity(), newHellaSwag(), newWinogrande(), newMultipleChoice(), newKLDivergence(), newCalibrate(), newQuantize(), newInspect(), newGenerate(), newSynth()} {
		c.GroupID = "model"
		root.AddCommand(interruptible(c))
	}
	root.AddCommand(newUnit())
	return root
}

// chooseKernels gives every command the flag --kernels. Child processes get the choice by the environment.
func chooseKernels(root *cobra.Command) {
	name := root.PersistentFlags().String("kernels", os.Getenv(kernel.Variable), `inner loops of the engine: auto (the fastest here), generic, avx2, avx512, or
upstream: slower, every sum in the order of llama.cpp's build for AVX2, so that results are its own to the last digit;
without the flag `+kernel.Variable+` says which`)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		// The library would check these after this function, with errors that look like any other.
		if err := cmp.Or(c.ValidateRequiredFlags(), c.ValidateFlagGroups()); err != nil {
			return &usageError{fmt.Errorf("%w\nsee '%s --help'", err, c.CommandPath())}
		}
		if err := useKernels(*name); err != nil {
			return &usageError{fmt.Errorf("--kernels (or %s): %w", kernel.Variable, err)}
		}
		return nil
	}
}

// useKernels makes this process and its children compute with the named kernels.
func useKernels(name string) error {
	if err := kernel.Use(name); err != nil {
		return err
	}
	return os.Setenv(kernel.Variable, name)
}

// useKernelsOf makes them compute with what the campaign asks for, if it asks for any.
func useKernelsOf(c *cobra.Command, p *plan.Plan) error {
	if p.Kernels == "" {
		return nil
	}
	if flag := c.Flag("kernels"); flag.Changed && flag.Value.String() != p.Kernels {
		return &usageError{fmt.Errorf("--kernels %s: the campaign says kernels: %s; leave one of them out", flag.Value, p.Kernels)}
	}
	return useKernels(p.Kernels)
}

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// errReported marks a failure whose message has been printed already.
var errReported = errors.New("reported")

// positional accepts exactly the named arguments.
func positional(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			takes := strings.Join(names, " ")
			if takes == "" {
				takes = "flags alone"
			}
			return &usageError{fmt.Errorf("%s takes %s; found %d arguments: %q\nsee '%s --help'", c.CommandPath(), takes, len(args), args, c.CommandPath())}
		}
		return nil
	}
}

func exitCode(err error) int {
	var usage *usageError
	var kind *source.KindError
	var mistakes campaigns.Mistakes
	var locked *results.LockedError
	var pattern *runner.PatternError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, runner.ErrInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, errFailedUnits):
		return exitFailedUnits
	case errors.As(err, &locked):
		return exitLocked
	case errors.As(err, &usage), errors.As(err, &kind), errors.As(err, &mistakes), errors.As(err, &pattern), strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage
	}
	return exitFailed
}
