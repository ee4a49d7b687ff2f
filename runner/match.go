package runner

import (
	"fmt"
	"path"
	"strings"
)

// PatternError is a mistake in Options.Only.
type PatternError struct{ Pattern, Problem string }

func (e *PatternError) Error() string { return fmt.Sprintf("pattern %q: %s", e.Pattern, e.Problem) }

// Match reports whether the pattern matches the whole unit name. Both are compared segment by segment between slashes:
// `*`, `?` and `[a-z]` match inside a segment as in path.Match, and a segment `**` matches any number of segments,
// also none. "perplexity/**" are all perplexity units, "**/Q4_0*/**" all of arms that begin with Q4_0.
func Match(pattern, name string) (bool, error) {
	return matchSegments(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

func matchSegments(pattern, name []string) (bool, error) {
	if len(pattern) == 0 {
		return len(name) == 0, nil
	}
	if pattern[0] == "**" {
		for skip := range len(name) + 1 {
			if ok, err := matchSegments(pattern[1:], name[skip:]); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}
	if len(name) == 0 {
		return false, nil
	}
	ok, err := path.Match(pattern[0], name[0])
	if !ok || err != nil {
		return false, err
	}
	return matchSegments(pattern[1:], name[1:])
}

// chosen reports for every name whether one of the patterns matches it; without patterns all are chosen. A pattern that
// is malformed or matches nothing is an error, since it is a mistake that would otherwise look like a finished run.
func chosen(patterns, names []string) ([]bool, error) {
	out := make([]bool, len(names))
	for i := range out {
		out[i] = len(patterns) == 0
	}
	for _, p := range patterns {
		// path.Match reports a malformed pattern only if the name leads it there.
		for _, segment := range strings.Split(p, "/") {
			if _, err := path.Match(segment, ""); err != nil {
				return nil, &PatternError{p, err.Error()}
			}
		}
		found := false
		for i, name := range names {
			ok, err := Match(p, name)
			if err != nil {
				return nil, &PatternError{p, err.Error()}
			}
			if ok {
				out[i], found = true, true
			}
		}
		if !found {
			example := ""
			if len(names) > 0 {
				example = fmt.Sprintf("; the first one is named %q", names[0])
			}
			return nil, &PatternError{p, "it matches no unit of the plan" + example}
		}
	}
	return out, nil
}
