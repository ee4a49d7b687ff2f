package campaigns

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"attnbudget/plan"
)

// blocks walks the blocks of one stage in execution order. yield gets a condition, the number of the repetition, and the
// arms in the order of execution, as indices.
//
// Repetitions are the outer loop and conditions the inner one, so that a drift of the machine meets all arms of a block
// alike and spreads over the blocks; only the sequential order runs the repetitions of an arm one after the other.
func (c *Campaign) blocks(conditions []condition, order string, arms int, yield func(cond condition, block int, position, arm int)) {
	if order == plan.OrderSequential {
		for _, cond := range conditions {
			for a := range arms {
				for block := range cond.Repetitions {
					yield(cond, block, a, a)
				}
			}
		}
		return
	}
	for block := range slices.MaxFunc(conditions, func(a, b condition) int { return a.Repetitions - b.Repetitions }).Repetitions {
		for _, cond := range conditions {
			if block >= cond.Repetitions {
				continue
			}
			for position, a := range c.armOrder(cond, block, order, arms) {
				yield(cond, block, position, a)
			}
		}
	}
}

// armOrder is the order of the arms in one block: as in the matrix and reversed in every second block, or shuffled by a
// generator seeded with the campaign's seed and the block's name.
func (c *Campaign) armOrder(cond condition, block int, order string, arms int) []int {
	out := make([]int, arms)
	for i := range out {
		out[i] = i
	}
	switch order {
	case plan.OrderABBA:
		if block%2 == 1 {
			slices.Reverse(out)
		}
	case plan.OrderRandom:
		seed := sha256.Sum256(fmt.Appendf(nil, "order %s %s", cond.Stage, c.trace(cond, block)))
		r := rand.New(rand.NewChaCha8(seed))
		r.Shuffle(arms, func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}

// trace names what the tokens of a block are drawn from; all its arms share it. Blocks count from 1.
func (c *Campaign) trace(cond condition, block int) string {
	return fmt.Sprintf("seed %d block %d %s", c.Run.Seed, block+1, cond.Name)
}

// depthTrace names what the tokens of a prefilled cache are drawn from: the same for every arm and repetition.
func (c *Campaign) depthTrace(depth int) string {
	return fmt.Sprintf("seed %d depth %d", c.Run.Seed, depth)
}

// order is the one in the file, or the default for the number of arms.
func (c *Campaign) order(arms int) string {
	switch {
	case c.Run.Order != "":
		return c.Run.Order
	case arms == 1:
		return plan.OrderSequential
	case arms == 2:
		return plan.OrderABBA
	}
	return plan.OrderRandom
}

// unitName is a name for people: stage/condition/arm/repetition, the repetition counted from 1. Its parts hold no slash
// and no space, so that it does as a glob target.
func unitName(cond plan.Condition, arm string, block int) string {
	short := strings.TrimPrefix(cond.Name, cond.Stage+" ")
	short = strings.ReplaceAll(short, " @ ", "@")
	return fmt.Sprintf("%s/%s/%s/%03d", cond.Stage, nameable(short), nameable(arm), block+1)
}

// nameable replaces what would be special in a glob or a shell.
func nameable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '/':
			return '-'
		case strings.ContainsRune("*?[]{}\\'\"$`!;&|<>()#~", r) || r < ' ':
			return '_'
		}
		return r
	}, s)
}
