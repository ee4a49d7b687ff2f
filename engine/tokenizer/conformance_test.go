package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine/gguf"
)

// sharedTokenizers is where the conformance vocabularies are, when they are there at all: they are too large to ship.
const sharedTokenizers = "../../../shared/conformance/tokenizers"

// vocabularies of the shared conformance data: vocabulary-only models of upstream's test suite.
var vocabularies = []string{"llama-spm", "llama-bpe", "gpt-2", "qwen35", "gemma-4"}

// conformanceCase is one text with upstream's tokens.
type conformanceCase struct {
	Text       string  `json:"text"`
	IDs        []int32 `json:"ids"`         // without BOS, special tokens not parsed
	IDsSpecial []int32 `json:"ids_special"` // with both
}

// sharedVocabulary opens one of the conformance vocabularies or skips the test.
func sharedVocabulary(tb testing.TB, name string) *Tokenizer {
	tb.Helper()
	path := filepath.Join(sharedTokenizers, name+".gguf.gz")
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		tb.Skipf("no shared conformance data at %s", path)
	} else if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		tb.Fatal(err)
	}
	return fromBytes(tb, name, b)
}

func fromBytes(tb testing.TB, name string, b []byte) *Tokenizer {
	tb.Helper()
	g, err := gguf.OpenBytes(name, b)
	if err != nil {
		tb.Fatal(err)
	}
	t, err := New(g)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func conformanceCases(tb testing.TB, name string) []conformanceCase {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(sharedTokenizers, name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	var cases []conformanceCase
	if err := json.Unmarshal(b, &cases); err != nil {
		tb.Fatal(err)
	}
	return cases
}

func TestEncodeEqualsUpstreamOnConformanceTexts(t *testing.T) {
	for _, name := range vocabularies {
		t.Run(name, func(t *testing.T) {
			tok := sharedVocabulary(t, name)
			cases := conformanceCases(t, name)
			if len(cases) != 311 {
				t.Fatalf("%d texts, want 311", len(cases))
			}
			for _, c := range cases {
				if got := tok.Encode(c.Text, false, false); !slices.Equal(got, c.IDs) {
					t.Errorf("Encode(%q) = %v, want %v", c.Text, got, c.IDs)
				}
				if got := tok.Encode(c.Text, true, true); !slices.Equal(got, c.IDsSpecial) {
					t.Errorf("Encode(%q) with specials = %v, want %v", c.Text, got, c.IDsSpecial)
				}
				if got, want := tok.Decode(tok.Encode(c.Text, false, false)), roundTrip(tok, c.Text); got != want {
					t.Errorf("Decode(Encode(%q)) = %q, want %q", c.Text, got, want)
				}
			}
		})
	}
}

// roundTrip is what encoding and decoding makes of a text: BPE replaces what is not UTF-8, and vocabularies that write
// spaces as U+2581 cannot tell the two apart.
func roundTrip(t *Tokenizer, text string) string {
	if !t.spm {
		text = upstreamUTF8(text)
	}
	if t.escape {
		text = strings.ReplaceAll(text, escapedSpace, " ")
	}
	return text
}

func TestSPMWordByWordEqualsWholeText(t *testing.T) {
	tok := sharedVocabulary(t, "llama-spm")
	s := tok.algorithm.(*spm)
	if !s.wordwise {
		t.Fatal("Llama's vocabulary has no token with a space inside")
	}
	whole := *s
	whole.wordwise = false
	for _, c := range conformanceCases(t, "llama-spm") {
		text := strings.ReplaceAll(" "+c.Text, " ", escapedSpace)
		if got, want := s.encode(text, nil), whole.encode(text, nil); !slices.Equal(got, want) {
			t.Errorf("%q: word by word %v, whole %v", c.Text, got, want)
		}
	}
}
