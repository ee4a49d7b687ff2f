package campaigns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/internal/golden"
)

// Every file of testdata/mistakes has one kind of mistake, and the golden file beside it the exact report.
func TestMistakesAreReportedWithPlaceSnippetAndHint(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d campaigns with mistakes, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			c, err := Load(t.Context(), file)
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
			golden.Check(t, strings.TrimSuffix(file, ".yaml")+".golden", []byte(filepath.ToSlash(err.Error())+"\n"))
		})
	}
}

// What is wrong beyond the last mistake that is reported is as wrong.
func TestAMistakeBeyondTheLastReportedIsNotBuiltUpon(t *testing.T) {
	var unknown strings.Builder
	for i := range maxMistakes {
		fmt.Fprintf(&unknown, "wrong%d: 1\n", i)
	}
	for _, last := range []string{"matrix: {include: [{model: nobody}]}", "matrix: {include: [{mask: nothing}]}", "baseline: {model: nobody}", "baseline: {mask: nothing}", "matrix: {zip: [[model, mask]]}\nmasks: {none: [], a: [0]}"} {
		path := filepath.Join(t.TempDir(), "campaign.yaml")
		if err := os.WriteFile(path, []byte("name: test\nmodels: {glossary: builtin:glossary-5m}\n"+prompt16+unknown.String()+last+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		var mistakes Mistakes
		if _, err := Load(t.Context(), path); !errors.As(err, &mistakes) || len(mistakes) != maxMistakes {
			t.Errorf("%s: %v", last, err)
		}
	}
}
