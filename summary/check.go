package summary

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Difference is a file that is not what the records give.
type Difference struct {
	File   string
	Line   int    // first that differs, from 1; 0: the file as a whole
	Reason string // what is on disk and what was expected
}

func (d Difference) String() string {
	if d.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", d.File, d.Line, d.Reason)
	}
	return d.File + ": " + d.Reason
}

// Check rebuilds the summary of the run directory and compares it with what is there: byte for byte, but for the last
// digits of fractions, which need not be the same on another processor. No difference is an empty list.
func Check(dir string) ([]Difference, error) {
	s, err := Build(dir)
	if err != nil {
		return nil, err
	}
	want, err := s.Files()
	if err != nil {
		return nil, err
	}
	onDisk, err := tableFiles(dir)
	if err != nil {
		return nil, err
	}
	var out []Difference
	for _, name := range onDisk {
		if _, expected := want[name]; !expected {
			out = append(out, Difference{name, 0, "is there, but the plan has no such table"})
		}
	}
	for name, data := range want {
		found, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			out = append(out, Difference{name, 0, "missing"})
		case err != nil:
			return nil, err
		default:
			if d, differs := firstDifference(name, found, data); differs {
				out = append(out, d)
			}
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.File, b.File) })
	return out, nil
}

// firstDifference finds the first line that is not the same.
func firstDifference(name string, found, want []byte) (d Difference, differs bool) {
	if bytes.Equal(found, want) {
		return Difference{}, false
	}
	f, w := strings.Split(string(found), "\n"), strings.Split(string(want), "\n")
	line := func(s []string, i int) string {
		if i >= len(s) {
			return "the end of the file"
		}
		return fmt.Sprintf("%q", strings.TrimSpace(s[i]))
	}
	for i := range max(len(f), len(w)) {
		if i >= len(f) || i >= len(w) || !sameLine(f[i], w[i]) {
			return Difference{name, i + 1, fmt.Sprintf("found %s, the records give %s", line(f, i), line(w, i))}, true
		}
	}
	return Difference{}, false
}

// How far fractions of the same records may be apart: logarithms, quantiles and sums are rounded otherwise where
// multiplication and addition are fused, and an effect of nothing is a difference of nearly equal numbers.
const (
	relativeSlack = 1e-9
	absoluteSlack = 1e-12
)

// word is what stands between the delimiters of JSON and CSV.
var word = regexp.MustCompile(`[^\s,:\[\]]+`)

func sameLine(found, want string) bool {
	if found == want {
		return true
	}
	f, w := word.FindAllString(found, -1), word.FindAllString(want, -1)
	return slices.EqualFunc(f, w, sameWord) && word.ReplaceAllString(found, "x") == word.ReplaceAllString(want, "x")
}

// sameWord holds whole numbers, names and hashes to the letter.
func sameWord(found, want string) bool {
	if found == want {
		return true
	}
	if !strings.Contains(found+want, ".") {
		return false
	}
	f, errF := strconv.ParseFloat(found, 64)
	w, errW := strconv.ParseFloat(want, 64)
	return errF == nil && errW == nil && math.Abs(f-w) <= max(absoluteSlack, relativeSlack*math.Abs(w))
}
