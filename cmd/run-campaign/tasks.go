package main

import (
	"fmt"

	"attnbudget/engine/eval"

	"github.com/spf13/cobra"
)

// taskFlags are the flags of the evaluators by tasks.
type taskFlags struct {
	evaluateFlags
	tasks     int
	selection string
}

// add adds the flags; NAME-tasks is the one for the number of tasks.
func (f *taskFlags) add(c *cobra.Command, file, usage string, tasks int, order string) {
	f.evaluateFlags.add(c, file, usage)
	addCount(c, &f.tasks, c.Name()+"-tasks", "", tasks, "so many tasks, drawn as upstream draws them; 0 = all, in "+order)
	c.Flags().StringVar(&f.selection, "select", "", "instead of upstream's draw: all, first (the file's first --"+c.Name()+"-tasks), or a file with the place in the file, from 0, or hash of a task a line")
}

// options are the evaluator's; a list of tasks is read.
func (f *taskFlags) options(c *cobra.Command) (eval.TaskOptions, error) {
	o := eval.TaskOptions{Tasks: f.tasks, NCtx: f.context.ctx, NBatch: f.context.batch, Threads: f.model.threads}
	switch f.selection {
	case "":
		return o, nil
	case "first":
		o.Selection.By = eval.SelectFirst
		return o, nil
	}
	if count := c.Name() + "-tasks"; c.Flags().Changed(count) {
		return o, &usageError{fmt.Errorf("--select %s says which tasks are evaluated, so that --%s has no meaning: leave one out", f.selection, count)}
	}
	if f.selection == "all" {
		o.Selection.By = eval.SelectAll
		return o, nil
	}
	list, err := readInput(f.selection)
	o.Selection = eval.Selection{By: eval.SelectListed, List: list}
	return o, err
}

// read reads the options and the task file.
func (f *taskFlags) read(c *cobra.Command) (o eval.TaskOptions, in eval.Input, err error) {
	if o, err = f.options(c); err == nil {
		in, err = readInput(f.file)
	}
	return o, in, err
}

func newHellaSwag() *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use:     "hellaswag",
		Short:   "Score four-way completion tasks, as llama-perplexity --hellaswag does",
		Example: `  run-campaign hellaswag -m model.gguf -f hellaswag_val_full.txt --hellaswag-tasks 400`,
		Args:    positional(),
		RunE: func(c *cobra.Command, _ []string) error {
			o, in, err := f.read(c)
			if err != nil {
				return err
			}
			return evaluate(c, f.evaluateFlags, newHead("hellaswag", in), func(s subject) (e prepared[eval.HellaSwagItem], err error) {
				h, err := eval.NewHellaSwag(s.tokenizer, in, o)
				if err != nil {
					return e, err
				}
				return prepared[eval.HellaSwagItem]{h, len(h.Tasks), h.Warnings}, nil
			})
		},
	}
	f.add(c, "builtin:gloss-swag", "task file in upstream's six-line format, or builtin:NAME", 400, "upstream's order")
	return c
}

func newWinogrande() *cobra.Command {
	var f taskFlags
	var compat bool
	c := &cobra.Command{
		Use:   "winogrande",
		Short: "Score two-way fill-in tasks, as llama-perplexity --winogrande does or as it means to",
		Long: `Scores two-way fill-in tasks. Upstream takes the probability of one token from the wrong place where little follows the blank. The result is by
the corrected rule or, with --upstream-compat, by upstream's, for comparison with published figures; --json has both. Upstream also leaves out
the last row of a file that does not end in an empty line; so does --upstream-compat, with a warning. Campaigns give the result by upstream's
rule and record both.`,
		Example: `  run-campaign winogrande -m model.gguf -f winogrande-debiased-eval.csv
  run-campaign winogrande -m model.gguf -f winogrande-debiased-eval.csv --upstream-compat`,
		Args: positional(),
		RunE: func(c *cobra.Command, _ []string) error {
			o, in, err := f.read(c)
			if err != nil {
				return err
			}
			o.Corrected = !compat
			return evaluate(c, f.evaluateFlags, newHead("winogrande", in), func(s subject) (e prepared[eval.WinograndeItem], err error) {
				w, err := eval.NewWinogrande(s.tokenizer, in, o)
				if err != nil {
					return e, err
				}
				return prepared[eval.WinograndeItem]{w, len(w.Tasks), w.Warnings}, nil
			})
		},
	}
	f.add(c, "builtin:gloss-grande", "csv file, or builtin:NAME", 0, "the file's order")
	c.Flags().BoolVar(&compat, "upstream-compat", false, "give the result by upstream's rule, its known defect included")
	return c
}

func newMultipleChoice() *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use:     "multiple-choice",
		Short:   "Score questions with several answers (ARC, MMLU, TruthfulQA), as llama-perplexity --multiple-choice does",
		Example: `  run-campaign multiple-choice -m model.gguf -f arc-challenge-test.jsonl`,
		Args:    positional(),
		RunE: func(c *cobra.Command, _ []string) error {
			o, in, err := f.read(c)
			if err != nil {
				return err
			}
			return evaluate(c, f.evaluateFlags, newHead("multiple-choice", in), func(s subject) (e prepared[eval.ChoiceItem], err error) {
				q, err := eval.NewChoice(s.tokenizer, in, o)
				if err != nil {
					return e, err
				}
				return prepared[eval.ChoiceItem]{q, len(q.Tasks), q.Warnings}, nil
			})
		},
	}
	f.add(c, "", "task file in upstream's binary format, or JSON lines with question, choices and gold; required", 0, "the file's order")
	_ = c.MarkFlagRequired("file")
	return c
}
