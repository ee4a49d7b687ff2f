package fetch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
	"attnbudget/engine/synth"
)

func TestASyntheticModelIsMadeOnceByContent(t *testing.T) {
	t.Setenv("ATTNBUDGET_CACHE", t.TempDir())
	s, err := ParseSynth("llama-tiny:layers=2:seed=7", "F16")
	if err != nil {
		t.Fatal(err)
	}
	partial := filepath.Join(os.Getenv("ATTNBUDGET_CACHE"), "models", s.key()+".partial")
	if err := os.MkdirAll(partial, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(partial, ".left.tmp"), []byte("by a process that was killed"), 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := Get(t.Context(), s, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if layers, err := f.Uint("llama.block_count"); err != nil || layers != 2 {
		t.Errorf("%d layers, %v", layers, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Get(t.Context(), s, quiet); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the model was made again, or %v", err)
	}
}

func TestEverythingThatDecidesASyntheticModelIsInItsPlace(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{"llama-tiny", "gemma3-tiny", "llama-tiny:layers=1", "llama-tiny:format=Q8_0", "llama-tiny:seed=2"} {
		s, err := ParseSynth(text, "F16")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if other, twice := seen[s.key()]; twice {
			t.Errorf("%s and %s have the same place %s", text, other, s.key())
		}
		seen[s.key()] = text
	}
}

func TestSyntheticSourcesAreReadAndBadOnesRefused(t *testing.T) {
	for text, want := range map[string]string{
		"llama-tiny":                            "synth:llama-tiny:format=Q8_0:seed=1",
		"llama-tiny:format=F32:layers=3:seed=9": "synth:llama-tiny:layers=3:format=F32:seed=9",
		"llama-tiny:layers=0":                   `!layers must be a whole number of at least 1, found "0"`,
		"llama-tiny:layers":                     `!layers must be a whole number of at least 1, found ""`,
		"llama-tiny:layers=99":                  "!layers",
		"llama-tiny:layers=1:layers=2":          "!layers is given twice",
		"llama-tiny:format=Q9":                  "!Q9",
		"llama-tiny:seed=-1":                    `!seed must be a whole number, found "-1"`,
		"llama-tiny:depth=2":                    `!unknown option "depth": possible are layers=N, format=FORMAT and seed=N`,
		"llama-tiny:":                           `!unknown option ""`,
		"":                                      "!",
	} {
		s, err := ParseSynth(text, "Q8_0")
		if message, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), message) {
				t.Errorf("%s: %v, want %q", text, err, message)
			}
		} else if err != nil || s.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, s, err, want)
		}
	}
	var unknown *synth.UnknownShapeError
	if _, err := ParseSynth("lama-tiny", "F16"); !errors.As(err, &unknown) || unknown.Nearest == "" {
		t.Errorf("%v", err)
	}
}
