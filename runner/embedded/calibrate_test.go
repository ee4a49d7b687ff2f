package embedded

import (
	"testing"

	"attnbudget/plan"
)

func TestCalibrationsShareAJournalOnlyWhereWhatTheyMeasureIsTheSame(t *testing.T) {
	base := plan.CalibrationKey{ModelFingerprint: "f0", EngineVersion: "1", InputSHA256: "50", Context: 512, SearchChunks: 8, Surrogate: "linear", Rank: 8, WithSurrogates: true, Budget: 0.05}
	for name, c := range map[string]struct {
		change func(*plan.CalibrationKey)
		shared bool
	}{
		"budget":                {func(k *plan.CalibrationKey) { k.Budget = 0.1 }, true},
		"search":                {func(k *plan.CalibrationKey) { k.Search = "beam" }, true},
		"model":                 {func(k *plan.CalibrationKey) { k.ModelFingerprint = "f1" }, false},
		"engine":                {func(k *plan.CalibrationKey) { k.EngineVersion = "2" }, false},
		"text":                  {func(k *plan.CalibrationKey) { k.InputSHA256 = "51" }, false},
		"context":               {func(k *plan.CalibrationKey) { k.Context = 256 }, false},
		"surrogate":             {func(k *plan.CalibrationKey) { k.Surrogate = "mean" }, false},
		"rank":                  {func(k *plan.CalibrationKey) { k.Rank = 16 }, false},
		"what they are fit on":  {func(k *plan.CalibrationKey) { k.SearchChunks = 9 }, false},
		"no surrogate in place": {func(k *plan.CalibrationKey) { k.WithSurrogates = false }, false},
	} {
		k := base
		c.change(&k)
		if got := journalName(k) == journalName(base); got != c.shared {
			t.Errorf("another %s: shared %v, want %v", name, got, c.shared)
		}
	}
}
