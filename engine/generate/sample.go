package generate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling says how the next token is chosen from the logits. The zero value is greedy.
type Sampling struct {
	Temperature float64 // 0 = greedy: the most likely token
	TopK        int     // keep the k most likely tokens; 0 = all
	TopP        float64 // keep the smallest set of tokens whose probability reaches p; 0 or 1 = all
	Seed        uint64  // of the draw; equal seeds give equal texts
}

// sampler draws tokens. Filters apply in upstream's order: top-k, top-p, temperature, draw.
type sampler struct {
	s    Sampling
	rand *rand.Rand
	pool []candidate // scratch, one per vocabulary entry
}

type candidate struct {
	id    int32
	logit float32
	p     float64
}

func newSampler(s Sampling) *sampler {
	return &sampler{s: s, rand: rand.New(rand.NewPCG(s.Seed, 0))}
}

// next chooses a token. Of equal logits the lowest id wins, as in upstream's greedy sampler.
func (s *sampler) next(logits []float32) int32 {
	if s.s.Temperature <= 0 {
		return argmax(logits)
	}
	s.pool = s.pool[:0]
	for id, l := range logits {
		s.pool = append(s.pool, candidate{id: int32(id), logit: l})
	}
	slices.SortStableFunc(s.pool, func(a, b candidate) int { return cmp.Compare(b.logit, a.logit) })
	kept := s.pool
	if k := s.s.TopK; k > 0 && k < len(kept) {
		kept = kept[:k]
	}
	if p := s.s.TopP; p > 0 && p < 1 {
		kept = nucleus(kept, p)
	}
	softmax(kept, s.s.Temperature)
	return draw(kept, s.rand.Float64())
}

func argmax(logits []float32) int32 {
	best := 0
	for i, l := range logits {
		if l > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// nucleus keeps the fewest leading candidates whose probabilities sum to at least p (Holtzman et al. 2020).
func nucleus(sorted []candidate, p float64) []candidate {
	softmax(sorted, 1)
	sum := 0.0
	for i, c := range sorted {
		if sum += c.p; sum >= p {
			return sorted[:i+1]
		}
	}
	return sorted
}

// softmax sets the probabilities of candidates sorted by falling logit.
func softmax(sorted []candidate, temperature float64) {
	sum := 0.0
	for i := range sorted {
		sorted[i].p = math.Exp(float64(sorted[i].logit-sorted[0].logit) / temperature)
		sum += sorted[i].p
	}
	for i := range sorted {
		sorted[i].p /= sum
	}
}

// draw returns the candidate at u in [0, 1) of the cumulative distribution.
func draw(candidates []candidate, u float64) int32 {
	for _, c := range candidates {
		if u -= c.p; u < 0 {
			return c.id
		}
	}
	return candidates[len(candidates)-1].id
}
