package calibrate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/engine/drop"
)

var bound = binding{Schema: JournalSchema, Model: "aaaa", Engine: "1", Text: "bbbb", NCtx: 512}

func begun(t *testing.T, path string, entries ...entry) {
	t.Helper()
	j, err := openJournal(path, bound)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.add(entries); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAJournalGoesOnBehindATornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	begun(t, path, entry{Chunk: 3, NLL: 3.25}, entry{Mask: "0,2", Chunk: 3, NLL: 3.5000000000000004, KL: 0.1})
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"mask":"1","chunk":3,"nl`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	begun(t, path, entry{Mask: "1", Chunk: 3, NLL: 4})
	j, err := openJournal(path, bound)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for mask, want := range map[string]float64{"": 3.25, "0,2": 3.5000000000000004, "1": 4} {
		if e := j.known[place{mask, 3}]; e.NLL != want {
			t.Errorf("mask %q: %v, want %v", mask, e.NLL, want)
		}
	}
}

func TestAJournalOfSomethingElseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	begun(t, path)
	for what, change := range map[string]func(*binding){
		"model":             func(b *binding) { b.Model = "cccc" },
		"engine version":    func(b *binding) { b.Engine = "2" },
		"text":              func(b *binding) { b.Text = "cccc" },
		"context length":    func(b *binding) { b.NCtx = 256 },
		"set of surrogates": func(b *binding) { b.Surrogates = "cccc" },
	} {
		other := bound
		change(&other)
		_, err := openJournal(path, other)
		var refused *JournalError
		if !errors.As(err, &refused) || refused.What != what || !strings.Contains(err.Error(), path) {
			t.Errorf("another %s: %v", what, err)
		}
	}
}

func TestADamagedJournalIsNamedWithItsLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	begun(t, path)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data, "nonsense\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal(path, bound); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v", err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("{\"schema\":\"attnbudget/calibration-journal/1\",\"model\":\"aaaa\",\"engine\":\"1\",\"text\":\"bbbb\",\"n_ctx\":512}\n{\"mask\":\"1\",\"chunk\":3,\"nll\":4}\n{"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := openJournal(path, bound)
		if err != nil {
			return
		}
		// What was read once is read again, with what is added behind it.
		known := len(j.known)
		if _, ok := j.get(drop.Mask{}, -7); !ok {
			known++
		}
		if err := errors.Join(j.add([]entry{{Chunk: -7, NLL: 1}}), j.Close()); err != nil {
			t.Fatal(err)
		}
		if j, err = openJournal(path, bound); err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if len(j.known) != known {
			t.Errorf("%d entries, want %d", len(j.known), known)
		}
	})
}

func TestWhatTheJournalHasIsNotMeasuredAgain(t *testing.T) {
	mask := masks(t, full(3), []int{1})[0]
	known := &meter{journal: &journal{known: map[place]entry{{"", 3}: {Chunk: 3, NLL: 3}, {"1", 3}: {Mask: "1", Chunk: 3, NLL: 3.5, KL: 0.25}}}}
	got, err := known.measure(t.Context(), 3, []drop.Mask{mask}) // there is no model to measure with
	if err != nil || len(got) != 1 || got[0] != (Score{NLL: 0.5, KL: 0.25}) {
		t.Errorf("%v, %v", got, err)
	}
}
