package attnbudget_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// forbidden is the import rule of docs/architecture.md: packages under the left-hand folder must not import
// packages under any of the right-hand ones. "" is the whole project.
var forbidden = map[string][]string{
	"engine":       {"plan", "campaigns", "runner", "results", "parsers", "summary", "cmd"},
	"atomicfile":   {""},
	"cachedir":     {""},
	"internal":     {""},
	"plan":         {""},
	"parsers":      {""},
	"summary/stat": {""},
	"campaigns":    {"runner", "summary", "cmd"},
	"results":      {"engine", "campaigns", "runner", "parsers", "summary", "cmd"},
	"runner":       {"campaigns", "summary", "cmd"},
	"summary":      {"engine", "campaigns", "runner", "cmd"},
}

const module = "attnbudget"

func TestImportRuleIsKept(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && file != ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		from := path.Dir(filepath.ToSlash(file))
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			to, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			seen++
			if to == "internal/golden" && strings.HasSuffix(file, "_test.go") {
				continue // no part of any package
			}
			if rule, broken := breaks(from, to); broken {
				t.Errorf("%s imports %s: packages under %s/ must not", file, imported, rule)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Fatal("no import of this module was seen: the walk looks at the wrong folder")
	}
}

// breaks returns the folder whose rule forbids an import of package to by package from.
func breaks(from, to string) (string, bool) {
	for folder, banned := range forbidden {
		if !under(from, folder) || from == to {
			continue
		}
		for _, b := range banned {
			if under(to, b) && !(b == "" && under(to, folder)) {
				return folder, true
			}
		}
	}
	return "", false
}

func under(pkg, folder string) bool {
	return folder == "" || pkg == folder || strings.HasPrefix(pkg, folder+"/")
}

func TestImportRuleRefusesWhatItShould(t *testing.T) {
	for _, c := range []struct {
		from, to string
		broken   bool
	}{
		{"engine/eval", "plan", true},
		{"engine", "engine/gguf", false},
		{"parsers", "plan", true},
		{"summary/stat", "parsers", true},
		{"summary", "summary/stat", false},
		{"summary", "engine/gguf", true},
		{"summary", "parsers", false},
		{"summary", "atomicfile", false},
		{"engine/gguf", "atomicfile", false},
		{"atomicfile", "cachedir", true},
		{"campaigns", "engine", false},
		{"campaigns", "runner", true},
		{"runner/embedded", "engine/eval", false},
		{"runner", "campaigns", true},
		{"cmd/run-campaign", "summary", false},
	} {
		if _, broken := breaks(c.from, c.to); broken != c.broken {
			t.Errorf("%s imports %s: broken = %v, want %v", c.from, c.to, broken, c.broken)
		}
	}
}
