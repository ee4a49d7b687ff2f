package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"attnbudget/campaigns"
	"attnbudget/engine/eval"
	"attnbudget/engine/tokenizer"

	"github.com/shirou/gopsutil/v4/disk"
	"github.com/spf13/cobra"
)

func newKLDivergence() *cobra.Command {
	var f evaluateFlags
	var base string
	var chunks int
	c := &cobra.Command{
		Use:   "kl-divergence",
		Short: "Compare a model with the logits of a base model, as llama-perplexity --kl-divergence does",
		Long: `Compares the probabilities of a model with those in a logits file, which 'run-campaign perplexity --kl-divergence-base FILE' or
llama-perplexity has written for the base model: Kullback-Leibler divergence, perplexity ratio, change of the true token's probability.`,
		Example: `  run-campaign perplexity -m f16.gguf -f wiki.test.raw --kl-divergence-base f16.logits
  run-campaign kl-divergence -m q4.gguf --kl-divergence-base f16.logits`,
		Args: positional(),
		RunE: func(c *cobra.Command, _ []string) error {
			file, err := os.Open(base)
			if err != nil {
				return err
			}
			defer file.Close()
			info, err := file.Stat()
			if err != nil {
				return err
			}
			return evaluate(c, f, evaluationHead{Stage: "kl-divergence", File: base}, func(tok *tokenizer.Tokenizer) (e prepared[eval.DivergenceChunk], err error) {
				d, err := eval.NewDivergence(tok, base, file, info.Size(), eval.DivergenceOptions{NBatch: f.context.batch, Chunks: chunks, Threads: f.model.threads})
				if err != nil {
					return e, err
				}
				return prepared[eval.DivergenceChunk]{d, d.Chunks, d.Warnings}, nil
			})
		},
	}
	f.model.add(c)
	f.context.add(c, -1, "")
	f.addJSON(c)
	c.Flags().StringVar(&base, "kl-divergence-base", "", "logits file of the base model")
	c.Flags().IntVar(&chunks, "chunks", 0, "at most so many chunks; 0 = all")
	_ = c.MarkFlagRequired("kl-divergence-base")
	return c
}

// baseWriter is a perplexity evaluation that also writes a logits file.
type baseWriter struct {
	*eval.Perplexity
	file *os.File
}

func (w baseWriter) Run(ctx context.Context, c eval.Context, done []eval.Chunk, each func(eval.Chunk) error) ([]eval.Chunk, error) {
	chunks, err := w.RunBase(ctx, c, w.file, done, each)
	return chunks, errors.Join(err, w.file.Sync(), w.file.Close())
}

// createLogits makes the logits file after it has been said what it will take. One that cannot fit is refused before a file
// that is there already is touched. Where the system does not tell the free space, nothing is refused.
func createLogits(c *cobra.Command, path string, need int64) (*os.File, error) {
	fmt.Fprintf(c.ErrOrStderr(), "%s will take %s\n", path, campaigns.Size(need))
	usage, err := disk.UsageWithContext(c.Context(), filepath.Dir(path))
	if err == nil && usage.Free < uint64(need) {
		return nil, fmt.Errorf("%s needs %s and the disk has %s free: use fewer --chunks or another folder",
			path, campaigns.Size(need), campaigns.Size(int64(usage.Free)))
	}
	return os.Create(path)
}
