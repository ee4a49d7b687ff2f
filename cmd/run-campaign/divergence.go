package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"attnbudget/campaigns"
	"attnbudget/engine"
	"attnbudget/engine/drop"
	"attnbudget/engine/eval"
	"attnbudget/engine/kernel"
	"attnbudget/engine/source"
	"attnbudget/runner"
	"attnbudget/runner/embedded"

	"github.com/shirou/gopsutil/v4/disk"
	"github.com/spf13/cobra"
)

// divergenceFlags are those of kl-divergence alone.
type divergenceFlags struct {
	evaluateFlags
	base, baseModel string
	chunks          int
}

func newKLDivergence() *cobra.Command {
	var f divergenceFlags
	c := &cobra.Command{
		Use:   "kl-divergence",
		Short: "Compare a model with the logits of a base model, as llama-perplexity --kl-divergence does",
		Long: `Compares the probabilities of a model with those in a logits file, which 'run-campaign perplexity --kl-divergence-base FILE' or
llama-perplexity has written for the base model: Kullback-Leibler divergence, perplexity ratio, change of the true token's probability.
The file's format is told by its beginning. Behind upstream's statistics come the same means with errors that take the tokens of a chunk
as dependent.`,
		Example: `  run-campaign perplexity -m f16.gguf -f wiki.test.raw --kl-divergence-base f16.logits --logits-format float32
  run-campaign kl-divergence -m q4.gguf --kl-divergence-base f16.logits --base-model f16.gguf`,
		Args: positional(),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.model.add(c)
	f.context.add(c, -1, "")
	f.addJSON(c)
	c.Flags().StringVar(&f.base, "kl-divergence-base", "", "logits file of the base model; required")
	c.Flags().StringVar(&f.baseModel, "base-model", "", "GGUF file or builtin:NAME that the logits must be of, or they are refused; only float32 logits say what they are of")
	addCount(c, &f.chunks, "chunks", "", 0, "at most so many chunks; 0 = all")
	_ = c.MarkFlagRequired("kl-divergence-base")
	return c
}

func (f *divergenceFlags) run(c *cobra.Command) error {
	file, err := os.Open(f.base)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	o := eval.DivergenceOptions{NBatch: f.context.batch, Chunks: f.chunks, Threads: f.model.threads}
	if f.baseModel != "" {
		if o.BaseModel, err = source.Fingerprint(c.Context(), f.baseModel); err != nil {
			return err
		}
	}
	head := &evaluationHead{Stage: "kl-divergence", File: f.base}
	return evaluate(c, f.evaluateFlags, head, func(s subject) (e prepared[eval.DivergenceChunk], err error) {
		d, err := eval.NewDivergence(s.tokenizer, f.base, file, info.Size(), o)
		if err != nil {
			return e, err
		}
		head.TokensSHA256 = d.TokensSHA256
		if d.Format == eval.LogitsFloat32 {
			head.Base = &d.Origin
		}
		return prepared[eval.DivergenceChunk]{d, d.Chunks, d.Warnings}, nil
	})
}

// origin is what a logits file says about its log-probabilities.
func (s subject) origin(ctx context.Context, f modelFlags) (eval.Origin, error) {
	o := eval.Origin{TypeK: strings.ToLower(s.context.TypeK.String()), TypeV: strings.ToLower(s.context.TypeV.String()), Engine: engine.ResultVersion(kernel.Name())}
	mask, err := drop.Resolve(s.model.Roles(), s.context.Mask)
	if err != nil {
		return o, err
	}
	o.Mask = mask.Canonical()
	if s.context.Surrogates != nil {
		o.Surrogate = s.context.Surrogates.Hash()
	}
	o.Model, err = source.Fingerprint(ctx, f.model)
	return o, err
}

// baseWriter is a perplexity evaluation that also writes a logits file, and goes on with what a killed one has left of it.
type baseWriter struct {
	*eval.Perplexity
	file embedded.LogitsFile
}

func (w baseWriter) Run(ctx context.Context, c eval.Context, _ []eval.Chunk, each func(eval.Chunk) error) ([]eval.Chunk, error) {
	chunks, err := w.file.Make(ctx, w.Perplexity, c, each)
	if err != nil && w.file.Begun() > 0 {
		err = fmt.Errorf("%w; what is finished of %s is kept beside it, and the same command goes on from there", err, w.file.Path)
	}
	return chunks, err
}

// newBaseWriter says what the logits file will take, and refuses one that cannot fit, before anything is evaluated or written.
// Where the system does not tell the free space, nothing is refused.
func newBaseWriter(c *cobra.Command, path string, p *eval.Perplexity, s subject) (baseWriter, error) {
	environment, err := runner.Machine(engine.Version, kernel.Name())
	if err != nil {
		return baseWriter{}, err
	}
	id := fmt.Sprintf("%s, %d tokens at once", p.LogitsID(), s.context.NUBatch)
	w := baseWriter{p, embedded.LogitsFile{Path: path, ID: id, Environment: environment.ID(), Note: func(text string) {
		fmt.Fprintf(c.ErrOrStderr(), "note: %s: %s\n", path, text)
	}}}
	need := p.LogitsBytes()
	fmt.Fprintf(c.ErrOrStderr(), "%s will take %s\n", path, campaigns.Size(need))
	usage, err := disk.UsageWithContext(c.Context(), filepath.Dir(path))
	if err != nil {
		return w, nil
	}
	if free := usage.Free + uint64(w.file.Begun()); free < uint64(need) {
		return w, fmt.Errorf("%s needs %s and the disk has %s free: use fewer --chunks or another folder",
			path, campaigns.Size(need), campaigns.Size(int64(free)))
	}
	return w, nil
}
