package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"attnbudget/engine/eval"

	"github.com/spf13/cobra"
)

// perplexityFlags are those of perplexity alone.
type perplexityFlags struct {
	evaluateFlags
	chunks, stride, output int
	base, format, perToken string
}

func newPerplexity() *cobra.Command {
	var f perplexityFlags
	c := &cobra.Command{
		Use:   "perplexity",
		Short: "Measure the perplexity of a text, as llama-perplexity does",
		Long: `Measures the perplexity of a text by upstream's protocol: chunks of -c tokens side by side, of which the second half is predicted.
With --ppl-stride S, chunks begin S tokens apart and the last S tokens of each are predicted: more context for every token, and figures
that compare with neither the other protocol's nor those of llama-perplexity --ppl-stride, which has windows of another size.

With --kl-divergence-base FILE the log-probabilities are written too, for kl-divergence to compare other models with. Until FILE is whole
it is FILE.part, and FILE.part.jsonl says what is finished of it: the same command after a kill goes on from there, to the same file.`,
		Example: `  run-campaign perplexity -m model.gguf -f wiki.test.raw -c 512 --chunks 40
  run-campaign perplexity -m model.gguf -f wiki.test.raw --attention-drop-layers 19,20 --json
  run-campaign perplexity -m f16.gguf -f wiki.test.raw --kl-divergence-base f16.logits --logits-format float32`,
		Args: positional(),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.add(c, "builtin:evaluation", "text file, or builtin:NAME")
	addCount(c, &f.chunks, "chunks", "", 0, "at most so many chunks; 0 = all")
	addCount(c, &f.stride, "ppl-stride", "", 0, "let chunks begin so many tokens apart and predict as many of each; 0 = chunks side by side")
	addCount(c, &f.output, "ppl-output-type", "", 0, "0: running perplexities; 1: a line per chunk with tokens, perplexity, mean NLL and its error")
	c.Flags().StringVar(&f.perToken, "per-token", "", "also write a JSON line per predicted token to this file; a logits file is then made from its beginning")
	c.Flags().StringVar(&f.base, "kl-divergence-base", "", "also write the log-probabilities to this file, for kl-divergence")
	c.Flags().StringVar(&f.format, "logits-format", eval.LogitsUpstream.String(), "of --kl-divergence-base: upstream, in 16 bits, which llama-perplexity reads too; or float32, exact, twice as long")
	return c
}

func (f *perplexityFlags) run(c *cobra.Command) error {
	switch {
	case f.output != 0 && f.output != 1:
		return &usageError{fmt.Errorf("--ppl-output-type %d: it must be 0 or 1", f.output)}
	case f.stride != 0 && f.base != "":
		return &usageError{errors.New("--ppl-stride and --kl-divergence-base exclude each other: a logits file has no place for chunks that overlap")}
	case f.base == "" && c.Flags().Changed("logits-format"):
		return &usageError{errors.New("--logits-format is the format of --kl-divergence-base, which is not given")}
	}
	format, err := eval.ParseLogitsFormat(f.format)
	if err != nil {
		return &usageError{err}
	}
	in, err := readInput(f.file)
	if err != nil {
		return err
	}
	var tokens tokenFile
	err = evaluate(c, f.evaluateFlags, newHead("perplexity", in), func(s subject) (e prepared[eval.Chunk], err error) {
		o := eval.PerplexityOptions{
			NCtx: f.context.ctx, NBatch: f.context.batch, Chunks: f.chunks, Threads: f.model.threads, Stride: f.stride, Rows: f.output == 1, Logits: format,
		}
		if f.base != "" {
			if o.Origin, err = s.origin(c.Context(), f.model); err != nil {
				return e, err
			}
		}
		if f.perToken != "" {
			o.EachToken = tokens.add
		}
		p, err := eval.NewPerplexity(s.tokenizer, in, o)
		if err != nil {
			return e, err
		}
		e = prepared[eval.Chunk]{p, p.Chunks, p.Warnings}
		if f.base != "" {
			w, err := newBaseWriter(c, f.base, p, s)
			if err != nil {
				return e, err
			}
			if f.perToken != "" { // the tokens of finished chunks would be missing
				if err := w.file.Discard(); err != nil {
					return e, err
				}
			}
			e.Evaluation = w
		}
		if f.perToken != "" { // only now: an input that cannot be evaluated must not empty the file
			return e, tokens.create(f.perToken)
		}
		return e, nil
	})
	closing := tokens.close()
	if err != nil { // what closing says then is no more than an echo of it
		return err
	}
	return closing
}

// tokenFile is the file of --per-token. The zero value is none.
type tokenFile struct {
	file   *os.File
	buffer *bufio.Writer
}

func (t *tokenFile) create(path string) (err error) {
	if t.file, err = os.Create(path); err != nil {
		return err
	}
	t.buffer = bufio.NewWriter(t.file)
	return nil
}

// add writes the tokens of a chunk, so that a run that is ended early leaves those of the finished ones.
func (t *tokenFile) add(tokens []eval.ScoredToken) error {
	lines := json.NewEncoder(t.buffer)
	for _, token := range tokens {
		if err := lines.Encode(token); err != nil {
			return err
		}
	}
	return t.buffer.Flush()
}

func (t *tokenFile) close() error {
	if t.file == nil {
		return nil
	}
	return errors.Join(t.buffer.Flush(), t.file.Sync(), t.file.Close())
}
