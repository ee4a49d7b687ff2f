package calibrate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"attnbudget/engine/tokenizer"
)

// leastChunks are needed in each split: with fewer an estimate of the standard error is worth little.
const leastChunks = 8

// corpus is a text cut into chunks the way the perplexity evaluator cuts it: n_ctx tokens each, the first replaced by BOS
// where the model wants one, the second half scored.
type corpus struct {
	sha256  string
	tokens  int
	nctx    int // of a chunk
	bos     bool
	chunks  [][]int32
	outputs []int // positions whose next token is scored
}

func cut(tok *tokenizer.Tokenizer, text []byte, nctx int) (*corpus, error) {
	if nctx < 4 {
		return nil, fmt.Errorf("a context of %d tokens is too short to calibrate with: at least 4", nctx)
	}
	ids := tok.Encode(string(text), true, false)
	sum := sha256.Sum256(text)
	c := &corpus{sha256: hex.EncodeToString(sum[:]), tokens: len(ids), nctx: nctx, bos: tok.AddBOS() && tok.BOS() >= 0}
	for from := 0; from+nctx <= len(ids); from += nctx {
		chunk := ids[from : from+nctx : from+nctx]
		if c.bos {
			chunk[0] = tok.BOS()
		}
		c.chunks = append(c.chunks, chunk)
	}
	for i := nctx / 2; i < nctx-1; i++ {
		c.outputs = append(c.outputs, i)
	}
	return c, nil
}

// split chooses the chunks of the search split, from the first half of the text, and of the held-out split, from the second,
// evenly spaced; at most so many, 0 = all. Halves, not every other chunk, because neighbours may come from one document.
func (c *corpus) split(search, heldout int) (s, h []int, err error) {
	half := len(c.chunks) / 2
	s, h = spread(0, half, search), spread(half, len(c.chunks), heldout)
	if len(s) < leastChunks || len(h) < leastChunks {
		return nil, nil, fmt.Errorf("the calibration text has %d tokens, %d chunks of %d: too few; at least %d chunks are needed for the search and %d to check it; give a longer text or a smaller context",
			c.tokens, len(c.chunks), c.nctx, leastChunks, leastChunks)
	}
	return s, h, nil
}

// spread lists n evenly spaced numbers of [from, to), all when n is 0 or more than there are.
func spread(from, to, n int) []int {
	if n <= 0 || n > to-from {
		n = to - from
	}
	out := make([]int, n)
	for i := range out {
		out[i] = from + i*(to-from)/n
	}
	return out
}
