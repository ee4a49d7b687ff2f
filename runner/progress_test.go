package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attnbudget/results"
)

// exampleSession is what a reporter is told of a short session.
func exampleSession() []Event {
	left := 90.0
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return []Event{
		{Event: results.Event{Kind: results.EventSessionStart, Time: at, Environment: "e1"}, Total: 2},
		{Event: results.Event{Kind: EventNote, Time: at, Message: "a record is damaged"}, Total: 2},
		{Event: results.Event{Kind: EventNote, Time: at, Unit: "u1", Name: "kv/kv 64/a/000", Message: "it begins again"}, Total: 2},
		{Event: results.Event{Kind: results.EventUnitStart, Time: at, Unit: "u1", Name: "kv/kv 64/a/000"}, Total: 2},
		{Event: results.Event{Kind: EventUnitProgress, Time: at, Unit: "u1", Name: "kv/kv 64/a/000"}, Total: 2, Progress: &Progress{Phase: "load", Done: 1, Total: 4}},
		{Event: results.Event{Kind: results.EventUnitEnd, Time: at, Unit: "u1", Name: "kv/kv 64/a/000", Outcome: results.OK, Seconds: 1.25}, Done: 1, Total: 2, LeftSeconds: &left},
		{Event: results.Event{Kind: results.EventUnitEnd, Time: at, Unit: "u2", Name: "kv/kv 64/b/000", Outcome: results.Failed, Failure: results.Crash, Message: "exit status 1", Seconds: 1}, Done: 2, Total: 2, Failed: 1},
		{Event: results.Event{Kind: results.EventSessionEnd, Time: at, Message: "finished"}, Done: 2, Total: 2, Failed: 1},
	}
}

func TestLinesSayOneThingPerFinishedUnit(t *testing.T) {
	var out bytes.Buffer
	r := NewLines(&out, false)
	for _, e := range exampleSession() {
		r.Report(e)
	}
	r.Close()
	equal(t, "lines", `note: a record is damaged
note: kv/kv 64/a/000: it begins again
[1/2] kv/kv 64/a/000  ok  1.2s  (1m30s left)
[2/2] kv/kv 64/b/000  failed (crash): exit status 1
`, out.String())
}

func TestColoursAreUsedOnlyWhenAsked(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		r := NewLines(&out, colour)
		for _, e := range exampleSession() {
			r.Report(e)
		}
		if got := strings.Contains(out.String(), "\x1b["); got != colour {
			t.Errorf("colour %v: escape sequences %v", colour, got)
		}
	}
}

func TestJSONReportsEveryEvent(t *testing.T) {
	var out bytes.Buffer
	r := NewJSON(&out)
	for _, e := range exampleSession() {
		r.Report(e)
	}
	r.Close()
	var got []Event
	for dec := json.NewDecoder(&out); dec.More(); {
		var e Event
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	equal(t, "events", exampleSession(), got)
}

func TestBarsKeepTheLinesOfFinishedUnits(t *testing.T) {
	var out bytes.Buffer
	r := NewBars(&out, false)
	for _, e := range exampleSession() {
		r.Report(e)
	}
	r.Close()
	for _, want := range []string{"note: a record is damaged\n", "[1/2] kv/kv 64/a/000  ok  1.2s  (1m30s left)\n", "[2/2] kv/kv 64/b/000  failed (crash): exit status 1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in %q", want, out.String())
		}
	}
}

func TestTheWayOfReportingIsChosen(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for way, want := range map[ProgressWay]string{
		ProgressAuto:  "kv/kv 64/a/000  ok", // a file is no terminal: lines
		ProgressLines: "kv/kv 64/a/000  ok",
		ProgressJSON:  `"event":"unit_end"`,
		ProgressNone:  "",
	} {
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if parsed, err := ParseProgress(string(way)); err != nil || parsed != way {
			t.Errorf("%s is read as %q, %v", way, parsed, err)
		}
		r := NewReporter(f, way)
		for _, e := range exampleSession() {
			r.Report(e)
		}
		r.Close()
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), want) || want == "" && len(b) > 0 {
			t.Errorf("%s printed %q", way, b)
		}
	}
	if _, err := ParseProgress("fancy"); err == nil || !strings.Contains(err.Error(), "fancy") {
		t.Errorf("got %v", err)
	}
}

func TestShortTimes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		40 * time.Millisecond: "40ms", 1500 * time.Millisecond: "1.5s", 42 * time.Second: "42s",
		90 * time.Second: "1m30s", 2*time.Hour + 5*time.Minute: "2h05m", 100 * time.Hour: "100h00m",
	} {
		equal(t, d.String(), want, shortTime(d))
	}
}

func TestTheTimeLeftComesFromMeasuredUnits(t *testing.T) {
	b := newBench(t)
	b.x.took = 20 * time.Millisecond
	b.mustRun()
	var first, last *Event
	for i := range b.r.events {
		if e := &b.r.events[i]; e.Kind == results.EventUnitEnd {
			if first == nil {
				first = e
			}
			last = e
		}
	}
	if first.LeftSeconds != nil {
		t.Errorf("after the first unit the depth stage is unknown, but %v s are said to be left", *first.LeftSeconds)
	}
	if last.LeftSeconds == nil || *last.LeftSeconds != 0 {
		t.Errorf("after the last unit: %v", last.LeftSeconds)
	}
	ninth := b.r.events[len(b.r.events)-1]
	for _, e := range b.r.events {
		if e.Kind == results.EventUnitEnd && e.Done == 9 {
			ninth = e
		}
	}
	if l := ninth.LeftSeconds; l == nil || *l < 0.02 || *l > 5 {
		t.Errorf("before the last unit: %v", l)
	}
}

// The time of a resumed unit is that of its last part: too short for an estimate.
func TestAResumedUnitIsNotMeasured(t *testing.T) {
	b := newBench(t)
	one, two := "perplexity/perplexity text c512/a/000", "perplexity/perplexity text c512/b/000"
	b.x.script[one] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		out, err := b.x.succeed(ctx, job, p)
		out.Resumed = 1
		return out, err
	}
	left := func(when string) {
		t.Helper()
		for _, e := range b.r.events {
			if e.Kind == results.EventUnitStart && e.Name == two && e.LeftSeconds != nil {
				t.Errorf("%s: %v s are said to be left", when, *e.LeftSeconds)
			}
		}
	}
	b.interruptBefore(two)
	left("in the session that resumed it")
	b.mustRun()
	left("in the next one")
}
