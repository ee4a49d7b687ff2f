package results

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func readAll(d *Dir) (kinds []string, errs []error) {
	for e, err := range d.Journal() {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		kinds = append(kinds, e.Kind)
	}
	return kinds, errs
}

func appendEvents(t *testing.T, d *Dir, events ...Event) {
	t.Helper()
	j, err := d.OpenJournal()
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, e := range events {
		if err := j.Append(e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestJournalKeepsEventsInOrderAcrossSessions(t *testing.T) {
	d := newDir(t)
	block := 0
	want := Event{Kind: EventBlockStart, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Session: "s1", Condition: "pp64", Block: &block}
	there := want
	there.Time = want.Time.In(time.FixedZone("there", 3600))
	appendEvents(t, d, there)
	appendEvents(t, d, Event{Kind: EventSessionEnd})
	kinds, errs := readAll(d)
	if diff := cmp.Diff([]string{EventJournal, EventBlockStart, EventSessionEnd}, kinds); diff != "" || errs != nil {
		t.Error(diff, errs)
	}
	for e, err := range d.Journal() {
		if err == nil && e.Kind == EventBlockStart {
			if diff := cmp.Diff(want, e); diff != "" {
				t.Error(diff)
			}
		}
	}
}

func TestATornLastLineCostsOnlyItself(t *testing.T) {
	d := newDir(t)
	appendEvents(t, d, Event{Kind: EventSessionStart})
	f, err := os.OpenFile(d.file(journalFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"event":"unit_st`); err != nil {
		t.Fatal(err)
	}
	f.Close()

	kinds, errs := readAll(d)
	var torn *LineError
	if len(kinds) != 2 || len(errs) != 1 || !errors.As(errs[0], &torn) || !torn.Torn || torn.Line != 3 {
		t.Fatalf("read %v, errors %v", kinds, errs)
	}

	appendEvents(t, d, Event{Kind: EventSessionEnd})
	kinds, errs = readAll(d)
	if diff := cmp.Diff([]string{EventJournal, EventSessionStart, EventSessionEnd}, kinds); diff != "" {
		t.Error(diff)
	}
	if len(errs) != 1 || !errors.As(errs[0], &torn) || torn.Torn {
		t.Errorf("errors %v, expected the damaged line alone", errs)
	}
}

func TestAFullDiskIsAnError(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	d := newDir(t)
	if err := os.Symlink("/dev/full", d.file(journalFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.OpenJournal(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v, expected no space left", err)
	}
}

func TestARunWithoutAJournalHasNoEvents(t *testing.T) {
	d, err := Create(filepath.Join(t.TempDir(), "x"), "demo")
	if err != nil {
		t.Fatal(err)
	}
	if kinds, errs := readAll(d); kinds != nil || errs != nil {
		t.Errorf("got %v, %v", kinds, errs)
	}
}

func FuzzReadJournal(f *testing.F) {
	f.Add(`{"event":"journal","schema":"attnbudget/journal/1"}` + "\n" + `{"event":"unit_start","unit":"a"}` + "\n")
	f.Add(`{"event":"journal","schema":"attnbudget/journal/7"}` + "\n")
	f.Add("{\"event\":\"x\"}\n\n\x00\n{\"event\":")
	f.Add(`{"event":"a","block":1,"time":"yesterday"}`)
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Count(text, "\n") + 1
		n := 0
		for e, err := range ReadJournal(strings.NewReader(text), "fuzz") {
			if n++; n > lines {
				t.Fatal("more events than lines")
			}
			if (err == nil) != (e.Kind != "") {
				t.Fatalf("event %+v with error %v", e, err)
			}
		}
	})
}
