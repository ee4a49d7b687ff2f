package summary

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"attnbudget/plan"
	"attnbudget/results"
)

// source is everything a summary is made from.
type source struct {
	plan         *plan.Plan
	records      map[string]*results.Record // by unit id
	damaged      []string                   // records that cannot be read, why
	environments map[string]results.Environment
}

func readRun(d *results.Dir) (source, error) {
	p, err := d.Plan()
	if err != nil {
		return source{}, err
	}
	src := source{plan: p, records: map[string]*results.Record{}}
	for r, err := range d.Records() {
		var damaged *results.RecordError
		switch {
		case errors.As(err, &damaged):
			src.damaged = append(src.damaged, fmt.Sprintf("%s cannot be used: %v", recordFile(damaged.Unit), damaged.Err))
		case err != nil:
			return source{}, err
		default:
			src.records[r.Unit.ID] = r
		}
	}
	src.environments, err = d.Environments()
	return src, err
}

// recordFile is where a unit's record lies in the run directory.
func recordFile(id string) string { return path.Join("records", id+".json") }

// publicConditions leaves out the folders of inputs: they differ from machine to machine and decide nothing.
func publicConditions(conditions []plan.Condition) []plan.Condition {
	out := make([]plan.Condition, len(conditions))
	for i, c := range conditions {
		if filepath.IsAbs(c.Input) || strings.Contains(c.Input, "/") {
			c.Input = path.Base(filepath.ToSlash(c.Input))
		}
		out[i] = c
	}
	return out
}
