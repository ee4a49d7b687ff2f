package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"attnbudget/engine"
	"attnbudget/engine/gguf"
)

// LoadOptions says how loading is measured.
type LoadOptions struct {
	Path        string
	Context     engine.ContextOptions // NCtx 0 = as many cells as the tokens need
	Prompt      int                   // tokens of the prompt whose first answer is awaited, at least 1
	Repetitions int                   // 0 = 1
	Cold        bool                  // let the system forget the file before each repetition, so that it comes from the disk
	NoTouch     bool                  // do not bring the weights into memory first: the forward pass fetches them page by page
}

// Load is the way from nothing to the first token, step by step. A repetition starts with the file closed and ends with the logits that
// decide the first token.
type Load struct {
	Kind      string `json:"kind"` // "load"
	Model     string `json:"model_filename"`
	Type      string `json:"model_type"`
	Bytes     int64  `json:"model_size"`
	Threads   int    `json:"n_threads"`
	Prompt    int    `json:"n_prompt"`
	Cold      bool   `json:"cold"`
	Touched   bool   `json:"touched"`
	Open      int64  `json:"open_ns"`    // map the file, read its metadata, bind its tensors
	Context   int64  `json:"context_ns"` // tokenizer, caches, workers
	Touch     int64  `json:"touch_ns"`   // bring the weights into memory
	Compute   int64  `json:"compute_ns"` // the prompt
	Total     int64  `json:"total_ns"`
	MinorPage int64  `json:"minor_faults"`
	MajorPage int64  `json:"major_faults"`
}

// RunLoad measures loading. The file must not be open elsewhere for Cold to mean anything; Cold is refused where the system
// offers no way to forget a file.
func RunLoad(ctx context.Context, o LoadOptions) ([]Load, error) {
	if o.Prompt < 1 {
		return nil, fmt.Errorf("bench: loading ends with a token; expected a prompt of at least 1, found %d", o.Prompt)
	}
	files, err := filesOf(o.Path)
	if err != nil {
		return nil, err
	}
	var out []Load
	for range max(o.Repetitions, 1) {
		if o.Cold {
			for _, path := range files {
				if err := forget(path); err != nil {
					return out, fmt.Errorf("bench: %s cannot be taken out of the page cache: %w", path, err)
				}
			}
		}
		l, err := o.once(ctx)
		if err != nil {
			return out, fmt.Errorf("bench: loading %s: %w", o.Path, err)
		}
		out = append(out, l)
	}
	return out, nil
}

// filesOf lists the files of a model.
func filesOf(path string) ([]string, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	return f.Parts(), f.Close()
}

func (o LoadOptions) once(ctx context.Context) (l Load, err error) {
	before, start := usageNow(), time.Now()
	last := start
	lap := func() int64 {
		now := time.Now()
		d := now.Sub(last)
		last = now
		return d.Nanoseconds()
	}
	m, err := engine.Open(o.Path, engine.Options{Threads: o.Context.Threads})
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	l.Open = lap()
	tokens, err := newTrace(m, "load")
	if err != nil {
		return l, err
	}
	if o.Context.NCtx == 0 {
		o.Context.NCtx = o.Prompt + 1
	}
	c, err := m.NewContext(o.Context)
	if err != nil {
		return l, err
	}
	defer c.Close()
	l.Context = lap()
	if !o.NoTouch {
		m.Touch(c.Threads())
		l.Touch = lap()
	}
	if err := c.Decode(ctx, &engine.Batch{Tokens: tokens.prompt(o.Prompt)}); err != nil {
		return l, err
	}
	l.Compute, l.Total = lap(), time.Since(start).Nanoseconds()
	u := usageNow().since(before)
	l.MinorPage, l.MajorPage = u.minorFaults, u.majorFaults
	info := m.Info()
	l.Kind, l.Model, l.Type, l.Bytes = "load", m.Path(), info.Description(), info.Bytes
	l.Threads, l.Prompt, l.Cold, l.Touched = c.Threads(), o.Prompt, o.Cold, !o.NoTouch
	return l, nil
}

// WriteLoads prints loads in a format of ProfileFormats.
func WriteLoads(w io.Writer, format string, loads []Load) error {
	switch format {
	case "md":
		return writeLoadTable(w, loads)
	case "json", "jsonl":
		return writeRecords(w, format, loads)
	}
	return fmt.Errorf("loading has no output format %q; there are %s", format, strings.Join(ProfileFormats(), ", "))
}

func writeLoadTable(w io.Writer, loads []Load) error {
	ms := func(ns int64) string { return fmt.Sprintf("%.1f", float64(ns)/1e6) }
	rows := [][]string{{"model", "size", "file from", "prompt", "open ms", "context ms", "touch ms", "compute ms", "first token ms", "minor faults", "major"}}
	for _, l := range loads {
		from := "memory"
		if l.Cold {
			from = "disk"
		}
		touch := "-"
		if l.Touched {
			touch = ms(l.Touch)
		}
		rows = append(rows, []string{
			l.Type, sizeText(l.Bytes), from, fmt.Sprint(l.Prompt), ms(l.Open), ms(l.Context), touch, ms(l.Compute), ms(l.Total),
			fmt.Sprint(l.MinorPage), fmt.Sprint(l.MajorPage),
		})
	}
	var b strings.Builder
	writeColumns(&b, rows)
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}
