package calibrate

import (
	"context"

	"attnbudget/engine/drop"
)

// ledger remembers what has been measured, so that nothing is measured twice, and counts what was asked for.
type ledger struct {
	measure  Measure
	scores   map[point]Score
	asked    map[point]bool
	progress func(asked int)
}

type point struct {
	mask  drop.Mask
	chunk int
}

func newLedger(m Measure) *ledger {
	return &ledger{measure: m, scores: map[point]Score{}, asked: map[point]bool{}}
}

// evaluations is the number of different scores asked for since the last restart.
func (l *ledger) evaluations() int { return len(l.asked) }

// restart begins the count of evaluations anew; what is known stays known.
func (l *ledger) restart() { l.asked = map[point]bool{} }

// score returns the scores of masks on chunks, [mask][chunk]. All masks of a chunk are measured together.
func (l *ledger) score(ctx context.Context, masks []drop.Mask, chunks []int) ([][]Score, error) {
	out := make([][]Score, len(masks))
	for _, chunk := range chunks {
		if err := l.fill(ctx, masks, chunk); err != nil {
			return nil, err
		}
		for i, m := range masks {
			out[i] = append(out[i], l.scores[point{m, chunk}])
		}
	}
	return out, nil
}

// fill measures what is not known of masks on chunk. The undropped model scores zero by definition.
func (l *ledger) fill(ctx context.Context, masks []drop.Mask, chunk int) error {
	var missing []drop.Mask
	for _, m := range masks {
		p := point{m, chunk}
		if m.Empty() {
			l.scores[p] = Score{}
			continue
		}
		l.asked[p] = true
		if _, ok := l.scores[p]; !ok {
			missing = append(missing, m)
		}
	}
	if len(missing) > 0 {
		scores, err := l.measure(ctx, chunk, missing)
		if err != nil {
			return err
		}
		for i, m := range missing {
			l.scores[point{m, chunk}] = scores[i]
		}
	}
	if l.progress != nil {
		l.progress(len(l.asked))
	}
	return nil
}
