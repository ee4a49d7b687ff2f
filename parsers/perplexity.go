package parsers

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
)

var (
	// perplexityStart announces how much is to come. Builds before 2024 do not print n_ctx.
	perplexityStart = regexp.MustCompile(`calculating perplexity over (\d+) chunks(?:, n_ctx=(\d+))?,`)
	// perplexityFinal may stand behind an estimate of time that had no line end of its own.
	perplexityFinal = regexp.MustCompile(`Final estimate: PPL = (\S+) \+/- (\S+)$`)
	fourDecimals    = regexp.MustCompile(`^-?\d+\.\d{4}$`)
	fiveDecimals    = regexp.MustCompile(`^-?\d+\.\d{5}$`)
)

// announcement is what is known of a perplexity run before its first chunk. Zero fields were not printed.
type announcement struct {
	line, chunks, context int
}

// scored is the number of tokens of each chunk that count: the second half without the last, which has no successor.
func (a announcement) scored() int {
	if a.context == 0 {
		return 0
	}
	return a.context - 1 - a.context/2
}

func announced(t *text) (announcement, error) {
	m, l := t.first(perplexityStart)
	if m == nil {
		return announcement{}, nil
	}
	a := announcement{line: l}
	var err error
	if a.chunks, err = whole(l, "chunks", m[1]); err != nil {
		return a, err
	}
	if m[2] == "" {
		return a, nil
	}
	a.context, err = whole(l, "n_ctx", m[2])
	if err == nil && a.scored() < 1 {
		err = contradiction(l, "an n_ctx that leaves a token to score", m[2])
	}
	return a, err
}

// finalEstimate reads the line that upstream prints when, and only when, all chunks are done.
func finalEstimate(t *text) (ppl, stderr float64, l int, err error) {
	m, l := t.first(perplexityFinal)
	if m == nil {
		last := len(t.lines)
		return 0, 0, 0, truncated(last, `"Final estimate: PPL = ..." after the last chunk`, "the end of the output")
	}
	if ppl, err = number(l, "PPL", m[1]); err != nil {
		return 0, 0, l, err
	}
	if stderr, err = number(l, "the error of PPL", m[2]); err != nil {
		return 0, 0, l, err
	}
	if !fourDecimals.MatchString(m[1]) || !fiveDecimals.MatchString(m[2]) {
		return 0, 0, l, truncated(l, "PPL with four and its error with five decimals", quote(m[0]))
	}
	if ppl < 1-0.5e-4 {
		return 0, 0, l, contradiction(l, "a perplexity of at least 1", m[1])
	}
	return ppl, stderr, l, nil
}

// runningValue is "[k]value,", the perplexity of the first k chunks.
type runningValue struct {
	line  int
	index int
	value float64
}

var runningToken = regexp.MustCompile(`^\[(\d+)\]([^,\[\]\s]*),`)

// running collects the values from every line that begins with one, since logs on the same terminal cut the line.
func running(t *text) ([]runningValue, error) {
	var out []runningValue
	for _, l := range t.lines {
		rest := l.text
		for {
			m := runningToken.FindStringSubmatch(rest)
			if m == nil {
				break
			}
			i, err := whole(l.n, "chunk number", m[1])
			if err != nil {
				return nil, err
			}
			v, err := number(l.n, "the perplexity after chunk "+m[1], m[2])
			if err != nil {
				return nil, err
			}
			if !fourDecimals.MatchString(m[2]) {
				return nil, malformed(l.n, "a running perplexity with four decimals", quote(m[0]))
			}
			if i != len(out)+1 {
				return nil, contradiction(l.n, fmt.Sprintf("chunk %d", len(out)+1), "chunk "+m[1])
			}
			out = append(out, runningValue{l.n, i, v})
			rest = rest[len(m[0]):]
		}
		if len(rest) < len(l.text) && rest != "" {
			return nil, truncated(l.n, "only values of the form [chunk]perplexity,", quote(rest))
		}
	}
	return out, nil
}

// countChunks compares how many chunks came with how many were announced.
func countChunks(a announcement, found, l int) error {
	switch want := fmt.Sprintf("%d chunks, as announced in line %d", a.chunks, a.line); {
	case a.chunks == 0:
		return nil
	case found < a.chunks:
		return truncated(l, want, strconv.Itoa(found))
	case found > a.chunks:
		return contradiction(l, want, strconv.Itoa(found))
	}
	return nil
}

// tokenError is upstream's standard error of the mean nll over n tokens taken as independent.
func tokenError(nll, nll2 float64, n int) (float64, bool) {
	if n < 2 {
		return 0, false
	}
	mean := nll / float64(n)
	v := nll2/float64(n) - mean*mean
	return math.Sqrt(max(v, 0) / float64(n-1)), true
}
