package bench

import (
	"fmt"
	"strconv"
	"strings"
)

// Counts reads a list of llama-bench's kind: numbers and ranges separated by commas, where a range is first-last,
// first-last+step or first-last*factor ("128,512", "0-4096+1024", "1-8*2").
func Counts(list string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(list, ",") {
		values, err := countRange(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q in %q: %w", part, list, err)
		}
		if out = append(out, values...); len(out) > maxCounts {
			return nil, fmt.Errorf("%q has more than %d values", list, maxCounts)
		}
	}
	return out, nil
}

// maxCounts bounds what a mistyped range can ask for.
const maxCounts = 10_000

func countRange(s string) ([]int, error) {
	first, rest, isRange := strings.Cut(s, "-")
	from, err := count(first)
	if err != nil || !isRange {
		return []int{from}, err
	}
	last, by := rest, "+1"
	if i := strings.IndexAny(rest, "+*"); i >= 0 {
		last, by = rest[:i], rest[i:]
	}
	to, err := count(last)
	if err != nil {
		return nil, err
	}
	step, err := count(by[1:])
	if err != nil {
		return nil, err
	}
	if step == 0 || by[0] == '*' && (step < 2 || from == 0) {
		return nil, fmt.Errorf("the range never ends")
	}
	var out []int
	for v := from; v <= to && len(out) <= maxCounts; {
		out = append(out, v)
		if by[0] == '*' {
			v *= step
		} else {
			v += step
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the range is empty")
	}
	return out, nil
}

func count(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is not a count; write a number, a list 128,512 or a range 0-4096+1024", s)
	}
	return int(n), nil
}

// Pair is a test that processes a prompt and then generates, llama-bench's pg.
type Pair struct{ Prompt, Generate int }

// ParsePair reads "512,128".
func ParsePair(s string) (Pair, error) {
	p, g, ok := strings.Cut(s, ",")
	prompt, err1 := count(p)
	generate, err2 := count(g)
	if !ok || err1 != nil || err2 != nil {
		return Pair{}, fmt.Errorf("%q is not a pair; write for instance 512,128", s)
	}
	return Pair{prompt, generate}, nil
}

// Tests combines lists as llama-bench does: for every depth the prompts, then the generations, then the pairs. A 0 among
// prompts or generations means none.
func Tests(base Options, prompts, generates, depths []int, pairs []Pair) []Options {
	var out []Options
	for _, depth := range depths {
		add := func(prompt, generate int) {
			if prompt > 0 || generate > 0 {
				o := base
				o.Prompt, o.Generate, o.Depth = prompt, generate, depth
				out = append(out, o)
			}
		}
		for _, p := range prompts {
			add(p, 0)
		}
		for _, g := range generates {
			add(0, g)
		}
		for _, p := range pairs {
			add(p.Prompt, p.Generate)
		}
	}
	return out
}
