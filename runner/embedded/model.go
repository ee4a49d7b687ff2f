package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/builtin"
	"attnbudget/engine/gguf"
	"attnbudget/plan"
)

// openedModel is the model of an arm in the arm's format.
type openedModel struct {
	model  *engine.Model
	sha256 string // of the file that is evaluated
	file   *gguf.File
}

func (m openedModel) close() {
	m.model.Close()
	m.file.Close()
}

// openModel opens the job's model: the source itself when it has the arm's format, else a quantised copy from the cache.
func (c *child) openModel(ctx context.Context) (openedModel, error) {
	m, format := c.job.Model, c.job.Arm.Format
	open, sha := func() (*gguf.File, error) { return openSource(m) }, m.Fingerprint
	if !strings.EqualFold(format, m.Format) {
		entry, err := c.quantized(ctx, m, format)
		if err != nil {
			return openedModel{}, fmt.Errorf("model %s as %s: %w", m.Name, format, err)
		}
		open, sha = func() (*gguf.File, error) { return gguf.Open(entry.path) }, entry.SHA256
	}
	file, err := open()
	if err != nil {
		return openedModel{}, err
	}
	model, err := engine.OpenFile(file, engine.Options{Threads: c.job.Threads})
	if err != nil {
		return openedModel{}, errors.Join(err, file.Close())
	}
	return openedModel{model, sha, file}, nil
}

func openSource(m plan.Model) (*gguf.File, error) {
	if m.Path != "" {
		f, err := gguf.Open(m.Path)
		if errors.Is(err, fs.ErrNotExist) {
			err = &UnavailableError{err}
		}
		return f, err
	}
	data, err := builtin.Open(m.Source)
	if err != nil {
		return nil, &UnavailableError{err}
	}
	return gguf.OpenBytes(m.Source, data)
}
