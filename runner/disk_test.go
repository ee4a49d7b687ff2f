package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attnbudget/engine/gguf"
	"attnbudget/results"
)

func TestARecordThatCannotBeWrittenEndsTheRunAndTheJournalIsIntact(t *testing.T) {
	b := newBench(t)
	records := filepath.Join(b.dir.Path(), "records")
	b.x.script["throughput/pp8/b/000"] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		if err := os.Rename(records, records+".away"); err != nil {
			t.Error(err)
		}
		return b.x.succeed(ctx, job, p)
	}
	sum, calls, err := b.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "throughput/pp8/b/000") {
		t.Errorf("got %v, expected an error that names the unit", err)
	}
	equal(t, "jobs", wholeRun[:2], calls)
	equal(t, "stopped", StoppedFailed, sum.Stopped)
	equal(t, "journal", []string{"unit_end throughput/pp8/a/000", "session_end"}, b.journal(results.EventUnitEnd, results.EventSessionEnd))

	if err := os.Rename(records+".away", records); err != nil {
		t.Fatal(err)
	}
	b.x.script = nil
	_, calls = b.mustRun()
	equal(t, "jobs of the next run", wholeRun[1:], calls)
}

func TestAFullDiskEndsTheRun(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	b := newBench(t)
	if err := os.Symlink("/dev/full", filepath.Join(b.dir.Path(), "journal.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, calls, err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), "no space left") || calls != nil {
		t.Errorf("got %v after jobs %v", err, calls)
	}
}

func TestAReadOnlyDirectoryIsAClearError(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("permissions do not bind root")
	}
	b := newBench(t)
	if err := os.Chmod(b.dir.Path(), 0o555); err != nil {
		t.Fatal(err)
	}
	if _, calls, err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), "permission denied") || calls != nil {
		t.Errorf("got %v after jobs %v", err, calls)
	}
}

func TestAModelThatIsRemovedOrReplacedMakesItsUnitsUnavailable(t *testing.T) {
	b := newBench(t)
	model := filepath.Join(t.TempDir(), "m.gguf")
	weights := "GGUF\x03\x00\x00\x00" + strings.Repeat("\x00", 16) // without tensors and keys
	write(t, model, weights)
	sum, err := gguf.Fingerprint(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	b.plan.Models[0].Path, b.plan.Models[0].Fingerprint = model, sum
	b.x.script["throughput/pp8/a/000"] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		write(t, model, weights+"\x00")
		return b.x.succeed(ctx, job, p)
	}
	b.x.script["throughput/pp8/b/001"] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		t.Error("a unit ran on a replaced model")
		return Output{}, nil
	}
	_, calls := b.mustRun()
	equal(t, "jobs", wholeRun[:1], calls)
	for name, want := range map[string]string{"throughput/pp8/b/000": "has changed since the plan was made", "depth/tg4 @ d16/a/000": "has changed"} {
		r := b.record(name)
		if r.Outcome != results.Failed || r.Failure.Kind != results.Unavailable || !strings.Contains(r.Failure.Message, want) {
			t.Errorf("%s: %+v", name, r.Failure)
		}
	}

	write(t, model, weights)
	b.o.RetryFailed = true
	delete(b.x.script, "throughput/pp8/b/001")
	b.x.script["throughput/pp8/b/000"] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		if err := os.Remove(model); err != nil {
			t.Error(err)
		}
		return b.x.succeed(ctx, job, p)
	}
	after, calls := b.mustRun()
	equal(t, "jobs of the retry", wholeRun[1:2], calls)
	equal(t, "summary of the retry", Summary{Session: after.Session, Done: 2, Failed: 8, Ran: 9}, after)
	if r := b.record("throughput/pp8/b/001"); !strings.Contains(r.Failure.Message, "no such file") {
		t.Errorf("%+v", r.Failure)
	}
}

func TestAPartOfASplitModelThatIsReplacedMakesItsUnitsUnavailable(t *testing.T) {
	b := newBench(t)
	folder := t.TempDir()
	part := func(no uint16, weights string) string {
		path := filepath.Join(folder, fmt.Sprintf("m-%05d-of-00002.gguf", no+1))
		w, err := gguf.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("tensor %d", no)
		if err := errors.Join(w.Set("split.no", gguf.ValueOf(no)), w.Set("split.count", gguf.ValueOf(uint16(2))), w.Set("split.tensors.count", gguf.ValueOf(int32(2))),
			w.Add(name, gguf.F32, []int{1}), w.Data(name, []byte(weights)), w.Finish()); err != nil {
			t.Fatal(err)
		}
		return path
	}
	model := part(0, "aaaa")
	second := part(1, "bbbb")
	sum, err := gguf.Fingerprint(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	b.plan.Models[0].Path, b.plan.Models[0].Fingerprint = model, sum
	b.x.script["throughput/pp8/a/000"] = func(ctx context.Context, job Job, p func(Progress)) (Output, error) {
		part(1, "cccc")
		if err := os.Chtimes(second, time.Time{}, time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
		return b.x.succeed(ctx, job, p)
	}
	_, calls := b.mustRun()
	equal(t, "jobs", wholeRun[:1], calls)
	if r := b.record("throughput/pp8/b/000"); r.Outcome != results.Failed || r.Failure.Kind != results.Unavailable || !strings.Contains(r.Failure.Message, "has changed since the plan was made") {
		t.Errorf("%s: %+v", r.Outcome, r.Failure)
	}
}
