package engine

import (
	"fmt"

	"attnbudget/engine/kvcache"
)

// Batch is tokens to be computed. Positions of a sequence are consecutive, within the batch and from what the context
// already holds.
type Batch struct {
	Tokens []int32
	Pos    []int32   // nil = each token follows its sequence
	Seqs   [][]int32 // Seqs[i]: the sequences token i belongs to, at least one; nil = sequence 0
	Logits []bool    // which tokens want logits; nil = the last one
}

// wants reports whether token i wants logits.
func (b *Batch) wants(i int) bool {
	if b.Logits == nil {
		return i == len(b.Tokens)-1
	}
	return b.Logits[i]
}

// BatchError is a batch that cannot be computed.
type BatchError struct {
	Token  int // index in the batch; -1 = the batch as a whole
	Reason string
}

func (e *BatchError) Error() string {
	if e.Token < 0 {
		return "batch: " + e.Reason
	}
	return fmt.Sprintf("batch: token %d: %s", e.Token, e.Reason)
}

func refuse(token int, format string, args ...any) error {
	return &BatchError{token, fmt.Sprintf(format, args...)}
}

var sequenceZero = []int32{0}

// admit checks a batch and fills in c.pos and c.seqs; c.logits is emptied.
func (c *Context) admit(b *Batch) error {
	n := len(b.Tokens)
	if n == 0 {
		return refuse(-1, "it has no tokens")
	}
	switch {
	case b.Pos != nil && len(b.Pos) != n:
		return refuse(-1, "it has %d tokens but %d positions", n, len(b.Pos))
	case b.Seqs != nil && len(b.Seqs) != n:
		return refuse(-1, "it has %d tokens but sequences for %d", n, len(b.Seqs))
	case b.Logits != nil && len(b.Logits) != n:
		return refuse(-1, "it has %d tokens but says of %d whether they want logits", n, len(b.Logits))
	}
	c.pos, c.seqs, c.logits = c.pos[:0], c.seqs[:0], c.logits[:0]
	var known kvcache.SeqSet
	var next [kvcache.MaxSeqs]int32 // position that follows in a known sequence; 0 = empty so far, any position may come
	for i, token := range b.Tokens {
		if token < 0 || int(token) >= c.model.info.Vocab {
			return refuse(i, "id %d is not in the vocabulary, 0 to %d", token, c.model.info.Vocab-1)
		}
		seqs := sequenceZero
		if b.Seqs != nil {
			seqs = b.Seqs[i]
		}
		set, err := c.sequences(i, seqs)
		if err != nil {
			return err
		}
		for seq := range set.All {
			if !known.Has(seq) {
				known.Add(seq)
				next[seq] = c.memory.Last(seq) + 1
			}
		}
		pos := next[seqs[0]]
		if b.Pos != nil {
			pos = b.Pos[i]
		}
		if pos < 0 {
			return refuse(i, "position %d is negative", pos)
		}
		for seq := range set.All {
			if next[seq] != 0 && pos != next[seq] {
				return refuse(i, "position %d of sequence %d: expected %d, which follows what the context holds", pos, seq, next[seq])
			}
			next[seq] = pos + 1
		}
		c.pos, c.seqs = append(c.pos, pos), append(c.seqs, set)
	}
	return nil
}

// sequences makes a set of the sequences of token i.
func (c *Context) sequences(i int, seqs []int32) (set kvcache.SeqSet, err error) {
	if len(seqs) == 0 {
		return set, refuse(i, "it belongs to no sequence")
	}
	for _, seq := range seqs {
		if seq < 0 || int(seq) >= c.options.NSeqMax {
			return set, refuse(i, "sequence %d: expected 0 to %d; make the context with more sequences", seq, c.options.NSeqMax-1)
		}
		set.Add(seq)
	}
	return set, nil
}
