package realmodels

import (
	"fmt"
	"math"
	"testing"
)

// result is what the engine gave, as far as it was asked.
type result struct {
	window, chunks        []float64
	choices               [][]int32
	hellaSwag, winogrande []pick
	goldHS, goldWG        []int
}

// sizes are how much of everything is taken.
type sizes struct{ window, chunks, continuations, hellaSwag, winogrande int }

func (u *upstream) sizes() sizes {
	return sizes{len(u.Window.NLL), len(u.ChunkNLL), len(u.Continuations), len(u.HellaSwag), len(u.Winogrande)}
}

func (s *subject) measure(t *testing.T, u *upstream, n sizes) *result {
	r := &result{}
	in := u.text(t)
	t.Run("window", func(t *testing.T) { r.window = s.window(t, in, u.Window.Tokens, n.window) })
	t.Run("chunks", func(t *testing.T) { r.chunks = s.chunks(t, in, n.chunks) })
	t.Run("continuations", func(t *testing.T) {
		for _, c := range u.Continuations[:n.continuations] {
			r.choices = append(r.choices, s.choices(t, c))
		}
	})
	t.Run("hellaswag", func(t *testing.T) { r.hellaSwag, r.goldHS = s.hellaSwag(t, len(u.HellaSwag), n.hellaSwag) })
	t.Run("winogrande", func(t *testing.T) { r.winogrande, r.goldWG = s.winogrande(t, len(u.Winogrande), n.winogrande) })
	return r
}

// result is upstream's other way as if it were ours. Its greedy choices are compared as far as the continuations are the
// same, since it made its own.
func (u *upstream) result(to *upstream) *result {
	r := &result{window: u.Window.NLL, chunks: u.ChunkNLL, hellaSwag: u.HellaSwag, winogrande: u.Winogrande}
	for i, c := range u.Continuations {
		n := 0
		for n < len(c.Tokens) && c.Tokens[n] == to.Continuations[i].Tokens[n] {
			n++
		}
		r.choices = append(r.choices, c.Tokens[:min(n+1, len(c.Tokens))])
	}
	return r
}

// comparison of a result with upstream's.
type comparison struct {
	window, chunks        perplexities
	choices               counts
	gaps                  []string // what was chosen otherwise although upstream's choice was not close
	worstGap              float64  // by which upstream's choice was ahead where another was made
	hellaSwag, winogrande counts
}

func compare(t *testing.T, r *result, u *upstream) comparison {
	t.Helper()
	c := comparison{window: comparePerplexity(r.window, u.Window.NLL, windowBlock), chunks: comparePerplexity(r.chunks, u.ChunkNLL, chunkTokens)}
	c.window.tokens-- // the very first one is not predicted
	for i, choices := range r.choices {
		want := u.Continuations[i]
		for j, token := range choices {
			c.choices.add(token == want.Tokens[j])
			if token == want.Tokens[j] {
				continue
			}
			c.worstGap = max(c.worstGap, want.Gaps[j])
			if want.Gaps[j] > maxGap {
				c.gaps = append(c.gaps, fmt.Sprintf("%q: token %d is %d; upstream's %d was ahead by %.3g", want.Prompt, j+1, token, want.Tokens[j], want.Gaps[j]))
			}
		}
	}
	c.hellaSwag = comparePicks(t, r.hellaSwag, u.HellaSwag, r.goldHS)
	c.winogrande = comparePicks(t, r.winogrande, u.Winogrande, r.goldWG)
	return c
}

// chunkTokens is how many tokens of a chunk of 512 are scored.
const chunkTokens = 255

// perplexities are two sums of negative log-likelihood over the same tokens.
type perplexities struct {
	ours, theirs float64
	tokens       int
	apart        float64 // largest relative difference of a block's sum
}

func comparePerplexity(ours, theirs []float64, block int) perplexities {
	p := perplexities{tokens: len(ours) * block}
	for i, v := range ours {
		p.ours, p.theirs = p.ours+v, p.theirs+theirs[i]
		p.apart = max(p.apart, math.Abs(v/theirs[i]-1))
	}
	return p
}

// difference is the relative difference of the perplexities.
func (p perplexities) difference() float64 { return math.Exp((p.ours-p.theirs)/float64(p.tokens)) - 1 }

func (p perplexities) String() string {
	n := float64(p.tokens)
	return fmt.Sprintf("%.4f, upstream %.4f: %+.4f%%", math.Exp(p.ours/n), math.Exp(p.theirs/n), 100*p.difference())
}

// counts are decisions that were made alike, and tasks that were solved.
type counts struct {
	all, equal         int
	right, rightTheirs int
	distance           float64 // largest, of a score
}

func (c *counts) add(equal bool) {
	c.all++
	if equal {
		c.equal++
	}
}

func comparePicks(t *testing.T, ours, theirs []pick, gold []int) counts {
	t.Helper()
	var c counts
	for i, p := range ours {
		want := theirs[i]
		if p.Task != want.Task {
			t.Fatalf("task %d of the file where upstream takes %d", p.Task, want.Task)
		}
		c.add(p.Pick == want.Pick)
		if gold != nil && p.Pick == gold[i] {
			c.right++
		}
		if gold != nil && want.Pick == gold[i] {
			c.rightTheirs++
		}
		for j, score := range p.Scores {
			c.distance = max(c.distance, math.Abs(score-want.Scores[j]))
		}
	}
	return c
}

func (c counts) String() string {
	text := fmt.Sprintf("%d of %d equal", c.equal, c.all)
	if c.distance > 0 {
		text += fmt.Sprintf(", scores at most %.2g apart", c.distance)
	}
	if c.right > 0 {
		text += fmt.Sprintf("; right %d, upstream %d", c.right, c.rightTheirs)
	}
	return text
}
