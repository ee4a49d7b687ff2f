package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/eval"
	"attnbudget/engine/kernel"
	"attnbudget/engine/source"
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

// evaluationHead is the first line of --json.
type evaluationHead struct {
	Kind   string `json:"kind"` // "evaluation"
	Stage  string `json:"stage"`
	Items  int    `json:"items"` // to evaluate: chunks or tasks
	File   string `json:"file"`
	SHA256 string `json:"sha256,omitempty"` // of the file; not of a logits file, which may be very large
	Engine string `json:"engine"`           // its version

	TokensSHA256 string       `json:"tokens_sha256,omitempty"` // kl-divergence: of the text's tokens, int32 little endian
	Base         *eval.Origin `json:"base,omitempty"`          // kl-divergence: what the logits are of, where the file tells

	Mask          string `json:"mask"` // layers whose attention is dropped: "0,3"
	MaskHash      string `json:"mask_hash"`
	SurrogateHash string `json:"surrogate_hash,omitempty"` // of what stands in for it
}

func newHead(stage string, in eval.Input) *evaluationHead {
	sum := sha256.Sum256(in.Data)
	return &evaluationHead{Stage: stage, File: in.Name, SHA256: hex.EncodeToString(sum[:])}
}

func (f *evaluateFlags) add(c *cobra.Command, file, usage string) {
	f.model.add(c)
	f.context.add(c, 512, "context in tokens")
	c.Flags().StringVarP(&f.file, "file", "f", file, usage)
	f.addJSON(c)
}

func (f *evaluateFlags) addJSON(c *cobra.Command) {
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON line per finished item instead, as soon as it is finished, behind one that names the data")
}

// readInput reads a file or a builtin:NAME.
func readInput(name string) (eval.Input, error) {
	data, err := source.Read(name)
	return eval.Input{Name: name, Data: data}, err
}

// subject is what is evaluated.
type subject struct {
	model     *engine.Model
	tokenizer *tokenizer.Tokenizer
	context   engine.ContextOptions // what the flags say; the evaluation decides its size
}

// prepared is an evaluation that is ready to run.
type prepared[T any] struct {
	eval.Evaluation[T]
	items    int // to evaluate
	warnings []string
}

// evaluate prepares an evaluator, which may complete the head, runs it with a bar over its items, and prints it.
func evaluate[T any](c *cobra.Command, f evaluateFlags, head *evaluationHead, prepare func(subject) (prepared[T], error)) error {
	o, err := f.context.options()
	if err != nil {
		return err
	}
	m, err := f.model.open()
	if err != nil {
		return err
	}
	defer m.Close()
	if err := f.context.drop.bind(c.Context(), &o, m, f.model); err != nil {
		return err
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return err
	}
	e, err := prepare(subject{m, tok, o})
	if err != nil {
		return err
	}
	warn(c, e.warnings)
	ec, err := m.NewContext(e.ContextOptions(o))
	if err != nil {
		return err
	}
	defer ec.Close()
	lines := json.NewEncoder(c.OutOrStdout())
	if f.asJSON {
		head.Kind, head.Items, head.Engine = "evaluation", e.items, engine.ResultVersion(kernel.Name())
		head.Mask, head.MaskHash = ec.Mask().Canonical(), ec.Mask().Hash()
		if o.Surrogates != nil {
			head.SurrogateHash = o.Surrogates.Hash()
		}
		if err := lines.Encode(head); err != nil {
			return err
		}
	}
	bar := newBar(c.ErrOrStderr(), head.Stage)
	defer bar.done()
	n := 0
	items, err := e.Run(c.Context(), ec, nil, func(item T) error {
		n++
		bar.set(int64(n), int64(e.items))
		if f.asJSON {
			return lines.Encode(item)
		}
		return nil
	})
	bar.done()
	if err != nil {
		return fmt.Errorf("%w (after %d of %d)", err, n, e.items)
	}
	defer func() { warn(c, e.Doubts(items)) }()
	if f.asJSON {
		return nil
	}
	var out strings.Builder
	if err := e.Write(&out, items); err != nil {
		return err
	}
	return writeText(c.OutOrStdout(), out.String())
}

func warn(c *cobra.Command, warnings []string) {
	for _, w := range warnings {
		fmt.Fprintln(c.ErrOrStderr(), "warning: "+w)
	}
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
