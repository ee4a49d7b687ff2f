package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"attnbudget/plan"
	"attnbudget/results"
)

func TestTheFirstStopFinishesTheUnit(t *testing.T) {
	b := newBench(t)
	stop := make(chan struct{})
	b.o.Stop = stop
	b.x.script["throughput/pp8/b/000"] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		close(stop)
		return b.x.succeed(ctx, job, p)
	}
	sum, calls, err := b.run(t.Context())
	if !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %v", err)
	}
	equal(t, "jobs", wholeRun[:2], calls)
	equal(t, "summary", Summary{Session: sum.Session, Done: 2, Left: 8, Ran: 2, Stopped: StoppedAsked}, sum)
	b.o.Stop, b.x.script = nil, nil
	_, calls = b.mustRun()
	equal(t, "jobs of the next run", wholeRun[2:], calls)
}

func TestTheSecondStopGivesTheUnitUp(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.x.script["throughput/pp8/b/000"] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		cancel()
		return hang(ctx, job, p)
	}
	sum, calls, err := b.run(ctx)
	if !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %v", err)
	}
	equal(t, "jobs", wholeRun[:2], calls)
	equal(t, "summary", Summary{Session: sum.Session, Done: 1, Left: 9, Ran: 1, Stopped: StoppedAbort}, sum)
	equal(t, "journal", []string{"unit_abort throughput/pp8/b/000", "stop", "session_end"},
		b.journal(results.EventUnitAbort, results.EventStop, results.EventSessionEnd))
	b.x.script = nil
	_, calls = b.mustRun()
	equal(t, "jobs of the next run", wholeRun[1:], calls)
}

func TestAStateThatIsGivenUpIsMadeAgain(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.x.script["state depth/tg4 @ d16/a/000"] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		if err := os.WriteFile(job.State, []byte("half"), 0o644); err != nil {
			t.Error(err)
		}
		cancel()
		return hang(ctx, job, p)
	}
	if _, _, err := b.run(ctx); !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %v", err)
	}
	b.x.script = nil
	_, calls := b.mustRun()
	equal(t, "jobs of the next run", wholeRun[4:], calls)
}

func TestAUnitThatRunsTooLongFailsWithWhatItPrinted(t *testing.T) {
	b := newBench(t)
	b.plan.Timeout = time.Minute
	b.x.script["throughput/pp8/b/000"] = hang
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		sum, calls, err := b.run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "jobs", wholeRun, calls)
		equal(t, "failed", 1, sum.Failed)
		equal(t, "time", time.Minute, time.Since(start))
	})
	r := b.record("throughput/pp8/b/000")
	equal(t, "failure", &results.Failure{Kind: results.Timeout, Message: "it ran longer than 1m0s"}, r.Failure)
	equal(t, "stdout", "half of", string(r.Stdout))
	equal(t, "stderr", "still computing\n", string(r.Stderr))
}

func TestTheTimeoutOfTheCommandGoesBeforeTheCampaigns(t *testing.T) {
	b := newBench(t)
	b.plan.Timeout, b.o.Timeout = time.Minute, time.Hour
	b.x.script["throughput/pp8/b/000"] = hang
	synctest.Test(t, func(t *testing.T) {
		if _, _, err := b.run(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
	equal(t, "failure", &results.Failure{Kind: results.Timeout, Message: "it ran longer than 1h0m0s"}, b.record("throughput/pp8/b/000").Failure)
}

func TestUntilStopsBeforeABlockThatWouldNotEndInTime(t *testing.T) {
	b := newBench(t)
	b.x.took = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		// A first run measures the first block: 20 s.
		b.o.Only = []string{"throughput/pp8/*/000"}
		if _, _, err := b.run(context.Background()); err != nil {
			t.Fatal(err)
		}
		b.o.Only = nil

		b.o.Until = time.Now().Add(19 * time.Second)
		sum, calls, err := b.run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "jobs with 19 s", nil, calls)
		equal(t, "stopped", StoppedUntil, sum.Stopped)

		// The second block fits into 21 s; the first of the depth stage, which nothing is known of, begins as there is time.
		b.o.Until = time.Now().Add(21 * time.Second)
		sum, calls, err = b.run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "jobs with 21 s", wholeRun[2:8], calls)
		equal(t, "summary", Summary{Session: sum.Session, Done: 6, Left: 4, Ran: 4, Stopped: StoppedUntil}, sum)

		// The states are there already: the next block takes 20 s, not 40 s.
		b.o.Until = time.Now().Add(20 * time.Second)
		_, calls, err = b.run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "jobs with 20 s", wholeRun[8:10], calls)
	})
}

func TestUntilCountsTheTimeToMakeStatesAgain(t *testing.T) {
	b := newBench(t)
	b.x.took = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		b.o.Only = []string{"depth/*/*/000"}
		if _, _, err := b.run(context.Background()); err != nil {
			t.Fatal(err)
		}
		write(t, b.dir.StatePath("state-a"), "damaged")
		write(t, b.dir.StatePath("state-b"), "damaged")

		// Two units and their states take 40 s.
		b.o.Only = []string{"depth/*/*/001"}
		for i, want := range [][]string{nil, {"state depth/tg4 @ d16/b/001", "depth/tg4 @ d16/b/001", "state depth/tg4 @ d16/a/001", "depth/tg4 @ d16/a/001"}} {
			b.o.Until = time.Now().Add(time.Duration(39+i) * time.Second)
			_, calls, err := b.run(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			equal(t, fmt.Sprintf("jobs with %d s", 39+i), want, calls)
		}
	})
}

func TestThePlansOwnDeadlineCounts(t *testing.T) {
	b := newBench(t)
	b.plan.Until = "2001-01-01T00:00:00Z"
	sum, calls := b.mustRun()
	equal(t, "jobs", nil, calls)
	equal(t, "stopped", StoppedUntil, sum.Stopped)
	b.plan.Until = "soon"
	if _, _, err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), "soon") {
		t.Errorf("got %v", err)
	}
}

// A time of day that passes while the command loads or calibrates has passed; it is not that of the next day.
func TestATimeOfDayCountsFromTheStartOfTheCommand(t *testing.T) {
	start := time.Date(2026, 1, 2, 6, 59, 0, 0, time.UTC)
	for want, until := range map[string][2]string{
		"2026-01-02T07:00:00Z": {"", "07:00"},
		"2026-01-03T06:00:00Z": {"06:00", "07:00"},
		"0001-01-01T00:00:00Z": {"", ""},
	} {
		flag, err := plan.Deadline(until[0], start)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Options{Started: start, Until: flag}.until(&plan.Plan{Until: until[1]})
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("flag %q, campaign %q: %v, %v; want %s", until[0], until[1], got, err, want)
		}
	}
}

func TestSignalsAskFirstAndThenGiveUp(t *testing.T) {
	said := make(chan string)
	ctx, stop, release := NotifyStop(t.Context(), func(s string) { said <- s })
	defer release()
	interrupt := func() string {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		select {
		case s := <-said:
			return s
		case <-time.After(10 * time.Second):
			t.Fatal("the signal did not arrive")
		}
		return ""
	}
	equal(t, "first", "stopping after this unit; once more gives it up", interrupt())
	<-stop
	if ctx.Err() != nil {
		t.Error("the first signal cancelled the context")
	}
	equal(t, "second", "giving up the running unit", interrupt())
	<-ctx.Done()
}
