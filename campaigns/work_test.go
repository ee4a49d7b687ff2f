package campaigns

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestThePlanWarnsOfATextOnce(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "dos.txt"), "\ufeff"+strings.Repeat("A gull is a sea bird.\r\n", 20))
	c := loadFile(t, write(t, filepath.Join(folder, "c.yaml"), `name: test
models: {one: builtin:glossary-5m, two: builtin:glossary-5m}
stages:
  - perplexity: {text: dos.txt, context: 16}
  - perplexity: {text: dos.txt, context: 32}
  - kl-divergence: {text: dos.txt, context: 32, chunks: 1}
`))
	all := strings.Join(c.Plan().Warnings, "\n")
	for _, want := range []string{"dos.txt: the byte order mark at the beginning is scored as text", "dos.txt: 20 lines end in CRLF, which is scored as text"} {
		if n := strings.Count(all, want); n != 1 {
			t.Errorf("%d warnings that %q, expected one:\n%s", n, want, all)
		}
	}
}
