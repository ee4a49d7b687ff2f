package runner

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"attnbudget/plan"
	"attnbudget/results"

	"github.com/shirou/gopsutil/v4/disk"
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

// breaksOff begins to make the state and ends as the behaviour says.
func breaksOff(t *testing.T, end behaviour) behaviour {
	return func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		write(t, job.State+".part", "half of it")
		write(t, job.State+".part.jsonl", "a line")
		return end(ctx, job, p)
	}
}

var unfinished = []string{"logits.state.part", "logits.state.part.jsonl"}

func TestAnUnfinishedStateStaysForWhoeverGoesOnWithIt(t *testing.T) {
	b := newLogitsBench(t)
	ctx, abort := context.WithCancel(t.Context())
	b.x.script["state "+logitsOfA] = breaksOff(t, func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		abort()
		return hang(ctx, job, p)
	})
	if _, _, err := b.run(ctx); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	equal(t, "files after the abort", unfinished, b.files("work/states"))
	b.x.script["state "+logitsOfA] = breaksOff(t, fails(results.Failure{Kind: results.Timeout, Message: "too long"}))
	b.mustRun()
	equal(t, "files after the failure", unfinished, b.files("work/states"))
	b.mustRun()
	equal(t, "files after a run that tries nothing again", unfinished, b.files("work/states"))
	b.o.RetryFailed = true
	b.x.script["state "+logitsOfA] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		equal(t, "files of the retry", unfinished, b.files("work/states"))
		return b.x.succeed(ctx, job, p)
	}
	sum, _ := b.mustRun()
	equal(t, "units done", 2, sum.Done)
	equal(t, "files at the end", nil, b.files("work/states"))
}

func TestAnUnfinishedStateThatNoUnitWantsIsRemoved(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"the plan has another state": func(b *bench) {
			b.plan.States[0].ID = "other"
			for i := range b.plan.Units {
				b.plan.Units[i].State = "other"
			}
		},
		"the state is finished": func(b *bench) {
			write(t, b.dir.StatePath("logits"), "state of b")
			journal, err := b.dir.OpenJournal()
			if err == nil {
				err = errors.Join(journal.Append(results.Event{Kind: results.EventStateReady, State: "logits", Environment: b.o.Environment.ID(), Bytes: 10}), journal.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		b := newLogitsBench(t)
		for _, file := range unfinished {
			write(t, b.dir.StatePath("logits")+strings.TrimPrefix(file, "logits.state"), "x")
		}
		change(b)
		b.x.script[logitsOfA] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
			equal(t, name+": files", []string{job.Unit.State + ".state"}, b.files("work/states"))
			return b.x.succeed(ctx, job, p)
		}
		b.mustRun()
		equal(t, name+": files at the end", nil, b.files("work/states"))
	}
}

func TestAStateThatLaterSessionsWantStaysBesideThoseOfThisOne(t *testing.T) {
	p := &plan.Plan{States: []plan.State{{ID: "a", Bytes: 100}, {ID: "b", Bytes: 10}, {ID: "c", Bytes: 1}}}
	var decisions []decision
	for _, d := range []struct {
		state        string
		left, chosen bool
	}{{"a", true, true}, {"b", true, true}, {"", true, true}, {"a", true, false}, {"c", true, false}, {"b", false, true}} {
		decisions = append(decisions, decision{unit: &plan.Unit{State: d.state}, left: d.left, chosen: d.chosen})
	}
	if got := p.StateBytes(unitsWithStates(decisions)); got != 110 {
		t.Errorf("%d bytes, want those of a and b at once", got)
	}
}

func TestWhatThereIsOfAStateCountsAsRoomForItAlone(t *testing.T) {
	b := newLogitsBench(t)
	usage, err := disk.Usage(b.dir.Path())
	if err != nil {
		t.Skip(err)
	}
	const more = 1 << 40
	b.plan.States[0].Bytes = int64(usage.Free) + more
	begin := func(path string) {
		write(t, path, "")
		if err := os.Truncate(path, 2*more); err != nil {
			t.Skip(err)
		}
	}
	refused := func(what string) {
		t.Helper()
		var full *DiskError
		if _, _, err := b.run(t.Context()); !errors.As(err, &full) {
			t.Errorf("%s: %v, expected a refusal", what, err)
		}
	}
	refused("nothing is there")

	kept := plan.Unit{Name: "kept/kept/a/000", ID: "kept", Arm: "a", Condition: "kl-divergence text c4", State: "kept", Key: plan.Key{Stage: plan.KLDivergence}}
	b.plan.States = append(b.plan.States, plan.State{ID: "kept", Arm: "a"})
	b.plan.Units = append(b.plan.Units, kept)
	b.o.Only = []string{"kl-divergence/**"}
	begin(b.dir.StatePath("kept") + ".part")
	refused("a state of units that do not run is there")

	begin(b.dir.StatePath("logits") + ".part")
	b.mustRun()
	equal(t, "files at the end", []string{"kept.state.part"}, b.files("work/states"))
}

func TestAStateOfAnArmOfAnotherModelIsRefused(t *testing.T) {
	b := newLogitsBench(t)
	b.plan.Models = append(b.plan.Models, plan.Model{Name: "other"})
	b.plan.Arms[1].Model = "other"
	if _, calls, err := b.run(t.Context()); err == nil || calls != nil {
		t.Errorf("%v after jobs %v", err, calls)
	}
}
