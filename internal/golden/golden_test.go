package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a test that notes its failures instead of failing.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func TestADifferenceFailsTheTestAndUpdateWritesIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "testdata", "x.txt")
	defer func(was bool) { *update = was }(*update)
	*update = true
	Check(t, path, []byte("old"))
	*update = false
	Check(t, path, []byte("old"))
	r := &recorder{TB: t}
	Check(r, path, []byte("new"))
	if !strings.Contains(r.said, "x.txt differs") {
		t.Errorf("said %q", r.said)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("%q, %v", b, err)
	}
}
