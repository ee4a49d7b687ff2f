package eval

import (
	"fmt"
	"math"
)

// beyondVocabulary are reasons not to believe a perplexity, for people.
func beyondVocabulary(ppl float64, vocab int) []string {
	if ppl <= float64(vocab) {
		return nil
	}
	return []string{fmt.Sprintf("the perplexity of %.4g exceeds the %d tokens of the vocabulary: blind guesses would do better; the model or the text is not what it should be", ppl, vocab)}
}

// withinChance are reasons not to believe a result of right picks of n tasks, for people: whether the score can be told from
// that of blind guesses, which has the given expectation, by its 95% interval.
func withinChance(right, n int, chance float64) []string {
	if n == 0 {
		return nil
	}
	low, high := wilson(right, n)
	score := 100 * float64(right) / float64(n)
	switch {
	case high < chance:
		return []string{fmt.Sprintf("the score of %.2f%% lies below the %.2f%% of blind guesses: the labels or the model are not what they should be", score, 100*chance)}
	case low <= chance:
		return []string{fmt.Sprintf("the score of %.2f%% over %d tasks cannot be told from the %.2f%% of blind guesses", score, n, 100*chance)}
	}
	return nil
}

// wilson is the 95% score interval of a proportion (Wilson 1927).
func wilson(right, n int) (low, high float64) {
	const z95 = 1.95996398454
	p, z := float64(right)/float64(n), z95*z95/float64(n)
	half := z * math.Sqrt(float64(n)*(4*p*(1-p)+z)) / (2 * z95)
	return (p + z/2 - half) / (1 + z), (p + z/2 + half) / (1 + z)
}
