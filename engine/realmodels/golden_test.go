package realmodels

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"attnbudget/cachedir"
	"attnbudget/engine"
	"attnbudget/engine/eval"
	"attnbudget/engine/tokenizer"
)

// The data sets and texts, where they are present at all: they are too large to ship.
const (
	sharedData  = "../../../shared/data"
	sharedTexts = "../../../shared/conformance/tokenizers/llama-bpe.json"
)

// upstream is what upstream gave for a model computed in one way; see testdata/README.md.
type upstream struct {
	Model            string         `json:"model"` // the file in the cache
	TextSHA256       string         `json:"text_sha256"`
	Tokens           tokenList      `json:"tokens"` // of wiki.test.raw
	FirstTokens      tokenList      `json:"first_tokens"`
	ConformanceTexts []tokenList    `json:"conformance_texts"` // without and with special tokens
	Window           window         `json:"window"`
	ChunkNLL         []float64      `json:"chunk_nll"` // 255 scored tokens each, nats
	Continuations    []continuation `json:"continuations"`
	HellaSwag        []pick         `json:"hellaswag"`
	Winogrande       []pick         `json:"winogrande"`
}

// tokenList identifies a list of tokens: their number, and the SHA-256 of their ids as little-endian int32.
type tokenList struct {
	Count  int    `json:"count"`
	SHA256 string `json:"sha256"`
}

func listOf(ids []int32) tokenList {
	h := sha256.New()
	for _, id := range ids {
		_ = binary.Write(h, binary.LittleEndian, id) // a hash takes everything
	}
	return tokenList{len(ids), hex.EncodeToString(h.Sum(nil))}
}

// window is the first tokens of the text in one context: the negative log-likelihood, in nats, of each block of 250 tokens.
// The very first token is not predicted.
type window struct {
	Tokens int       `json:"tokens"`
	NLL    []float64 `json:"nll"`
}

const windowBlock = 250

// continuation is a prompt's greedy continuation, going on past end tokens; gaps are how far the second logit was behind.
type continuation struct {
	Prompt string    `json:"prompt"`
	Tokens []int32   `json:"tokens"`
	Gaps   []float64 `json:"gaps"`
}

// pick is what was chosen in a task.
type pick struct {
	Task   int       `json:"task"` // place in the file, from 0
	Scores []float64 `json:"scores"`
	Pick   int       `json:"pick"` // HellaSwag: from 0; Winogrande: 1 or 2
}

// read reads what upstream gave for a model in one way.
func read(t *testing.T, name, way string) *upstream {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name, way+".json"))
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{}
	if err := json.Unmarshal(b, u); err != nil {
		t.Fatal(err)
	}
	if len(u.Window.NLL)*windowBlock != u.Window.Tokens || u.Window.Tokens == 0 || len(u.ChunkNLL) == 0 || len(u.Continuations) == 0 ||
		len(u.HellaSwag) == 0 || len(u.Winogrande) == 0 {
		t.Fatalf("testdata/%s/%s.json is not complete", name, way)
	}
	return u
}

// subject is a real model computed in one way.
type subject struct {
	model   *engine.Model
	tok     *tokenizer.Tokenizer
	options engine.ContextOptions
}

// open opens a model that `make models` has fetched; it skips when it has not.
func open(t *testing.T, file string, o engine.Options, c engine.ContextOptions) *subject {
	t.Helper()
	cache, err := cachedir.Path()
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(cache, "models", file)
	s := &subject{options: c}
	if s.model, err = engine.Open(path, o); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is not there: make models fetches it", path)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.model.Close() })
	if s.tok, err = s.model.Tokenizer(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *subject) context(t *testing.T, o engine.ContextOptions) *engine.Context {
	t.Helper()
	o.TypeK, o.TypeV = s.options.TypeK, s.options.TypeV
	c, err := s.model.NewContext(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// data reads a data set; it skips when there is none.
func data(t *testing.T, name string) eval.Input {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(sharedData, name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no shared data sets: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return eval.Input{Name: name, Data: b}
}

// text is wiki.test.raw, if it is the file that upstream read.
func (u *upstream) text(t *testing.T) eval.Input {
	t.Helper()
	in := data(t, "wiki.test.raw")
	if sum := sha256.Sum256(in.Data); hex.EncodeToString(sum[:]) != u.TextSHA256 {
		t.Skipf("%s is another file than the one upstream read", in.Name)
	}
	return in
}
