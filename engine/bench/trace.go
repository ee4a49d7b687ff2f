package bench

import (
	"crypto/sha256"
	"math/rand/v2"

	"attnbudget/engine"
)

// trace draws the tokens of a test: a beginning-of-sequence token where the model wants one, then uniformly random
// ones. What is drawn depends on the name and the vocabulary alone, so all arms of a block get the same tokens.
type trace struct {
	name  string
	bos   int32 // -1 when the model wants none
	vocab int
}

// newTrace needs the model's tokenizer only to know its beginning-of-sequence token.
func newTrace(m *engine.Model, name string) (trace, error) {
	tok, err := m.Tokenizer()
	if err != nil {
		return trace{}, err
	}
	t := trace{name: name, bos: -1, vocab: m.Info().Vocab}
	if tok.AddBOS() {
		t.bos = tok.BOS()
	}
	return t, nil
}

// prompt returns the n tokens of the prompt.
func (t trace) prompt(n int) []int32 { return t.draw("prompt", n) }

// generated returns the n tokens fed one by one in a generation.
func (t trace) generated(n int) []int32 { return t.draw("generated", n) }

func (t trace) draw(part string, n int) []int32 {
	r := rand.New(rand.NewChaCha8(sha256.Sum256([]byte(part + " of " + t.name))))
	out := make([]int32, n)
	for i := range out {
		out[i] = r.Int32N(int32(t.vocab))
	}
	if n > 0 && t.bos >= 0 {
		out[0] = t.bos
	}
	return out
}
