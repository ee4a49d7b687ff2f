package runner

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"attnbudget/engine/gguf"
	"attnbudget/plan"
	"attnbudget/results"
)

// modelFiles notices a model file that is removed or replaced while a run goes on. The fingerprint in the plan was taken
// when the plan was made, moments before the session; hashing a large file again for every unit would take longer than
// the unit, so a model is hashed again only when the size or time of one of its files has changed.
type modelFiles struct {
	parts map[string][]string    // files, by the path of the first
	seen  map[string][]fileState // of the parts
}

type fileState struct {
	size    int64
	changed time.Time
}

func newModelFiles(models []plan.Model) *modelFiles {
	m := &modelFiles{map[string][]string{}, map[string][]fileState{}}
	for _, model := range models {
		if model.Path == "" {
			continue
		}
		m.parts[model.Path] = partsOf(model.Path)
		if s, err := m.stateOf(model.Path); err == nil {
			m.seen[model.Path] = s
		}
	}
	return m
}

// partsOf lists the files of a model; of one that cannot be read, the one that is known.
func partsOf(path string) []string {
	f, err := gguf.Open(path)
	if err != nil {
		return []string{path}
	}
	defer f.Close()
	return f.Parts()
}

func (m *modelFiles) stateOf(path string) ([]fileState, error) {
	var out []fileState
	for _, part := range m.parts[path] {
		info, err := os.Stat(part)
		if err != nil {
			return nil, err
		}
		out = append(out, fileState{info.Size(), info.ModTime()})
	}
	return out, nil
}

// check returns why the model cannot be evaluated, nil if it can.
func (m *modelFiles) check(ctx context.Context, model plan.Model) *results.Failure {
	if model.Path == "" {
		return nil
	}
	now, err := m.stateOf(model.Path)
	if err != nil {
		return unavailable("model %s: %v", model.Name, err)
	}
	if slices.Equal(now, m.seen[model.Path]) {
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
