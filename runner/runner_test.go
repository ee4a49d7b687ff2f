package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/plan"
	"attnbudget/results"
)

// wholeRun is every job of testPlan in order.
var wholeRun = []string{
	"throughput/pp8/a/000", "throughput/pp8/b/000", "throughput/pp8/b/001", "throughput/pp8/a/001",
	"state depth/tg4 @ d16/a/000", "depth/tg4 @ d16/a/000", "state depth/tg4 @ d16/b/000", "depth/tg4 @ d16/b/000",
	"depth/tg4 @ d16/b/001", "depth/tg4 @ d16/a/001",
	"perplexity/perplexity text c512/a/000", "perplexity/perplexity text c512/b/000",
}

func TestUnitsRunInPlanOrderAndOnlyOnce(t *testing.T) {
	b := newBench(t)
	sum, calls := b.mustRun()
	equal(t, "jobs", wholeRun, calls)
	equal(t, "summary", Summary{Session: sum.Session, Done: 10, Ran: 10}, sum)

	r := b.record("depth/tg4 @ d16/b/001")
	equal(t, "record's unit", b.unit("depth/tg4 @ d16/b/001"), r.Unit)
	equal(t, "outcome", results.OK, r.Outcome)
	equal(t, "output", validOutput(r.Unit.Key), r.Stdout)
	equal(t, "arm", b.plan.Arms[1], r.Arm)
	equal(t, "environment", testEnvironment().ID(), r.Environment)
	equal(t, "model", "f0", r.ModelSHA256)
	equal(t, "states left behind", nil, b.files("work/states"))

	again, calls := b.mustRun()
	equal(t, "jobs of a finished run", nil, calls)
	equal(t, "summary of a finished run", Summary{Session: again.Session, Done: 10}, again)
}

func TestARunGoesOnWithTheFirstUnitThatHasNoValidRecord(t *testing.T) {
	b := newBench(t)
	b.mustRun()
	damaged := filepath.Join(b.dir.Path(), "records", b.unit("throughput/pp8/b/001").ID+".json")
	if err := os.Truncate(damaged, 40); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(b.dir.Path(), "records", b.unit("perplexity/perplexity text c512/a/000").ID+".json")); err != nil {
		t.Fatal(err)
	}
	sum, calls := b.mustRun()
	equal(t, "jobs", []string{"throughput/pp8/b/001", "perplexity/perplexity text c512/a/000"}, calls)
	equal(t, "done", 10, sum.Done)
	equal(t, "the damaged record is kept", []string{b.unit("throughput/pp8/b/001").ID + ".1.json"}, b.files("superseded"))
}

func TestFailedUnitsAreRecordedAndTheRestGoesOn(t *testing.T) {
	b := newBench(t)
	for name, behave := range map[string]behaviour{
		"throughput/pp8/a/000":                  fails(results.Failure{Kind: results.Crash, Message: "exit status 1", ExitCode: 1}),
		"throughput/pp8/b/000":                  fails(results.Failure{Kind: results.OutOfMemory, Message: "killed", ExitCode: -1, Signal: "killed"}),
		"throughput/pp8/b/001":                  prints("Segmentation fault (core dumped)\n"),
		"throughput/pp8/a/001":                  prints(strings.Replace(validOutput(plan.Key{Stage: plan.Throughput, Prompt: 8}), `"avg_ts": 8.000000`, `"avg_ts": nan`, 1)),
		"perplexity/perplexity text c512/a/000": prints(strings.Replace(validOutput(plan.Key{Stage: plan.Perplexity}), "20.0855 +/-", "nan +/-", 1)),
		"perplexity/perplexity text c512/b/000": prints(""),
	} {
		b.x.script[name] = behave
	}
	sum, calls := b.mustRun()
	equal(t, "jobs", wholeRun, calls)
	equal(t, "summary", Summary{Session: sum.Session, Done: 4, Failed: 6, Ran: 10}, sum)
	for name, kind := range map[string]string{
		"throughput/pp8/a/000": results.Crash, "throughput/pp8/b/000": results.OutOfMemory, "throughput/pp8/b/001": results.Unparsable,
		"throughput/pp8/a/001": results.NaN, "perplexity/perplexity text c512/a/000": results.NaN, "perplexity/perplexity text c512/b/000": results.Unparsable,
	} {
		r := b.record(name)
		if r.Outcome != results.Failed || r.Failure.Kind != kind {
			t.Errorf("%s: outcome %s, failure %+v, expected kind %s", name, r.Outcome, r.Failure, kind)
		}
	}
	r := b.record("throughput/pp8/b/000")
	equal(t, "stdout of a failure", "before the end", string(r.Stdout))
	equal(t, "stderr of a failure", "fatal error\n", string(r.Stderr))
	equal(t, "signal", "killed", r.Failure.Signal)

	_, calls = b.mustRun()
	equal(t, "jobs of the next run", nil, calls)
}

func TestRetryRunsFailedUnitsAgainAndKeepsTheOldRecord(t *testing.T) {
	b := newBench(t)
	b.x.script["throughput/pp8/b/000"] = fails(results.Failure{Kind: results.Crash, Message: "exit status 1"})
	b.mustRun()
	b.x.script = nil
	b.o.RetryFailed = true
	sum, calls := b.mustRun()
	equal(t, "jobs", []string{"throughput/pp8/b/000"}, calls)
	equal(t, "summary", Summary{Session: sum.Session, Done: 10, Ran: 1}, sum)
	equal(t, "kept", []string{b.unit("throughput/pp8/b/000").ID + ".1.json"}, b.files("failed"))
}

func TestOnlyRunsWhatMatches(t *testing.T) {
	b := newBench(t)
	b.o.Only = []string{"throughput/**/a/*", "perplexity/**"}
	sum, calls := b.mustRun()
	equal(t, "jobs", []string{"throughput/pp8/a/000", "throughput/pp8/a/001", "perplexity/perplexity text c512/a/000", "perplexity/perplexity text c512/b/000"}, calls)
	equal(t, "summary", Summary{Session: sum.Session, Done: 4, Left: 6, Ran: 4}, sum)

	for _, bad := range []string{"nothing/**", "throughput/[/a"} {
		b.o.Only = []string{bad}
		if _, _, err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("pattern %q: got %v, expected an error that names it", bad, err)
		}
	}
}

func TestADryRunWritesNothing(t *testing.T) {
	b := newBench(t)
	b.o.DryRun, b.o.Environment = true, nil
	sum, calls := b.mustRun()
	equal(t, "jobs", nil, calls)
	equal(t, "summary", Summary{Left: 10}, sum)
	equal(t, "reported", 10, len(b.r.events))
	for _, name := range []string{"plan.json", "journal.jsonl", "lock"} {
		if _, err := os.Stat(filepath.Join(b.dir.Path(), name)); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if sum, err := Run(t.Context(), b.plan, nil, b.o, b.x, b.r); err != nil || sum.Left != 10 {
		t.Errorf("without a directory: %+v, %v", sum, err)
	}
}

func TestALockedDirectoryIsRefused(t *testing.T) {
	b := newBench(t)
	lock, err := b.dir.Lock("someone else")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	var locked *results.LockedError
	if _, calls, err := b.run(t.Context()); !errors.As(err, &locked) || calls != nil {
		t.Errorf("got %v after jobs %v, expected a LockedError", err, calls)
	}
}

func TestThePlanAndTheEnvironmentAreStored(t *testing.T) {
	b := newBench(t)
	b.mustRun()
	p, err := b.dir.Plan()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "plan", b.plan, p)
	environments, err := b.dir.Environments()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "environments", map[string]results.Environment{testEnvironment().ID(): *testEnvironment()}, environments)
}

func TestAPlanWithABrokenReferenceIsRefused(t *testing.T) {
	b := newBench(t)
	b.plan.Arms = b.plan.Arms[:1]
	if _, calls, err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), `arm "b"`) || calls != nil {
		t.Errorf("got %v after jobs %v", err, calls)
	}
}

func TestAnExecutorThatCannotWorkEndsTheRun(t *testing.T) {
	b := newBench(t)
	broken := errors.New("cannot start processes")
	b.x.script["throughput/pp8/b/000"] = func(context.Context, Job, func(Progress)) (Output, error) { return Output{}, broken }
	sum, calls, err := b.run(t.Context())
	if !errors.Is(err, broken) || errors.Is(err, ErrInterrupted) {
		t.Errorf("got %v", err)
	}
	equal(t, "jobs", wholeRun[:2], calls)
	equal(t, "stopped", StoppedFailed, sum.Stopped)
	b.x.script = nil
	if sum, _ := b.mustRun(); sum.Done != 10 {
		t.Errorf("afterwards: %+v", sum)
	}
}

func TestEveryArmIsPreparedOncePerSession(t *testing.T) {
	b := newBench(t)
	if _, err := Run(t.Context(), b.plan, b.dir, b.o, b.x, b.r); err != nil {
		t.Fatal(err)
	}
	equal(t, "jobs", []string{"prepare a", "throughput/pp8/a/000", "prepare b", "throughput/pp8/b/000"}, b.x.calls[:4])
	equal(t, "journal", []string{"arm_ready a", "arm_ready b"}, b.journal(results.EventArmReady))
}

func TestAnArmThatCannotRunFailsItsUnits(t *testing.T) {
	b := newBench(t)
	b.x.script["prepare a"] = fails(results.Failure{Kind: results.Crash, Message: "no such format"})
	sum, calls := b.mustRun()
	equal(t, "jobs", []string{
		"throughput/pp8/b/000", "throughput/pp8/b/001", "state depth/tg4 @ d16/b/000", "depth/tg4 @ d16/b/000", "depth/tg4 @ d16/b/001",
		"perplexity/perplexity text c512/b/000"}, calls)
	equal(t, "summary", Summary{Session: sum.Session, Done: 5, Failed: 5, Ran: 10}, sum)
	equal(t, "failure", &results.Failure{Kind: results.Crash, Message: "no such format"}, b.record("depth/tg4 @ d16/a/001").Failure)
	equal(t, "found out once", []string{"arm_failed a"}, b.journal(results.EventArmFailed))
}
