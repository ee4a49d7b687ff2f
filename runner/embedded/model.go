package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/builtin"
	"attnbudget/engine/source"
	"attnbudget/plan"
)

// openModel opens the job's model, and says which file that is by its SHA-256: the source itself when it has the arm's format,
// else a quantised copy from the cache.
func (c *child) openModel(ctx context.Context) (m *engine.Model, sha256 string, err error) {
	file, sha256 := sourceOf(c.job.Model), c.job.Model.Fingerprint
	if format := c.job.Arm.Format; !strings.EqualFold(format, c.job.Model.Format) {
		entry, err := c.quantized(ctx, c.job.Model, format)
		if err != nil {
			return nil, "", fmt.Errorf("model %s as %s: %w", c.job.Model.Name, format, err)
		}
		file, sha256 = entry.path, entry.SHA256
	}
	m, err = source.Model(file, engine.Options{Threads: c.job.Threads})
	return m, sha256, unavailable(err)
}

// sourceOf is where a model of the plan is: its path, or the name of a builtin one.
func sourceOf(m plan.Model) string { return cmp.Or(m.Path, m.Source) }

// unavailable marks the error of opening a model that is not there.
func unavailable(err error) error {
	var unknown *builtin.UnknownError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &unknown) {
		return &UnavailableError{err}
	}
	return err
}
