package runner

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"attnbudget/results"
)

// interruptBefore runs the plan up to the job with the name and stops there, as a kill would.
func (b *bench) interruptBefore(name string) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	b.x.script[name] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		cancel()
		return hang(ctx, job, p)
	}
	if _, _, err := b.run(ctx); !errors.Is(err, ErrInterrupted) {
		b.t.Fatal(err)
	}
	delete(b.x.script, name)
}

func TestAnotherEnvironmentIsRefusedWithTheFieldsThatDiffer(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("throughput/pp8/b/000")
	b.o.Environment = otherEnvironment()
	_, calls, err := b.run(t.Context())
	var refused *EnvironmentError
	if !errors.As(err, &refused) || calls != nil {
		t.Fatalf("got %v after jobs %v, expected an EnvironmentError", err, calls)
	}
	var fields []string
	for _, d := range refused.Differences {
		fields = append(fields, d.Field)
	}
	equal(t, "fields", []string{"governor", "binary_sha256"}, fields)
	if !strings.Contains(err.Error(), `binary_sha256 was "b1" and is "b2"`) {
		t.Errorf("message: %v", err)
	}
	b.o.Environment = testEnvironment()
	_, calls = b.mustRun()
	equal(t, "jobs back in the first environment", wholeRun[1:], calls)
	b.o.Environment = otherEnvironment()
	if _, _, err := b.run(t.Context()); err != nil {
		t.Errorf("a finished run needs no refusal, got %v", err)
	}
}

func TestOtherKernelsAreRefusedUnlessTheCampaignAsksForThem(t *testing.T) {
	withKernels := func(b *bench, name, version string) {
		e := *testEnvironment()
		e.Kernels = name
		b.o.Environment = &e
		for i := range b.plan.Units {
			u := &b.plan.Units[i]
			u.Key.EngineVersion = version
			u.ID = u.Key.ID()
		}
	}
	const again = "everything is then run again"
	for name, c := range map[string]struct {
		campaign, version string
		want              []string // of the refusal; nil = none
	}{
		"the campaign leaves them to the command": {"", "2", []string{`kernels was "upstream" and is "avx2"`, "--kernels upstream goes on with it", again}},
		"the campaign asks for them":              {"auto", "2", nil},
		"another version of the engine":           {"", "3", nil},
	} {
		b := newBench(t)
		withKernels(b, "upstream", "2+upstream")
		b.interruptBefore("throughput/pp8/a/001")
		withKernels(b, "avx2", c.version)
		b.plan.Kernels = c.campaign
		_, calls, err := b.run(t.Context())
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			equal(t, name+": jobs", wholeRun, calls)
			continue
		}
		var refused *EnvironmentError
		if !errors.As(err, &refused) || calls != nil {
			t.Fatalf("%s: %v after jobs %v", name, err, calls)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, expected %q", name, err, want)
			}
		}
		withKernels(b, "upstream", "2+upstream")
		_, calls = b.mustRun()
		equal(t, name+": jobs with the first kernels", wholeRun[3:], calls)
	}

	b := newBench(t)
	withKernels(b, "avx512", "2")
	b.interruptBefore("throughput/pp8/a/001")
	withKernels(b, "avx2", "2")
	if _, _, err := b.run(t.Context()); err == nil || strings.Contains(err.Error(), again) || !strings.Contains(err.Error(), "--kernels avx512 goes on with it") || !strings.Contains(err.Error(), "half-finished blocks") {
		t.Errorf("kernels with the same results: %v", err)
	}
}

func TestFailuresWithOtherKernelsRefuseNothing(t *testing.T) {
	b := newBench(t)
	version := func(v string) {
		for i := range b.plan.Units {
			u := &b.plan.Units[i]
			u.Key.EngineVersion = v
			u.ID = u.Key.ID()
		}
	}
	version("2+upstream")
	b.x.script["throughput/pp8/a/000"] = fails(results.Failure{Kind: results.Crash, Message: "exit status 1"})
	b.interruptBefore("throughput/pp8/b/000")
	version("2")
	b.o.Environment = otherEnvironment()
	b.x.script = nil
	if _, calls := b.mustRun(); len(calls) != len(wholeRun) {
		t.Errorf("jobs %v", calls)
	}
}

func TestABlockOfWhichNothingIsChosenToRunStaysAsItIs(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("throughput/pp8/b/000")
	b.o.Environment, b.o.AllowEnvironmentChange = otherEnvironment(), true
	b.o.Only = []string{"throughput/pp8/a/000"}
	_, calls := b.mustRun()
	equal(t, "jobs", nil, calls)
	equal(t, "the record", testEnvironment().ID(), b.record("throughput/pp8/a/000").Environment)
}

func TestAHalfFinishedBlockIsRunAgainInTheNewEnvironment(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("throughput/pp8/a/001") // the second unit of the second block
	b.o.Environment, b.o.AllowEnvironmentChange = otherEnvironment(), true
	_, calls := b.mustRun()
	equal(t, "jobs", wholeRun[2:], calls)
	equal(t, "superseded", []string{b.unit("throughput/pp8/b/001").ID + ".1.json"}, b.files("superseded"))
	equal(t, "journal", []string{"superseded throughput/pp8/b/001"}, b.journal(results.EventSuperseded))
	blocks := map[blockOf][]string{}
	for r, err := range b.dir.Records() {
		if err != nil {
			t.Fatal(err)
		}
		blocks[block(&r.Unit)] = append(blocks[block(&r.Unit)], r.Environment)
	}
	for name, environments := range blocks {
		if len(slices.Compact(environments)) != 1 {
			t.Errorf("block %v is from environments %v", name, environments)
		}
	}
	equal(t, "first block", testEnvironment().ID(), b.record("throughput/pp8/a/000").Environment)
	equal(t, "second block", otherEnvironment().ID(), b.record("throughput/pp8/b/001").Environment)

	b.o.AllowEnvironmentChange = false
	if _, calls, err := b.run(t.Context()); err != nil || calls != nil {
		t.Errorf("the change was made; the next run gives %v after jobs %v", err, calls)
	}
}

func TestARerunOfABlockThatIsKilledGoesOnAsABlock(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("throughput/pp8/a/001")
	b.o.Environment, b.o.AllowEnvironmentChange = otherEnvironment(), true
	b.interruptBefore("throughput/pp8/b/001")
	_, calls := b.mustRun()
	equal(t, "jobs", wholeRun[2:], calls)
	if sum, calls := b.mustRun(); calls != nil || sum.Done != 10 {
		t.Errorf("afterwards: jobs %v, %+v", calls, sum)
	}
}

func TestInTheSameEnvironmentOnlyMissingUnitsOfABlockRun(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("throughput/pp8/a/001")
	_, calls := b.mustRun()
	equal(t, "jobs", wholeRun[3:], calls)
	if first, second := b.record("throughput/pp8/b/001").Session, b.record("throughput/pp8/a/001").Session; first == second {
		t.Errorf("both records say session %s", first)
	}
}

func TestAHalfFinishedBlockOfAnEvaluationIsRunAgainAsAWhole(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("perplexity/perplexity text c512/b/000")
	b.o.Environment, b.o.AllowEnvironmentChange = otherEnvironment(), true
	_, calls := b.mustRun()
	equal(t, "jobs", wholeRun[len(wholeRun)-2:], calls)
}

func TestARestrictedRunMovesNoRecordThatItDoesNotReplace(t *testing.T) {
	b := newBench(t)
	b.interruptBefore("throughput/pp8/a/001")
	b.o.Environment, b.o.AllowEnvironmentChange = otherEnvironment(), true
	b.o.Only = []string{"throughput/pp8/a/001"}
	_, calls := b.mustRun()
	equal(t, "jobs", wholeRun[3:4], calls)
	equal(t, "superseded", nil, b.files("superseded"))
	b.o.Only = nil
	_, calls = b.mustRun()
	equal(t, "jobs of an unrestricted run", append([]string{"throughput/pp8/b/001"}, wholeRun[4:]...), calls)
}

func TestThisMachineIsDescribed(t *testing.T) {
	e, err := Machine("7", "generic")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Machine("7", "generic")
	if err != nil {
		t.Fatal(err)
	}
	if diff := again.Diff(e); diff != nil {
		t.Errorf("two descriptions differ: %v", diff)
	}
	if e.EngineVersion != "7" || e.Kernels != "generic" || e.Arch != runtime.GOARCH || e.GoVersion != runtime.Version() || len(e.BinarySHA256) != 64 || e.Usable < 1 || e.Threads < 1 {
		t.Errorf("%+v", e)
	}
	if runtime.GOOS == "linux" && (e.Kernel == "" || e.MemoryGiB == 0 || !strings.HasPrefix(e.OS, "linux")) {
		t.Errorf("%+v", e)
	}
	if l := MachineLoad(); runtime.GOOS == "linux" && l.AvailableMiB == 0 {
		t.Errorf("load %+v", l)
	}
}
