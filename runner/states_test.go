package runner

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"attnbudget/plan"
	"attnbudget/results"
)

func TestAStateIsMadeOnceAndRemovedWithItsLastUnit(t *testing.T) {
	b := newBench(t)
	alive := map[string][]string{}
	for _, name := range []string{"depth/tg4 @ d16/a/000", "depth/tg4 @ d16/b/001", "depth/tg4 @ d16/a/001", "perplexity/perplexity text c512/a/000"} {
		b.x.script[name] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
			alive[name] = b.files("work/states")
			if job.State != "" {
				content, err := os.ReadFile(job.State)
				if err != nil || string(content) != "state of "+job.Arm.Name {
					t.Errorf("%s: state %q, %v", name, content, err)
				}
				equal(t, "trace of the state", "seed 1 depth 16", job.DepthTrace)
			}
			return b.x.succeed(ctx, job, p)
		}
	}
	b.mustRun()
	equal(t, "states alive", map[string][]string{
		"depth/tg4 @ d16/a/000":                 {"state-a.state"},
		"depth/tg4 @ d16/b/001":                 {"state-a.state", "state-b.state"},
		"depth/tg4 @ d16/a/001":                 {"state-a.state"},
		"perplexity/perplexity text c512/a/000": nil,
	}, alive)
	equal(t, "journal", []string{"state_start state-a", "state_ready state-a", "state_start state-b", "state_ready state-b", "state_removed state-b", "state_removed state-a"},
		b.journal(results.EventStateStart, results.EventStateReady, results.EventStateRemoved))
}

func TestStatesSurviveAStopAndAreRemovedAfterTheResume(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("depth/tg4 @ d16/b/001")
	equal(t, "states after the stop", []string{"state-a.state", "state-b.state"}, b.files("work/states"))
	_, calls := b.mustRun()
	equal(t, "jobs", wholeRun[8:], calls)
	equal(t, "states after the resume", nil, b.files("work/states"))
}

func TestStaleStatesAreRemovedAndMadeAgain(t *testing.T) {
	for name, spoil := range map[string]func(b *bench){
		"of another size": func(b *bench) { write(b.t, b.dir.StatePath("state-a"), "short") },
		"of another environment": func(b *bench) {
			b.o.Environment, b.o.AllowEnvironmentChange = otherEnvironment(), true
			write(b.t, b.dir.StatePath("state-b"), "half written")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.interruptBefore("state depth/tg4 @ d16/b/000")
			write(t, b.dir.StatePath("unknown"), "x")
			write(t, b.dir.CheckpointPath("unknown"), "x")
			spoil(b)
			_, calls := b.mustRun()
			equal(t, "notes", []string{"what was finished of unit unknown is dropped: the plan, its kernels included, has changed and has no such unit"}, b.notes())
			if first := calls[0]; !strings.HasPrefix(first, "state ") {
				t.Errorf("first job is %s, expected the state again", first)
			}
			equal(t, "states left", nil, b.files("work/states"))
			equal(t, "checkpoints left", nil, b.files("work/checkpoints"))
		})
	}
}

func TestAStateThatNoUnitNeedsAnyMoreIsRemoved(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("depth/tg4 @ d16/b/001")
	b.plan.Units = slices.DeleteFunc(b.plan.Units, func(u plan.Unit) bool { return u.Arm == "a" && u.State != "" })
	b.o.Only = []string{"perplexity/**"}
	b.mustRun()
	equal(t, "states left", []string{"state-b.state"}, b.files("work/states"))
}

func TestAStateThatWasBegunAgainIsNotTakenForTheOneBefore(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("depth/tg4 @ d16/b/001")
	journal, err := b.dir.OpenJournal()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(journal.Append(results.Event{Kind: results.EventStateStart, State: "state-a"}), journal.Close()); err != nil {
		t.Fatal(err)
	}
	_, calls := b.mustRun()
	equal(t, "jobs", []string{"depth/tg4 @ d16/b/001", "state depth/tg4 @ d16/a/001", "depth/tg4 @ d16/a/001"}, calls[:3])
}

func TestAStateThatCannotBeMadeFailsItsUnitsOnce(t *testing.T) {
	b := newBench(t)
	b.x.script["state depth/tg4 @ d16/a/000"] = fails(results.Failure{Kind: results.OutOfMemory, Message: "no memory"})
	sum, calls := b.mustRun()
	want := []string{
		"throughput/pp8/a/000", "throughput/pp8/b/000", "throughput/pp8/b/001", "throughput/pp8/a/001",
		"state depth/tg4 @ d16/a/000", "state depth/tg4 @ d16/b/000", "depth/tg4 @ d16/b/000", "depth/tg4 @ d16/b/001",
		"perplexity/perplexity text c512/a/000", "perplexity/perplexity text c512/b/000",
	}
	equal(t, "jobs", want, calls)
	equal(t, "failed", 2, sum.Failed)
	r := b.record("depth/tg4 @ d16/a/001")
	equal(t, "failure", &results.Failure{Kind: results.OutOfMemory, Message: "prefilled cache state-a of a: no memory"}, r.Failure)
	equal(t, "stderr", "fatal error\n", string(r.Stderr))
	equal(t, "states left", nil, b.files("work/states"))
}

func TestCheckpointsAreKeptForARetryAndDroppedWithTheRecord(t *testing.T) {
	b := newBench(t)
	name := "perplexity/perplexity text c512/a/000"
	checkpoint := b.dir.CheckpointPath(b.unit(name).ID)
	crash := func(kind string) behaviour {
		return func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
			equal(t, "path", checkpoint, job.Checkpoint)
			write(t, job.Checkpoint, "one chunk\n")
			return fails(results.Failure{Kind: kind, Message: "it ended"})(ctx, job, p)
		}
	}
	b.o.RetryFailed = true
	for _, step := range []struct {
		kind string
		left []string
	}{
		{results.Crash, []string{b.unit(name).ID + ".jsonl"}},
		{results.NaN, nil},
		{results.Timeout, []string{b.unit(name).ID + ".jsonl"}},
	} {
		b.x.script[name] = crash(step.kind)
		b.mustRun()
		equal(t, "checkpoints after "+step.kind, step.left, b.files("work/checkpoints"))
	}
	b.o.RetryFailed = false
	b.mustRun()
	equal(t, "checkpoints after a session that does not retry", []string{b.unit(name).ID + ".jsonl"}, b.files("work/checkpoints"))
	b.o.RetryFailed = true
	delete(b.x.script, name)
	b.mustRun()
	equal(t, "checkpoints after the record", nil, b.files("work/checkpoints"))
}

func TestANoteOfAJobIsTold(t *testing.T) {
	b := newBench(t)
	name := "perplexity/perplexity text c512/a/000"
	b.x.script[name] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		p(Progress{Note: "3 finished items are not used"})
		return b.x.succeed(ctx, job, p)
	}
	b.mustRun()
	equal(t, "notes", []string{name + ": 3 finished items are not used"}, b.notes())
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
