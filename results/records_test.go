package results

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attnbudget/plan"

	"github.com/google/go-cmp/cmp"
)

func record(id, stdout string) *Record {
	return &Record{
		Unit:    plan.Unit{ID: id, Name: "kv/kv 64/none/000", Arm: "none", Condition: "kv 64", Key: plan.Key{Stage: plan.KV, Context: 64}},
		Arm:     plan.Arm{Name: "none", Mask: plan.Mask{Name: "none", Layers: []int{}}},
		Session: "s1", Environment: "e1",
		Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Ended: time.Date(2026, 1, 2, 3, 4, 7, 0, time.UTC),
		Outcome: OK, Stdout: stdout, Stderr: "warning: <&>\u2028\n",
	}
}

func failed(id string) *Record {
	r := record(id, "half of it")
	r.Outcome, r.Failure = Failed, &Failure{Kind: Crash, Message: "exit status 1", ExitCode: 1}
	return r
}

func TestRecordsComeBackAsWritten(t *testing.T) {
	d := newDir(t)
	want := map[string]*Record{
		"b0": record("b0", "text\nwith \"quotes\" and \x00\n"),
		"a0": record("a0", "\xff\xfe not UTF-8"),
		"c0": failed("c0"),
	}
	for _, r := range want {
		if err := d.WriteRecord(r); err != nil {
			t.Fatal(err)
		}
	}
	var order []string
	for got, err := range d.Records() {
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, got.Unit.ID)
		if diff := cmp.Diff(want[got.Unit.ID], got); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff([]string{"a0", "b0", "c0"}, order); diff != "" {
		t.Error(diff)
	}
	if _, err := d.Record("d0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent record: %v", err)
	}
}

func TestUnusableRecordsAreReportedWithTheirPathAndTheRestIsRead(t *testing.T) {
	d := newDir(t)
	for _, id := range []string{"good", "truncated", "changed", "renamed", "empty", "nofailure"} {
		if err := d.WriteRecord(record(id, "raw output")); err != nil {
			t.Fatal(err)
		}
	}
	edit := func(id string, f func(string) string) {
		b, err := os.ReadFile(d.recordPath(id))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.recordPath(id), []byte(f(string(b))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	edit("truncated", func(s string) string { return s[:len(s)/2] })
	edit("changed", func(s string) string { return strings.Replace(s, "raw output", "raw outpot", 1) })
	edit("empty", func(string) string { return "" })
	edit("nofailure", func(s string) string { return strings.Replace(s, `"outcome": "ok"`, `"outcome": "failed"`, 1) })
	if err := os.Rename(d.recordPath("renamed"), d.recordPath("other")); err != nil {
		t.Fatal(err)
	}
	var good, bad []string
	for r, err := range d.Records() {
		var unusable *RecordError
		switch {
		case err == nil:
			good = append(good, r.Unit.ID)
		case errors.As(err, &unusable) && r == nil:
			bad = append(bad, filepath.Base(unusable.Path))
		default:
			t.Errorf("unexpected error %v", err)
		}
	}
	if diff := cmp.Diff([]string{"good"}, good); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"changed.json", "empty.json", "nofailure.json", "other.json", "truncated.json"}, bad); diff != "" {
		t.Error(diff)
	}
}

func TestARecordThatCannotBeReadIsNotTakenForADamagedOne(t *testing.T) {
	d := newDir(t)
	if err := os.Mkdir(d.recordPath("a0"), 0o755); err != nil { // as good as a file without permission, and so for every user
		t.Fatal(err)
	}
	if err := os.Symlink("moved away", d.recordPath("b0")); err != nil { // named by the folder, but gone
		t.Fatal(err)
	}
	if err := d.WriteRecord(record("c0", "good")); err != nil {
		t.Fatal(err)
	}
	var good, bad []string
	for r, err := range d.Records() {
		var unusable *RecordError
		switch {
		case err == nil:
			good = append(good, r.Unit.ID)
		case errors.As(err, &unusable):
			t.Errorf("damaged: %v", err)
		default:
			bad = append(bad, err.Error())
		}
	}
	if len(good) != 1 || len(bad) != 1 || !strings.Contains(bad[0], "record of unit a0: read ") || !strings.HasSuffix(bad[0], "; make it readable, or remove it and the unit is run again") {
		t.Errorf("good %q, errors %q", good, bad)
	}
}

func TestAReplacedRecordIsKept(t *testing.T) {
	d := newDir(t)
	for _, r := range []*Record{failed("u"), failed("u"), record("u", "first"), record("u", "second")} {
		if err := d.WriteRecord(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(d.recordPath("u"), []byte("{damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteRecord(record("u", "third")); err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, pattern := range []string{"failed/*", "superseded/*"} {
		names, _ := filepath.Glob(d.file(pattern))
		for _, n := range names {
			rel, _ := filepath.Rel(d.Path(), n)
			kept = append(kept, filepath.ToSlash(rel))
		}
	}
	if diff := cmp.Diff([]string{"failed/u.1.json", "failed/u.2.json", "superseded/u.1.json", "superseded/u.2.json"}, kept); diff != "" {
		t.Error(diff)
	}
	if got, err := d.Record("u"); err != nil || got.Stdout != "third" {
		t.Errorf("current record: %v, %v", got, err)
	}
}

func TestARecordThatCannotBeWrittenIsAnErrorAndLeavesNoHalfFile(t *testing.T) {
	d := newDir(t)
	if err := os.RemoveAll(d.file("records")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.file("records"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteRecord(record("u", "x")); err == nil || !strings.Contains(err.Error(), "kv/kv 64/none/000") {
		t.Errorf("got %v, expected an error naming the unit", err)
	}
}

func TestIDsThatLeadOutOfTheFolderAreRefused(t *testing.T) {
	d := newDir(t)
	for _, id := range []string{"", ".", "..", "../x", "a/b", ".hidden"} {
		if err := d.WriteRecord(record(id, "x")); err == nil {
			t.Errorf("id %q was accepted", id)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range []*Record{record("a", "x\n"), record("b", "\xff"), failed("c")} {
		r.Schema, r.StdoutSHA = RecordSchema, hash([]byte(r.Stdout))
		b, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add([]byte(`{"schema":"attnbudget/record/9"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b, "fuzz")
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeRecord(again, "fuzz")
		if err != nil {
			t.Fatalf("an accepted record does not survive writing: %v", err)
		}
		if diff := cmp.Diff(r, back); diff != "" {
			t.Error(diff)
		}
	})
}
