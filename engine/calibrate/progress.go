package calibrate

import (
	"context"

	"attnbudget/engine/drop"
)

// bar counts evaluations for whoever watches.
type bar struct {
	show  func(Progress)
	stage string
	done  int // in all
	base  int // done when the stage began
	here  int // expected of the stage
	later int // expected after it
}

// begin says which stage begins and how many evaluations are expected of it and of those after it.
func (b *bar) begin(stage string, here, later int) {
	b.stage, b.base, b.here, b.later = stage, b.done, here, later
	b.tell()
}

func (b *bar) tell() {
	if b.show != nil {
		b.show(Progress{Stage: b.stage, Done: b.done, Total: max(b.done, b.base+b.here) + b.later})
	}
}

// counted is measure with the bar.
func (c *calibration) counted(measure Measure) Measure {
	return func(ctx context.Context, chunk int, masks []drop.Mask) ([]Score, error) {
		scores, err := measure(ctx, chunk, masks)
		if err == nil {
			c.bar.done += len(masks)
			c.bar.tell()
		}
		return scores, err
	}
}

// racedShare is about what a race measures of everything.
const racedShare = 0.6

// racing is about how many evaluations k steps over n units take. The first step was measured in phase A.
func (c *calibration) racing(n, k int) int {
	total := 0.0
	for step := 1; step < k; step++ {
		total += racedShare * float64(max(0, n-step)*len(c.search))
	}
	return int(total)
}

// later is about what follows phase A when k steps are taken.
func (c *calibration) later(n, k int) int { return c.racing(n, k) + k*len(c.heldout) }

// foreseen is how many steps greedy takes if damages add up.
func (c *calibration) foreseen(alone []Contender) int {
	sum, k := 0.0, 0
	for _, a := range alone {
		k++
		if sum += estimate(NLL.all(a.Scores)).Mean; sum > c.Settings.MaxDamage || k == c.Settings.Most {
			break
		}
	}
	return k
}
