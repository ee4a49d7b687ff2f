package runner

import (
	"context"
	"errors"
	"math"
	"os"
	"testing"

	"attnbudget/plan"
	"attnbudget/results"
)

// newLogitsBench plans a divergence of two arms from the second, which therefore makes the logits for both.
func newLogitsBench(t *testing.T) *bench {
	b := newBench(t)
	c := plan.Condition{Name: "kl-divergence text c4", Stage: plan.KLDivergence, Repetitions: 1, Context: 4}
	b.plan.Conditions, b.plan.Units = []plan.Condition{c}, nil
	b.plan.States = []plan.State{{ID: "logits", Arm: "b", Bytes: 100, Key: plan.StateKey{Kind: plan.StateLogits, Context: 4}}}
	for i, a := range b.plan.Arms {
		u := testUnit(a, c, 0, i)
		u.State = "logits"
		b.plan.Units = append(b.plan.Units, u)
	}
	return b
}

const (
	logitsOfA = "kl-divergence/kl-divergence text c4/a/000"
	logitsOfB = "kl-divergence/kl-divergence text c4/b/000"
)

func TestLogitsAreMadeOnceByTheirArmForAllArms(t *testing.T) {
	b := newLogitsBench(t)
	for _, name := range []string{logitsOfA, logitsOfB} {
		b.x.script[name] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
			content, err := os.ReadFile(job.State)
			if err != nil || string(content) != "state of b" {
				t.Errorf("%s: %q, %v", job.Unit.Name, content, err)
			}
			equal(t, "checkpoint", b.dir.CheckpointPath(job.Unit.ID), job.Checkpoint)
			return b.x.succeed(ctx, job, p)
		}
	}
	if _, err := Run(t.Context(), b.plan, b.dir, b.o, b.x, b.r); err != nil {
		t.Fatal(err)
	}
	equal(t, "jobs", []string{"prepare a", "prepare b", "state " + logitsOfA, logitsOfA, logitsOfB}, b.x.calls)
	equal(t, "logits left", nil, b.files("work/states"))
	equal(t, "journal", []string{"state_start logits", "state_ready logits", "state_removed logits"},
		b.journal(results.EventStateStart, results.EventStateReady, results.EventStateRemoved))
}

func TestLogitsSurviveAStopAndAreMadeAgainWhenTheyAreDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(b *bench)
		want  []string
	}{
		"whole":     {func(*bench) {}, []string{logitsOfB}},
		"cut short": {func(b *bench) { write(t, b.dir.StatePath("logits"), "state") }, []string{"state " + logitsOfB, logitsOfB}},
	} {
		b := newLogitsBench(t)
		b.interruptBefore(logitsOfB)
		equal(t, name+": logits after the stop", []string{"logits.state"}, b.files("work/states"))
		c.spoil(b)
		_, calls := b.mustRun()
		equal(t, name+": jobs", c.want, calls)
		equal(t, name+": logits after the resume", nil, b.files("work/states"))
	}
}

func TestAnArmThatCannotMakeTheLogitsFailsAllUnitsThatNeedThem(t *testing.T) {
	b := newLogitsBench(t)
	b.x.script["prepare b"] = fails(results.Failure{Kind: results.Crash, Message: "no such format"})
	sum, calls := b.mustRun()
	equal(t, "jobs", []string{}, calls)
	equal(t, "failed", 2, sum.Failed)
	equal(t, "failure", "no such format", b.record(logitsOfA).Failure.Message)
}

func TestStatesThatDoNotFitOnTheDiskAreRefusedBeforeAnythingRuns(t *testing.T) {
	b := newLogitsBench(t)
	b.plan.States[0].Bytes = math.MaxInt64
	sum, calls, err := b.run(t.Context())
	var full *DiskError
	if !errors.As(err, &full) || full.Need != math.MaxInt64 || full.Free <= 0 || full.Path != b.dir.Path() || calls != nil || sum.Left != 2 {
		t.Errorf("%v after jobs %v: %+v", err, calls, sum)
	}
	if _, err := os.Stat(b.dir.Path() + "/journal.jsonl"); err == nil {
		t.Error("a session was begun")
	}
	b.o.Only = []string{"nothing to load/**"}
	b.plan.Units = append(b.plan.Units, plan.Unit{Name: "nothing to load/a", ID: "x", Arm: "a", Condition: "kl-divergence text c4", Key: plan.Key{Stage: plan.Perplexity}})
	if _, calls, err := b.run(t.Context()); err != nil || len(calls) != 1 {
		t.Errorf("a unit without a state: %v after jobs %v", err, calls)
	}
}

func TestAStateOfAnArmOfAnotherModelIsRefused(t *testing.T) {
	b := newLogitsBench(t)
	b.plan.Models = append(b.plan.Models, plan.Model{Name: "other"})
	b.plan.Arms[1].Model = "other"
	if _, calls, err := b.run(t.Context()); err == nil || calls != nil {
		t.Errorf("%v after jobs %v", err, calls)
	}
}
