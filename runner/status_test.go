package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/plan"
	"attnbudget/results"
)

// statusOf returns the status of the unit with the name.
func (b *bench) statusOf(name string) UnitStatus {
	b.t.Helper()
	all, _, err := Status(b.dir, b.plan, b.o)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range all {
		if s.Unit.Name == name {
			return s
		}
	}
	b.t.Fatalf("no status of %s", name)
	return UnitStatus{}
}

func TestStatusSaysWhatIsDoneFailedAndLeft(t *testing.T) {
	b := newBench(t)
	b.x.script["throughput/pp8/a/000"] = fails(results.Failure{Kind: results.Crash, Message: "exit status 1"})
	b.interruptBefore("throughput/pp8/b/001")
	_, sum, err := Status(b.dir, b.plan, b.o)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "counts", Summary{Done: 1, Failed: 1, Left: 8}, sum)
	equal(t, "done", UnitStatus{Unit: b.unit("throughput/pp8/b/000"), Status: UnitDone}, b.statusOf("throughput/pp8/b/000"))
	equal(t, "failed", UnitStatus{Unit: b.unit("throughput/pp8/a/000"), Status: UnitFailed, Why: "failed (crash): exit status 1"}, b.statusOf("throughput/pp8/a/000"))
	equal(t, "left", UnitStatus{Unit: b.unit("throughput/pp8/b/001"), Status: UnitLeft, Runs: true, Why: "not run yet"}, b.statusOf("throughput/pp8/b/001"))
	b.o.RetryFailed = true
	if s := b.statusOf("throughput/pp8/a/000"); !s.Runs || s.Status != UnitFailed {
		t.Errorf("with retry: %+v", s)
	}
	if _, sum, err := Status(nil, b.plan, Options{}); err != nil || sum.Left != 10 {
		t.Errorf("of a run that has not begun: %+v, %v", sum, err)
	}
}

func TestAChangedCampaignSaysWhichFieldChangedAndRunsOnlyThat(t *testing.T) {
	b := newBench(t)
	b.mustRun()
	before := b.plan
	b.plan = testPlan()
	for i := range b.plan.Units {
		if u := &b.plan.Units[i]; u.Key.Stage == plan.Perplexity {
			u.Key.Chunks, u.Key.Threads = 4, 8
			u.ID = u.Key.ID()
		}
	}
	s := b.statusOf("perplexity/perplexity text c512/a/000")
	equal(t, "changes", []plan.Difference{{Field: "threads", Old: "2", New: "8"}, {Field: "chunks", Old: "0", New: "4"}}, s.Changes)
	equal(t, "why", `threads was "2" and is "8", chunks was "0" and is "4"`, s.Why)
	_, calls := b.mustRun()
	equal(t, "jobs", wholeRun[10:], calls)

	b.plan = before
	_, calls = b.mustRun()
	equal(t, "jobs after changing it back", nil, calls)
}

func TestTheNearestOldRecordExplains(t *testing.T) {
	b := newBench(t)
	b.mustRun()
	name := "perplexity/perplexity text c512/a/000"
	change := func(f func(*plan.Key)) {
		b.plan = testPlan()
		for i := range b.plan.Units {
			if b.plan.Units[i].Name == name {
				f(&b.plan.Units[i].Key)
				b.plan.Units[i].ID = b.plan.Units[i].Key.ID()
			}
		}
	}
	change(func(k *plan.Key) { k.Chunks, k.Threads = 4, 8 })
	b.mustRun()
	change(func(k *plan.Key) { k.Chunks, k.Threads = 4, 9 })
	equal(t, "changes", []plan.Difference{{Field: "threads", Old: "8", New: "9"}}, b.statusOf(name).Changes)

	// Two differ in one field alike: the newer one explains, whichever is read first.
	for _, threads := range []int{16, 17, 18, 19, 20, 21} {
		change(func(k *plan.Key) { k.Chunks, k.Threads = 4, threads })
		b.mustRun()
		change(func(k *plan.Key) { k.Chunks, k.Threads = 4, 9 })
		equal(t, "changes", []plan.Difference{{Field: "threads", Old: fmt.Sprint(threads), New: "9"}}, b.statusOf(name).Changes)
	}
}

func TestStatusExplainsDamagedRecordsAndRerunBlocks(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("throughput/pp8/a/001")
	write(t, filepath.Join(b.dir.Path(), "records", b.unit("throughput/pp8/a/000").ID+".json"), "{")
	if s := b.statusOf("throughput/pp8/a/000"); s.Status != UnitLeft || !strings.Contains(s.Why, "damaged") {
		t.Errorf("damaged record: %+v", s)
	}
	b.o.Environment = otherEnvironment()
	if s := b.statusOf("throughput/pp8/b/001"); s.Status != UnitLeft || !strings.Contains(s.Why, "environment "+testEnvironment().ID()) {
		t.Errorf("block of another environment: %+v", s)
	}
}

func TestARecordOfANewerSchemaIsNotRunOver(t *testing.T) {
	b := newBench(t)
	b.mustRun()
	path := filepath.Join(b.dir.Path(), "records", b.unit("throughput/pp8/a/000").ID+".json")
	newer := `{"schema":"attnbudget/record/2"}`
	write(t, path, newer)
	if _, calls, err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), "newer version") || calls != nil {
		t.Errorf("got %v after jobs %v", err, calls)
	}
	if b, _ := os.ReadFile(path); string(b) != newer {
		t.Errorf("the record was changed to %s", b)
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"throughput/pp8/a/000", "throughput/pp8/a/000", true},
		{"throughput/*/a/*", "throughput/pp8/a/000", true},
		{"throughput/*", "throughput/pp8/a/000", false},
		{"throughput/**", "throughput/pp8/a/000", true},
		{"**", "throughput/pp8/a/000", true},
		{"**/000", "throughput/pp8/a/000", true},
		{"**/a/**", "throughput/pp8/a/000", true},
		{"throughput/**/pp8/a/000", "throughput/pp8/a/000", true},
		{"**/b/**", "throughput/pp8/a/000", false},
		{"depth/tg? @ d1[0-9]/*/*", "depth/tg4 @ d16/a/000", true},
		{"", "throughput/pp8/a/000", false},
	} {
		got, err := Match(c.pattern, c.name)
		if err != nil || got != c.want {
			t.Errorf("Match(%q, %q) = %v, %v", c.pattern, c.name, got, err)
		}
	}
}
