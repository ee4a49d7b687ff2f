package markdown

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const document = `# Title
<!-- first -->
| a |
<!-- end -->
text <!-- a remark --> text
<!-- second -->
old

lines
<!-- end -->
`

func TestAPartIsFilledAndTheRestStays(t *testing.T) {
	table := Table([]string{"a", ""}, [][]string{{"1", "2"}, {"", "x"}})
	got, err := Fill(document, "second", table)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(document, "old\n\nlines", "| a | |\n|---|---|\n| 1 | 2 |\n| | x |", 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if again, err := Fill(got, "second", table); err != nil || again != got {
		t.Errorf("filled in again: %v\n%s", err, again)
	}
}

func TestAPartThatIsNotThereIsAnError(t *testing.T) {
	for _, d := range []string{"", document, "<!-- third -->\nopen"} {
		if _, err := Fill(d, "third", "x"); err == nil || !strings.Contains(err.Error(), "third") {
			t.Errorf("%q: %v", d, err)
		}
	}
}

func TestAPartWithNothingInItYetIsOne(t *testing.T) {
	open := strings.Replace(document, "| a |\n", "", 1)
	want := map[string]string{"first": "", "second": "old\n\nlines"}
	if diff := cmp.Diff(want, Parts(open)); diff != "" {
		t.Error(diff)
	}
	if got, err := Fill(open, "first", "| a |"); err != nil || got != document {
		t.Errorf("filled in: %v\n%s", err, got)
	}
}

func TestPartsAreFound(t *testing.T) {
	if diff := cmp.Diff(map[string]string{"first": "| a |", "second": "old\n\nlines"}, Parts(document)); diff != "" {
		t.Error(diff)
	}
}
