package campaigns

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNearestName(t *testing.T) {
	known := []string{"throughput", "depth", "kv", "perplexity", "Q4_K_M", "none"}
	for wrong, want := range map[string]string{
		"troughput": "throughput", "thruoghput": "throughput", "THROUGHPUT": "throughput", "depht": "depth", "deep": "",
		"kw": "kv", "q4_k_m": "Q4_K_M", "nome": "none", "": "", "k": "kv", "xyz": "", "perplexityy": "perplexity",
	} {
		if got := nearest(wrong, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", wrong, got, want)
		}
	}
	if got := nearest("anything", nil); got != "" {
		t.Errorf("nearest of nothing is %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "acb", 1}, {"abc", "ab", 1},
		{"kitten", "sitting", 3}, {"ca", "abc", 3}, {"für", "fur", 1},
	} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("distance(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
		if got := distance(test.b, test.a); got != test.want {
			t.Errorf("distance(%q, %q) = %d, want %d", test.b, test.a, got, test.want)
		}
	}
}

func TestSnippetPutsTheCaretUnderTheText(t *testing.T) {
	long := strings.Repeat("x", 300) + "MARK" + strings.Repeat("y", 300)
	s := sourceText{file: "f", lines: []string{"abc: def", "\tä: wrong", "line: x", long, ""}}
	for _, test := range []struct{ line, column, width int }{{1, 6, 3}, {2, 5, 5}, {3, 7, 1}, {4, 301, 4}, {1, 8, 99}, {4, 1, 4}, {4, 1, 400}, {4, 30, 400}, {4, 601, 40}} {
		got := s.snippet(test.line, test.column, test.width)
		code, carets, _ := strings.Cut(got, "\n")
		from := strings.IndexByte(carets, '^')
		before, after := []rune(code)[:len([]rune(carets[:from]))], []rune(code)[len([]rune(carets[:from])):]
		want := []rune(s.lines[test.line-1])[test.column-1:]
		n := strings.Count(carets, "^")
		if n < 1 || n > test.width || !strings.HasPrefix(string(want), string(after[:n])) {
			t.Errorf("line %d column %d: carets under %q after %q, want the beginning of %q\n%s", test.line, test.column, string(after[:n]), string(before), clip(string(want)), got)
		}
		if len([]rune(code)) > maxSnippet+20 {
			t.Errorf("line %d: the snippet has %d characters", test.line, len([]rune(code)))
		}
	}
	if got := s.snippet(5, 1, 1); got != "    5 | \n      | ^" {
		t.Errorf("empty line: %q", got)
	}
	for _, line := range []int{0, 6} {
		if got := s.snippet(line, 1, 1); got != "" {
			t.Errorf("a line that is not there: %q", got)
		}
	}
}

func TestAByteOrderMarkIsIgnored(t *testing.T) {
	c, err := Parse("f.yaml", []byte("\ufeffname: test\nmodels: {a: builtin:glossary-5m}\n"+prompt16))
	if err != nil || c.Name != "test" {
		t.Errorf("%v", err)
	}
	_, err = Parse("f.yaml", []byte("\ufeffnam: test\n"))
	if err == nil || !strings.HasPrefix(err.Error(), `f.yaml:1:1: unknown key "nam"`) {
		t.Errorf("the mark moved the column: %v", err)
	}
}

func TestLinesEndAsYAMLSaysTheyDo(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r", "\u0085", "\u2028"} {
		_, err := Parse("f.yaml", []byte("name: test"+end+"models: {a: builtin:glossary-5m}"+end+"nam: 1"+end))
		if err == nil || !strings.Contains(err.Error(), "f.yaml:3:1: unknown key \"nam\"\n    3 | nam: 1\n") {
			t.Errorf("%q: %v", end, err)
		}
	}
}

func TestAHugeFileIsRefusedUnread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "huge.yaml")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skip("no sparse files here:", err)
	}
	_, err := Load(t.Context(), path)
	var mistakes Mistakes
	if !errors.As(err, &mistakes) || !strings.Contains(err.Error(), "a campaign has at most 1048576") {
		t.Errorf("%v", err)
	}
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "nowhere.yaml"), os.DevNull} {
		c, err := Load(t.Context(), path)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, %v", path, c, err)
		}
	}
}

func TestAFileOfMistakesGivesABoundedReport(t *testing.T) {
	_, err := Parse("f.yaml", []byte(strings.Repeat("stages: [{bad: {}}]\nx: 1\n", 5000)))
	var mistakes Mistakes
	if !errors.As(err, &mistakes) || len(mistakes) != maxMistakes || !strings.HasSuffix(err.Error(), "the first 100 mistakes; there may be more") {
		t.Errorf("%d mistakes, report of %d bytes", len(mistakes), len(err.Error()))
	}
}

func TestDeepNestingIsRefused(t *testing.T) {
	for _, text := range []string{strings.Repeat("[", 100_000), "a: " + strings.Repeat("{a: ", 50_000), strings.Repeat("- ", 100_000)} {
		if _, err := Parse("f.yaml", []byte(text)); err == nil {
			t.Errorf("%s… was accepted", text[:10])
		}
	}
}

func TestMistakesAreFoundByErrorsAs(t *testing.T) {
	_, err := Parse("f.yaml", []byte("nam: test\n"))
	var one *Mistake
	if !errors.As(err, &one) || one.Line != 1 || one.Column != 1 || one.File != "f.yaml" {
		t.Errorf("%+v", one)
	}
}
