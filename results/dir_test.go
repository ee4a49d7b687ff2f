package results

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/atomicfile"
	"attnbudget/plan"

	"github.com/google/go-cmp/cmp"
)

func newDir(t *testing.T) *Dir {
	t.Helper()
	d, err := Create(filepath.Join(t.TempDir(), "run"), "demo")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCreateMakesADirectoryThatOpenReads(t *testing.T) {
	made := newDir(t)
	opened, err := Open(made.Path())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made.Manifest(), opened.Manifest()); diff != "" {
		t.Error(diff)
	}
	again, err := Create(made.Path(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made.Manifest(), again.Manifest()); diff != "" {
		t.Errorf("creating again changed the manifest:\n%s", diff)
	}
}

func TestCreateRefusesAFolderOfSomethingElse(t *testing.T) {
	foreign := t.TempDir()
	photo := filepath.Join(foreign, "photo.jpg")
	if err := os.WriteFile(photo, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	var notRun *NotRunError
	if _, err := Create(foreign, "demo"); !errors.As(err, &notRun) {
		t.Errorf("got %v, expected a NotRunError", err)
	}
	if entries, _ := os.ReadDir(foreign); len(entries) != 1 {
		t.Errorf("the folder was changed: %v", entries)
	}
	if _, err := Create(newDir(t).Path(), "other"); err == nil || !strings.Contains(err.Error(), `campaign "demo"`) {
		t.Errorf("got %v, expected a refusal that names the other campaign", err)
	}
}

func TestACreationThatWasKilledIsMadeGood(t *testing.T) {
	path := t.TempDir()
	f, err := atomicfile.Create(filepath.Join(path, manifestFile)) // a process that dies now leaves the temporary file
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := Create(path, "demo")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err != nil {
		t.Error(err)
	}
	if err := d.RemoveLeftovers(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(path, ".*.tmp")); left != nil {
		t.Errorf("left %v", left)
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	var notRun *NotRunError
	if _, err := Open(t.TempDir()); !errors.As(err, &notRun) {
		t.Errorf("empty folder: got %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent folder: got %v", err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	d := newDir(t)
	for name, read := range map[string]struct {
		content string
		read    func() error
	}{
		manifestFile: {`{"schema":"attnbudget/run/2"}`, func() error { _, err := Open(d.Path()); return err }},
		planFile:     {`{"schema":"attnbudget/plan/2"}`, func() error { _, err := d.Plan(); return err }},
		journalFile:  {`{"event":"journal","schema":"attnbudget/journal/2"}` + "\n", func() error { _, err := d.OpenJournal(); return err }},
		"environments/0000000000000000.json": {`{"schema":"attnbudget/environment/2"}`,
			func() error { _, err := d.Environments(); return err }},
		"records/0000000000000000.json": {`{"schema":"attnbudget/record/2"}`, func() error { _, err := d.Record("0000000000000000"); return err }},
	} {
		if err := os.WriteFile(d.file(name), []byte(read.content), 0o644); err != nil {
			t.Fatal(err)
		}
		var schema *SchemaError
		err := read.read()
		if !errors.As(err, &schema) || !schema.Newer() || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("%s: got %v, expected a newer schema to be refused", name, err)
		}
		if after, _ := os.ReadFile(d.file(name)); string(after) != read.content {
			t.Errorf("%s was changed", name)
		}
	}
}

func TestSetPlanReplacesPlanAndCampaign(t *testing.T) {
	d := newDir(t)
	if _, err := d.Plan(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, expected no plan", err)
	}
	for _, seed := range []uint64{1, 2} {
		want := &plan.Plan{Schema: plan.Schema, Campaign: "demo", Seed: seed}
		if err := d.SetPlan([]byte("name: demo\n"), want); err != nil {
			t.Fatal(err)
		}
		got, err := d.Plan()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if text, err := d.Campaign(); err != nil || string(text) != "name: demo\n" {
		t.Errorf("campaign copy: %q, %v", text, err)
	}
}

func TestLeftoversOfACrashAreRemovedAndNothingElse(t *testing.T) {
	d := newDir(t)
	if err := d.WriteRecord(record("aa", "x")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.file("tables"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"records/ab.json", "work/states/s.state", "summary.json", "tables/01-speed.md"} {
		f, err := atomicfile.Create(d.file(name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if err := d.RemoveLeftovers(); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(d.file("records", "*"))
	if len(left) != 1 {
		t.Errorf("left %v", left)
	}
	err := filepath.WalkDir(d.Path(), func(path string, e fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".tmp") {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
