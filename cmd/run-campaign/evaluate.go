package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/builtin"
	"attnbudget/engine/eval"
	"attnbudget/engine/tokenizer"

	"github.com/spf13/cobra"
)

// evaluateFlags are the flags of every evaluator.
type evaluateFlags struct {
	model   modelFlags
	context contextFlags
	file    string
	asJSON  bool
}

func (f *evaluateFlags) add(c *cobra.Command, file, usage string) {
	f.model.add(c)
	f.context.add(c, 512, "context in tokens")
	c.Flags().StringVarP(&f.file, "file", "f", file, usage)
	f.addJSON(c)
}

func (f *evaluateFlags) addJSON(c *cobra.Command) {
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON line per finished item instead, as soon as it is finished")
}

// readInput reads a file or a builtin:NAME.
func readInput(name string) (eval.Input, error) {
	if builtin.IsName(name) {
		data, err := builtin.Open(name)
		return eval.Input{Name: name, Data: data}, err
	}
	data, err := os.ReadFile(name)
	return eval.Input{Name: name, Data: data}, err
}

// evaluation is what the evaluators of package eval have in common, for items of type T.
type evaluation[T any] interface {
	ContextOptions(base engine.ContextOptions) engine.ContextOptions
	Run(ctx context.Context, c eval.Context, done []T, each func(T) error) ([]T, error)
	Write(w io.Writer, items []T) error
}

// evaluate prepares an evaluator with the model's tokenizer, runs it with a bar over total items, and prints it.
func evaluate[T any](c *cobra.Command, f evaluateFlags, what string, prepare func(*tokenizer.Tokenizer) (evaluation[T], int, error)) error {
	o, err := f.context.options()
	if err != nil {
		return err
	}
	m, err := f.model.open()
	if err != nil {
		return err
	}
	defer m.Close()
	tok, err := m.Tokenizer()
	if err != nil {
		return err
	}
	e, total, err := prepare(tok)
	if err != nil {
		return err
	}
	ec, err := m.NewContext(e.ContextOptions(o))
	if err != nil {
		return err
	}
	defer ec.Close()
	bar := newBar(c.ErrOrStderr(), what)
	defer bar.done()
	n := 0
	lines := json.NewEncoder(c.OutOrStdout())
	items, err := e.Run(c.Context(), ec, nil, func(item T) error {
		n++
		bar.set(int64(n), int64(total))
		if f.asJSON {
			return lines.Encode(item)
		}
		return nil
	})
	bar.done()
	if err != nil {
		return fmt.Errorf("%w (after %d of %d)", err, n, total)
	}
	if f.asJSON {
		return nil
	}
	var out strings.Builder
	if err := e.Write(&out, items); err != nil {
		return err
	}
	return writeText(c.OutOrStdout(), out.String())
}

// writeText writes the lines of an output that are not JSON.
func writeText(w io.Writer, output string) error {
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "{") {
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func newPerplexity() *cobra.Command {
	var f evaluateFlags
	var chunks int
	var base string
	c := &cobra.Command{
		Use:   "perplexity",
		Short: "Measure the perplexity of a text, as llama-perplexity does",
		Example: `  run-campaign perplexity -m model.gguf -f wiki.test.raw -c 512 --chunks 40
  run-campaign perplexity -m model.gguf -f wiki.test.raw --attention-drop-layers 19,20 --json`,
		Args: positional(),
		RunE: func(c *cobra.Command, _ []string) error {
			in, err := readInput(f.file)
			if err != nil {
				return err
			}
			return evaluate(c, f, "perplexity", func(tok *tokenizer.Tokenizer) (evaluation[eval.Chunk], int, error) {
				p, err := eval.NewPerplexity(tok, in, eval.PerplexityOptions{
					NCtx: f.context.ctx, NBatch: f.context.batch, Chunks: chunks, Threads: f.model.threads,
				})
				if err != nil {
					return nil, 0, err
				}
				if base == "" {
					return p, p.Chunks, nil
				}
				file, err := createLogits(c, base, p.LogitsBytes())
				return baseWriter{p, file}, p.Chunks, err
			})
		},
	}
	f.add(c, "builtin:evaluation", "text file, or builtin:NAME")
	c.Flags().IntVar(&chunks, "chunks", 0, "at most so many chunks; 0 = all")
	c.Flags().StringVar(&base, "kl-divergence-base", "", "also write the logits to this file, in upstream's format, for kl-divergence")
	return c
}

func newHellaSwag() *cobra.Command {
	var f evaluateFlags
	var tasks int
	c := &cobra.Command{
		Use:     "hellaswag",
		Short:   "Score four-way completion tasks, as llama-perplexity --hellaswag does",
		Example: `  run-campaign hellaswag -m model.gguf -f hellaswag_val_full.txt --hellaswag-tasks 400`,
		Args:    positional(),
		RunE: func(c *cobra.Command, _ []string) error {
			in, err := readInput(f.file)
			if err != nil {
				return err
			}
			return evaluate(c, f, "hellaswag", func(tok *tokenizer.Tokenizer) (evaluation[eval.HellaSwagItem], int, error) {
				h, err := eval.NewHellaSwag(tok, in, f.taskOptions(tasks))
				if err != nil {
					return nil, 0, err
				}
				return h, len(h.Tasks), nil
			})
		},
	}
	f.add(c, "builtin:gloss-swag", "task file in upstream's six-line format, or builtin:NAME")
	c.Flags().IntVar(&tasks, "hellaswag-tasks", 400, "so many tasks, drawn as upstream draws them; 0 = all, in upstream's order")
	return c
}

func newWinogrande() *cobra.Command {
	var f evaluateFlags
	var tasks int
	c := &cobra.Command{
		Use:     "winogrande",
		Short:   "Score two-way fill-in tasks, as llama-perplexity --winogrande does",
		Example: `  run-campaign winogrande -m model.gguf -f winogrande-debiased-eval.csv`,
		Args:    positional(),
		RunE: func(c *cobra.Command, _ []string) error {
			in, err := readInput(f.file)
			if err != nil {
				return err
			}
			return evaluate(c, f, "winogrande", func(tok *tokenizer.Tokenizer) (evaluation[eval.WinograndeItem], int, error) {
				g, err := eval.NewWinogrande(tok, in, f.taskOptions(tasks))
				if err != nil {
					return nil, 0, err
				}
				for _, w := range g.Warnings {
					fmt.Fprintln(c.ErrOrStderr(), "warning: "+w)
				}
				return g, len(g.Tasks), nil
			})
		},
	}
	f.add(c, "builtin:gloss-grande", "csv file, or builtin:NAME")
	c.Flags().IntVar(&tasks, "winogrande-tasks", 0, "so many tasks, drawn as upstream draws them; 0 = all, in the file's order")
	return c
}

func newMultipleChoice() *cobra.Command {
	var f evaluateFlags
	var tasks int
	c := &cobra.Command{
		Use:     "multiple-choice",
		Short:   "Score questions with several answers (ARC, MMLU, TruthfulQA), as llama-perplexity --multiple-choice does",
		Example: `  run-campaign multiple-choice -m model.gguf -f arc-challenge-test.bin`,
		Args:    positional(),
		RunE: func(c *cobra.Command, _ []string) error {
			in, err := readInput(f.file)
			if err != nil {
				return err
			}
			return evaluate(c, f, "multiple-choice", func(tok *tokenizer.Tokenizer) (evaluation[eval.ChoiceItem], int, error) {
				q, err := eval.NewChoice(tok, in, f.taskOptions(tasks))
				if err != nil {
					return nil, 0, err
				}
				return q, len(q.Tasks), nil
			})
		},
	}
	f.add(c, "", "task file in upstream's binary format")
	_ = c.MarkFlagRequired("file")
	c.Flags().IntVar(&tasks, "multiple-choice-tasks", 0, "so many tasks, drawn as upstream draws them; 0 = all, in the file's order")
	return c
}

func (f *evaluateFlags) taskOptions(tasks int) eval.TaskOptions {
	return eval.TaskOptions{Tasks: tasks, NCtx: f.context.ctx, NBatch: f.context.batch, Threads: f.model.threads}
}
