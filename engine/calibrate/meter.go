package calibrate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/drop"
)

// meter measures masks with a model: it is where a Measure comes from.
type meter struct {
	variants *engine.Variants
	corpus   *corpus
	journal  *journal
	vocab    int

	base   map[int][]float32 // hidden states of the undropped model at the outputs of a chunk
	logits []float32         // of the block in progress, [1+masks][positions][vocab]
	hidden []float32
	probs  [][]float32 // scratch of each worker
}

// logitsBlock bounds the logits that are held at once, in numbers: a block is as many positions as fit.
const logitsBlock = 8 << 20

func newMeter(m *engine.Model, v *engine.Variants, c *corpus, j *journal) *meter {
	t := &meter{variants: v, corpus: c, journal: j, vocab: m.Info().Vocab, base: map[int][]float32{}}
	t.probs = make([][]float32, v.Pool().Threads())
	for i := range t.probs {
		t.probs[i] = make([]float32, t.vocab)
	}
	return t
}

// measure is a Measure. What the journal has is not measured again; what is measured is in the journal before it is used.
func (t *meter) measure(ctx context.Context, chunk int, masks []drop.Mask) ([]Score, error) {
	var missing []drop.Mask
	for _, m := range masks {
		if _, ok := t.journal.get(m, chunk); !ok {
			missing = append(missing, m)
		}
	}
	if err := t.fill(ctx, chunk, missing); err != nil {
		return nil, err
	}
	base, _ := t.journal.get(drop.Mask{}, chunk)
	out := make([]Score, len(masks))
	for i, m := range masks {
		e, _ := t.journal.get(m, chunk)
		out[i] = Score{NLL: e.NLL - base.NLL, KL: e.KL}
	}
	return out, nil
}

// fill computes masks on a chunk, as many at once as the variants allow, relatives together.
func (t *meter) fill(ctx context.Context, chunk int, masks []drop.Mask) error {
	slices.SortFunc(masks, relatives)
	for len(masks) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		most := t.variants.Masks()
		_, known := t.base[chunk]
		if !known && most > 1 {
			most-- // the undropped model runs along
		}
		// Passes of even size rather than full ones and a remainder.
		passes := (len(masks) + most - 1) / most
		n := (len(masks) + passes - 1) / passes
		entries, err := t.pass(chunk, masks[:n], known)
		if err != nil {
			return err
		}
		if err := t.journal.add(entries); err != nil {
			return err
		}
		masks = masks[n:]
	}
	return nil
}

// relatives orders masks by their layers from the first on, so that neighbours share the most.
func relatives(a, b drop.Mask) int {
	la, lb := a.Layers(), b.Layers()
	for i := range min(len(la), len(lb)) {
		if la[i] != lb[i] {
			return lb[i] - la[i] // the mask that drops a layer later is the nearer to one that does not
		}
	}
	if d := len(la) - len(lb); d != 0 {
		return d
	}
	return strings.Compare(a.Canonical(), b.Canonical())
}

// pass runs masks on a chunk, and the undropped model as well where its hidden states are not known.
func (t *meter) pass(chunk int, masks []drop.Mask, known bool) ([]entry, error) {
	tokens, outputs := t.corpus.chunks[chunk], t.corpus.outputs
	if !known && t.variants.Masks() == 1 {
		t.base[chunk] = slices.Clone(t.variants.Run(tokens, outputs, []drop.Mask{{}}))
		known = true
	}
	run := masks
	if !known {
		run = append([]drop.Mask{{}}, masks...)
	}
	hidden := t.variants.Run(tokens, outputs, run)
	if n := len(hidden) / len(run); !known {
		t.base[chunk], hidden = slices.Clone(hidden[:n]), hidden[n:]
	}
	return t.score(chunk, t.base[chunk], hidden, masks)
}

// score compares predictions: base [outputs][Embd], hidden [masks][outputs][Embd]. The error is a *NotFiniteError.
func (t *meter) score(chunk int, base, hidden []float32, masks []drop.Mask) ([]entry, error) {
	n, rows := len(t.corpus.outputs), 1+len(masks)
	embd := len(base) / n
	nll, kl := make([]float64, rows*n), make([]float64, rows*n)
	step := max(1, min(n, logitsBlock/(rows*t.vocab)))
	for from := 0; from < n; from += step {
		to := min(from+step, n)
		t.hidden = append(t.hidden[:0], base[from*embd:to*embd]...)
		for i := range masks {
			t.hidden = append(t.hidden, hidden[(i*n+from)*embd:(i*n+to)*embd]...)
		}
		t.logits = slices.Grow(t.logits[:0], rows*(to-from)*t.vocab)[:rows*(to-from)*t.vocab]
		t.variants.Logits(t.logits, t.hidden)
		t.variants.Pool().Run(to-from, func(worker, i int) {
			at := from + i
			target := t.corpus.chunks[chunk][t.corpus.outputs[at]+1]
			p := t.probs[worker]
			var baseZ float64
			for r := range rows {
				x := t.logits[(r*(to-from)+i)*t.vocab:][:t.vocab]
				z := logSumExp(x)
				nll[r*n+at] = z - float64(x[target])
				if r == 0 {
					baseZ = z
					for j, l := range x {
						p[j] = float32(math.Exp(float64(l) - z))
					}
					continue
				}
				kl[r*n+at] = z - baseZ + expectedDifference(p, t.logits[i*t.vocab:][:t.vocab], x)
			}
		})
	}
	out := []entry{{Chunk: chunk, NLL: mean(nll[:n])}}
	for i, m := range masks {
		r := i + 1
		out = append(out, entry{Mask: m.Canonical(), Chunk: chunk, NLL: mean(nll[r*n : (r+1)*n]), KL: mean(kl[r*n : (r+1)*n])})
	}
	for _, e := range out {
		if v := e.NLL + e.KL; math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, &NotFiniteError{e.Mask, chunk, v}
		}
	}
	return out, nil
}

// NotFiniteError is a damage that is not a number, or infinite: it can be neither compared nor stored.
type NotFiniteError struct {
	Mask  string // layers whose attention was dropped; "" = none
	Chunk int
	Value float64
}

func (e *NotFiniteError) Error() string {
	if e.Mask == "" {
		return fmt.Sprintf("calibration: chunk %d: the model gives a log-probability of %v with nothing dropped: its weights make it overflow", e.Chunk, e.Value)
	}
	return fmt.Sprintf("calibration: chunk %d: the model gives a log-probability of %v without the attention of layers %s: it overflows there", e.Chunk, e.Value, e.Mask)
}

func logSumExp(x []float32) float64 {
	top := float64(slices.Max(x))
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	return top + math.Log(sum)
}

// expectedDifference is the mean of a-b under the probabilities p.
func expectedDifference(p, a, b []float32) float64 {
	var sum float64
	for i, w := range p {
		sum += float64(w) * (float64(a[i]) - float64(b[i]))
	}
	return sum
}

func mean(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
