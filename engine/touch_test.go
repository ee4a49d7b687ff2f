package engine

import (
	"os"
	"testing"
)

func TestTouchReachesEveryTensorAndChangesNothing(t *testing.T) {
	m, err := Open("testdata/conformance/models/llama-tiny.gguf", Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	before := m.identity()
	for _, threads := range []int{0, 1, 3} {
		m.Touch(threads)
	}
	if again := identity(m.file, m.options); again != before {
		t.Errorf("the model was %s before and is %s", before, again)
	}
	pages := make([]byte, 3*os.Getpagesize()+5)
	for i := range 4 {
		pages[i*os.Getpagesize()] = 1 << i
	}
	pages[len(pages)-1] = 16 // on a page of its own if the first byte is not the first of its page
	if got := touch(pages); got != 31 {
		t.Errorf("a byte of each page adds up to %d, want 31", got)
	}
}
