package embedded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/plan"
	"attnbudget/runner"

	"github.com/google/go-cmp/cmp"
)

type item struct {
	N int `json:"n"`
}

func checkpointJob(t *testing.T) runner.Job {
	return runner.Job{Unit: plan.Unit{ID: "u1"}, Environment: "e1", Checkpoint: filepath.Join(t.TempDir(), "u1.jsonl")}
}

// work opens the checkpoint, adds the items and closes it.
func work(t *testing.T, job runner.Job, items ...item) (done []item, resumed int) {
	t.Helper()
	c, done, err := openCheckpoint[item](job, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		if err := c.add(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	return done, c.resumed
}

func TestACheckpointGivesItsItemsBack(t *testing.T) {
	job := checkpointJob(t)
	for i, step := range []struct {
		add     []item
		done    []item
		resumed int
	}{
		{[]item{{1}, {2}, {3}}, nil, 0},
		{nil, []item{{1}, {2}, {3}}, 1},
		{[]item{{4}}, []item{{1}, {2}, {3}}, 1}, // the process before this one finished nothing
		{nil, []item{{1}, {2}, {3}, {4}}, 2},
	} {
		done, resumed := work(t, job, step.add...)
		if diff := cmp.Diff(step.done, done); diff != "" || resumed != step.resumed {
			t.Errorf("step %d: resumed %d, expected %d\n%s", i, resumed, step.resumed, diff)
		}
	}
}

func TestADamagedCheckpointLosesOnlyWhatIsDamaged(t *testing.T) {
	const last = `{"n":3}`
	for name, damage := range map[string]func(string) string{
		"torn last line":                func(s string) string { return s[:len(s)-3] },
		"last line unended":             func(s string) string { return s[:len(s)-1] },
		"line of nonsense":              func(s string) string { return strings.Replace(s, last, `{"n":x}`, 1) },
		"zeros at the end":              func(s string) string { return strings.Replace(s, last, "\x00\x00", 1) },
		"item of another kind":          func(s string) string { return strings.Replace(s, last, `{"n":"three"}`, 1) },
		"half a line, then a whole one": func(s string) string { return strings.Replace(s, last+"\n", `{"n"`, 1) + last + "\n" },
	} {
		t.Run(name, func(t *testing.T) {
			job := checkpointJob(t)
			work(t, job, item{1}, item{2}, item{3})
			b, err := os.ReadFile(job.Checkpoint)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(job.Checkpoint, []byte(damage(string(b))), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, want := range [][]item{{{1}, {2}}, {{1}, {2}, {3}}} {
				done, _ := work(t, job, item{3})
				if diff := cmp.Diff(want, done); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestACheckpointOfAnotherUnitOrEnvironmentIsNotUsed(t *testing.T) {
	for name, change := range map[string]func(*runner.Job){
		"unit":        func(j *runner.Job) { j.Unit.ID = "u2" },
		"environment": func(j *runner.Job) { j.Environment = "e2" },
	} {
		job := checkpointJob(t)
		work(t, job, item{1}, item{2})
		change(&job)
		if done, resumed := work(t, job, item{1}); done != nil || resumed != 0 {
			t.Errorf("other %s: %v items, resumed %d", name, done, resumed)
		}
		if done, _ := work(t, job); len(done) != 1 {
			t.Errorf("other %s: then %v", name, done)
		}
	}
}

func TestWhatIsNotUsedOfACheckpointIsSaid(t *testing.T) {
	const head, items = `{"schema":"attnbudget/checkpoint/1","unit":"u1","environment":"e1"}` + "\n", `{"n":1}` + "\n" + `{"n":2}` + "\n"
	for name, c := range map[string]struct{ content, want string }{
		"nothing there":        {"", ""},
		"all used":             {head + items, ""},
		"a torn item":          {head + items + `{"n":`, ""},
		"a header alone":       {strings.Replace(head, "e1", "e0", 1), ""},
		"another environment":  {strings.Replace(head, "e1", "e0", 1) + items + `{"n":`, "2 finished items are not used but evaluated again: another machine, program or set of kernels computed them (environment e0, this is e1)"},
		"two environments":     {head + items + strings.Replace(head, "e1", "e0", 1) + `{"n":3}` + "\n", "1 finished item is not used but evaluated again: another machine, program or set of kernels computed them (environment e0, this is e1)"},
		"another unit":         {strings.Replace(head, "u1", "u0", 1) + items, "2 finished items are not used but evaluated again: they are of other work (u0, this is u1)"},
		"another release":      {strings.Replace(head, "/1", "/0", 1) + items, "2 finished items are not used but evaluated again: another release of this program wrote them (attnbudget/checkpoint/0, this one attnbudget/checkpoint/1)"},
		"no header":            {items, "2 finished items are not used but evaluated again: the checkpoint is damaged"},
		"a damaged line first": {head + `{"n":x}` + "\n" + items, "3 finished items are not used but evaluated again: the checkpoint is damaged"},
	} {
		job := checkpointJob(t)
		if err := os.WriteFile(job.Checkpoint, []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		cp, _, err := openCheckpoint[item](job, 1)
		if err != nil {
			t.Fatal(err)
		}
		if cp.dropped != c.want {
			t.Errorf("%s: %q, want %q", name, cp.dropped, c.want)
		}
		if err := cp.close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnItemIsInTheFileWhenItIsFinished(t *testing.T) {
	job := checkpointJob(t)
	c, _, err := openCheckpoint[item](job, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for n := range 4 {
		if err := c.add(item{n}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(job.Checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(b), `"n":`); got != n+1 {
			t.Errorf("after %d items %d are in the file", n+1, got)
		}
	}
}

func FuzzReadCheckpoint(f *testing.F) {
	header := checkpointHeader{checkpointSchema, "u1", "e1"}
	const text = `{"schema":"attnbudget/checkpoint/1","unit":"u1","environment":"e1"}` + "\n" + `{"n":1}` + "\n" + `{"n":2}` + "\n"
	f.Add([]byte(text))
	f.Add([]byte(text + text[:40]))
	f.Add([]byte(text + "null\n[]\n"))
	f.Add([]byte(text + `{"schema":"attnbudget/checkpoint/1","unit":"u1","environment":"e1","n":4}` + "\n"))
	f.Add([]byte("{\"n\":1}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		items, parts, good := readCheckpoint[item](b, header)
		if good > len(b) || parts > len(items) {
			t.Fatalf("%d items in %d parts, %d of %d bytes good", len(items), parts, good, len(b))
		}
		again, _, same := readCheckpoint[item](b[:good], header)
		if diff := cmp.Diff(items, again); diff != "" || same != good {
			t.Errorf("reading the good bytes alone gives something else: %d of %d\n%s", same, good, diff)
		}
	})
}
