package eval

import (
	"encoding/binary"
	"math"

	"attnbudget/engine/kernel/upstream"
)

// Upstream's logits file: the eight bytes "_logits_"; int32 n_ctx, n_vocab, n_chunk; the tokens; then per scored token
// uint16 [2·⌈n_vocab/2⌉+4]: float32 scale, float32 lowest log-probability, and a code per vocabulary entry,
// log p = scale·code + lowest. What lies more than 16 below the mode is raised to that.

const (
	codedMagic     = "_logits_"
	codedHeadBytes = len(codedMagic) + 3*4
	codeRange      = 16 // nats below the mode that codes cover
)

// codesPerRow is the number of uint16 of one scored token.
func codesPerRow(vocab int) int { return 2*((vocab+1)/2) + 4 }

func (p *Perplexity) codedHead() []byte {
	b := []byte(codedMagic)
	for _, n := range []int{p.NCtx, p.vocab, p.Chunks} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

func parseCodedHead(head []byte) (logitsFile, error) {
	number := func(i int) int { return int(int32(binary.LittleEndian.Uint32(head[len(codedMagic)+4*i:]))) }
	return logitsFile{logitsLayout: logitsLayout{LogitsUpstream, number(0), number(1), number(2)}}, nil
}

// encodeCodes writes one row and gives the log-probability of token, in upstream's float32 steps.
func encodeCodes(row []byte, logits []float32, token int32) float64 {
	top, low := logits[0], logits[0]
	for _, l := range logits[1:] {
		top, low = max(top, l), min(low, l)
	}
	low = max(low, top-codeRange)
	logSum := float32(math.Log(sumExp(logits, top)))
	scale := (top - low) / 65535
	clear(row)
	binary.LittleEndian.PutUint32(row, math.Float32bits(scale))
	binary.LittleEndian.PutUint32(row[4:], math.Float32bits(low-top-logSum))
	codes := row[8:]
	if scale > 0 {
		inverse := 1 / scale
		for i, l := range logits {
			var code uint16
			if l > low {
				code = uint16(math.RoundToEven(float64(inverse * (l - low))))
			}
			binary.LittleEndian.PutUint16(codes[2*i:], code)
		}
	}
	return -float64(top + logSum - logits[token])
}

// compareCodes compares logits with a row, in upstream's float32 steps: Σ p·(log p − log q) over the entries whose base
// log-probability is above -16.
func compareCodes(logits []float32, row []byte, token int32) (point, error) {
	top, mode := logits[0], 0
	for i, l := range logits {
		if l > top || math.IsNaN(float64(l)) { // a NaN stays, and shows in the sums
			top, mode = l, i
		}
	}
	logSum := float32(math.Log(sumExp(logits, top)))
	scale := math.Float32frombits(binary.LittleEndian.Uint32(row))
	lowest := math.Float32frombits(binary.LittleEndian.Uint32(row[4:]))
	codes := row[8:]
	base := func(i int) float32 { return scale*float32(binary.LittleEndian.Uint16(codes[2*i:])) + lowest }

	p := point{nll: top + logSum - logits[token], nllBase: -base(int(token))}
	normalizer := top + logSum
	baseMode, baseTop := 0, base(0)
	var sum float64
	for i, l := range logits {
		logP := base(i)
		if logP > baseTop {
			baseTop, baseMode = logP, i
		}
		if logP > -codeRange {
			probability := upstream.ScalarExp(logP)
			sum += float64(probability)
			p.kld += float64(probability * (logP - l + normalizer))
		}
	}
	p.sameTop = mode == baseMode
	// Rounding moves every probability by half a step at most, and the entries that are not counted have e⁻¹⁶ each.
	if slack := 1e-3 + float64(len(logits))*math.Exp(-codeRange); !(math.Abs(sum-1) <= slack) {
		return p, &rowError{sum}
	}
	return p, nil
}
