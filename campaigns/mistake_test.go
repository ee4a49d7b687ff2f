package campaigns

import (
	"errors"
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
