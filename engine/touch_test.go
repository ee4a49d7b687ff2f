package engine

import "testing"

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
	page := make([]byte, 3*4096+1)
	page[0], page[4096], page[3*4096] = 1, 2, 4
	if got := touch(page); got < 7 {
		t.Errorf("a byte of each page adds up to %d, want at least 7", got)
	}
}
