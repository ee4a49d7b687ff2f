package runner

import (
	"context"
	"fmt"
	"os"
	"time"

	"attnbudget/engine/gguf"
	"attnbudget/plan"
	"attnbudget/results"
)

// modelFiles notices a model file that is removed or replaced while a run goes on. The fingerprint in the plan was taken
// when the plan was made, moments before the session; hashing a large file again for every unit would take longer than
// the unit, so a file is hashed again only when its size or time has changed.
type modelFiles struct {
	seen map[string]fileState // by path
}

type fileState struct {
	size    int64
	changed time.Time
}

func stateOf(path string) (fileState, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}, err
	}
	return fileState{info.Size(), info.ModTime()}, nil
}

func newModelFiles(models []plan.Model) *modelFiles {
	m := &modelFiles{make(map[string]fileState)}
	for _, model := range models {
		if s, err := stateOf(model.Path); err == nil && model.Path != "" {
			m.seen[model.Path] = s
		}
	}
	return m
}

// check returns why the model cannot be evaluated, nil if it can.
func (m *modelFiles) check(ctx context.Context, model plan.Model) *results.Failure {
	if model.Path == "" {
		return nil
	}
	now, err := stateOf(model.Path)
	if err != nil {
		return unavailable("model %s: %v", model.Name, err)
	}
	if now == m.seen[model.Path] {
		return nil
	}
	sum, err := gguf.Fingerprint(ctx, model.Path)
	if err != nil {
		return unavailable("model %s: %v", model.Name, err)
	}
	if sum != model.Fingerprint {
		return unavailable("model %s: %s has changed since the plan was made: its fingerprint was %s and is %s; load the campaign again",
			model.Name, model.Path, model.Fingerprint, sum)
	}
	m.seen[model.Path] = now
	return nil
}

func unavailable(format string, args ...any) *results.Failure {
	return &results.Failure{Kind: results.Unavailable, Message: fmt.Sprintf(format, args...)}
}
