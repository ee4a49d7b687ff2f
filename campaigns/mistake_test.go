package campaigns

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with the file, which -update writes; a failure leaves what it got beside the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		_ = os.WriteFile(path+".got", []byte(got), 0o644)
		t.Errorf("%s differs (-want +got); go test -update writes it\n%s", path, diff)
	}
}

// Every file of testdata/mistakes has one kind of mistake, and the golden file beside it the exact report.
func TestMistakesAreReportedWithPlaceSnippetAndHint(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d campaigns with mistakes, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			c, err := Load(file)
			if err == nil {
				c.Close()
				t.Fatal("no mistake was found")
			}
			var mistakes Mistakes
			if !errors.As(err, &mistakes) {
				t.Fatalf("%T is not Mistakes: %v", err, err)
			}
			for _, m := range mistakes {
				if m.File != file || m.Message == "" || m.Line > 0 && m.Snippet == "" {
					t.Errorf("incomplete: %+v", m)
				}
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", filepath.ToSlash(err.Error())+"\n")
		})
	}
}
