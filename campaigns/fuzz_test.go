package campaigns

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad: whatever a file says, loading ends without a panic, with a campaign that can be planned or with mistakes that
// stand inside of the file.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"*.yaml", "testdata/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			if len(text) < 4<<10 {
				f.Add(text)
			}
		}
	}
	f.Add([]byte("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"))
	f.Add([]byte("name: x\nmodels: {m: builtin:glossary-5m}\nmasks: {a.b: [1], \"a\\0\\x01\": [0], 0: []}\n" + prompt16))
	f.Add([]byte("tables: [{where: {arm: x}}]\nmatrix: {zip: [[model, model]]}\nbaseline: {kv: {k: f16}}\n"))
	f.Add([]byte("name: te\rst\u2028models:\n  b: "))
	f.Add([]byte(strings.Repeat("long", 100)))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := read(filepath.Join(t.TempDir(), "campaign.yaml"), text)
		if err == nil {
			c.resolve(t.Context())
			err = c.doc.err()
			defer c.Close()
		}
		if err == nil {
			p := c.Plan()
			if len(p.Units) == 0 {
				t.Error("a campaign without mistakes has no units")
			}
			if e := c.Estimate(p, nil); e.Time < 0 || e.Memory < 0 || e.Disk < 0 {
				t.Errorf("estimate %+v", e)
			}
			return
		}
		var mistakes Mistakes
		if !errors.As(err, &mistakes) {
			t.Fatalf("%T: %v", err, err)
		}
		lines := len(lineBreak.FindAllIndex(text, -1)) + 1
		for _, m := range mistakes {
			if m.Line < 0 || m.Line > lines || m.Message == "" {
				t.Errorf("a mistake outside of the %d lines: %+v", lines, m)
			}
		}
		if len(err.Error()) > 200*1024 {
			t.Errorf("a report of %d bytes", len(err.Error()))
		}
	})
}
