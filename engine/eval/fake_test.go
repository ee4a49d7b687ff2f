package eval

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"attnbudget/engine"
)

// hashModel is a Context whose logits depend on all tokens of a sequence and their positions, and on nothing else, so
// that a row mapped wrongly or a forgotten token shows in every score.
type hashModel struct {
	vocab   int
	part    int // NUBatch
	seed    uint64
	history map[int32][]int32
	logits  map[int][]float32
	poison  func(history []int32) bool // rows that come out as NaN
	decodes int
	fail    error // of the next Decode
}

func newHashModel(vocab, part int) *hashModel {
	return &hashModel{vocab: vocab, part: part, history: map[int32][]int32{}}
}

func (m *hashModel) NBatch() int { return 2048 }

func (m *hashModel) NUBatch() int { return m.part }

func (m *hashModel) Clear() { clear(m.history) }

func (m *hashModel) Decode(ctx context.Context, b *engine.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.fail != nil {
		return m.fail
	}
	if len(b.Tokens) > m.part {
		return fmt.Errorf("%d tokens at once, at most %d expected", len(b.Tokens), m.part)
	}
	m.decodes++
	m.logits = map[int][]float32{}
	for i, token := range b.Tokens {
		first := b.Seqs[i][0]
		for _, s := range b.Seqs[i] {
			if int(b.Pos[i]) != len(m.history[s]) || !slices.Equal(m.history[s], m.history[first]) {
				return fmt.Errorf("token %d at position %d of sequence %d, which has %d", i, b.Pos[i], s, len(m.history[s]))
			}
		}
		for _, s := range b.Seqs[i] {
			m.history[s] = append(slices.Clip(m.history[s]), token)
		}
		if b.Logits[i] {
			m.logits[i] = m.after(m.history[first])
		}
	}
	return nil
}

func (m *hashModel) Logits(i int) []float32 {
	l, ok := m.logits[i]
	if !ok {
		panic(fmt.Sprintf("logits of row %d were not asked for", i))
	}
	return l
}

// after is the logits behind a sequence.
func (m *hashModel) after(history []int32) []float32 {
	h := fnv.New64a()
	for _, t := range history {
		fmt.Fprintf(h, "%d,", t)
	}
	rng := rand.New(rand.NewPCG(h.Sum64(), m.seed))
	out := make([]float32, m.vocab)
	for i := range out {
		out[i] = float32(3 * rng.NormFloat64())
	}
	if m.poison != nil && m.poison(history) {
		out[m.vocab/2] = float32(math.NaN())
	}
	return out
}

// logProbAfter is the reference: log-softmax in float64 of the logits behind a sequence.
func (m *hashModel) logProbAfter(history []int32, token int32) float64 {
	l := m.after(history)
	sum := 0.0
	for _, v := range l {
		sum += math.Exp(float64(v))
	}
	return float64(l[token]) - math.Log(sum)
}
