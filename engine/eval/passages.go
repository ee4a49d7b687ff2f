package eval

import "attnbudget/engine"

// passages is a text in chunks of NCtx tokens. The first half of a chunk is context, the second is predicted. With a stride
// the chunks overlap: each begins Stride tokens behind the one before, and its last Stride tokens are predicted, so that
// every token from the first chunk's predicted ones on is predicted once, from at least NCtx-Stride tokens.
type passages struct {
	NCtx   int // tokens of a chunk
	Stride int // 0: chunks stand side by side
	bos    int32
	addBOS bool // the first token of a chunk, which nothing predicts, gives way to BOS
	tokens []int32
}

// first is the first position whose logits are scored; they predict the token behind it.
func (p passages) first() int {
	if p.Stride > 0 {
		return p.NCtx - 1 - p.Stride
	}
	return p.NCtx / 2
}

// step is how far the beginnings of two chunks lie apart.
func (p passages) step() int {
	if p.Stride > 0 {
		return p.Stride
	}
	return p.NCtx
}

// whole is how many chunks the text has; what is left at its end is not evaluated.
func (p passages) whole() int { return (len(p.tokens)-p.NCtx)/p.step() + 1 }

// scored is how many tokens of a chunk are predicted.
func (p passages) scored() int { return p.NCtx - 1 - p.first() }

// parallel is how many chunks upstream decodes at once, and the tokens of such a batch as it counts them.
func (p passages) parallel(nBatch int) (nSeq, batch int) {
	nSeq = max(1, nBatch/p.NCtx)
	return nSeq, min(nBatch, nSeq*p.NCtx)
}

// passTokens is the physical batch of upstream's default.
const passTokens = 512

// pass is how many chunks are decoded at once here: those that fill a physical batch. More would be no faster, would need
// memory for the logits of all of them, and a killed evaluation would lose them all.
func (p passages) pass() int { return max(1, passTokens/p.NCtx) }

// contextOptions is base with the size that a pass needs.
func (p passages) contextOptions(base engine.ContextOptions) engine.ContextOptions {
	base.NCtx, base.NBatch, base.NSeqMax = p.pass()*p.NCtx, p.pass()*p.NCtx, p.pass()
	return base
}

// batch puts n chunks from chunk start (from 0) side by side. rows[i] predicts targets[i]; there are scored() a chunk.
func (p passages) batch(start, n int) (b *batch, rows []int, targets []int32) {
	b = &batch{}
	for seq := range n {
		tokens := p.tokens[(start+seq)*p.step():][:p.NCtx]
		for pos, token := range tokens {
			if pos >= p.first() && pos < p.NCtx-1 {
				rows = append(rows, len(b.Tokens))
				targets = append(targets, tokens[pos+1])
			}
			if pos == 0 && p.addBOS {
				token = p.bos
			}
			b.add(token, pos, pos >= p.first(), int32(seq))
		}
	}
	return b, rows, targets
}
