package campaigns

import (
	"fmt"
	"strings"
)

// nearest returns the known name that wrong was most likely meant to be, "" when none is near: letter case aside, at most
// a third of the letters (and at least one) may have to change.
func nearest(wrong string, known []string) string {
	best, bestDistance := "", max(1, len([]rune(wrong))/3)+1
	for _, name := range known {
		if len(wrong) > 4*len(name)+8 { // no need to measure what cannot be near
			continue
		}
		if d := distance(strings.ToLower(wrong), strings.ToLower(name)); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance is the number of single letters to insert, delete, replace or swap with their neighbour that turn a into b
// (optimal string alignment).
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	before, last, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range last {
		last[j] = j
	}
	for i := range s {
		row[0] = i + 1
		for j := range t {
			change := 1
			if s[i] == t[j] {
				change = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+change)
			if i > 0 && j > 0 && s[i] == t[j-1] && s[i-1] == t[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(t)]
}

// suggestion is the hint for an unknown name: the nearest known one, or all of them when none is near.
func suggestion(wrong string, known []string) string {
	if name := nearest(wrong, known); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	return choices(known)
}

// choices lists what may be written.
func choices(known []string) string {
	switch len(known) {
	case 0:
		return ""
	case 1:
		return "only " + known[0] + " is possible"
	}
	return "possible: " + strings.Join(known, ", ")
}
