package eval

import (
	"fmt"
	"strconv"
	"strings"
)

// Selection says which tasks of a file are evaluated, and in which order.
type Selection struct {
	By   SelectBy
	List Input // of SelectListed: a task a line, by its place in the file (from 0) or its hash
}

// SelectBy is a way to select tasks.
type SelectBy int

// The ways to select. Only SelectDrawn and SelectFirst heed TaskOptions.Tasks.
const (
	SelectDrawn  SelectBy = iota // as upstream draws them
	SelectAll                    // all, in the file's order
	SelectFirst                  // the first ones, in the file's order
	SelectListed                 // those of a list, in the list's order
)

// selectTasks applies o to the tasks of a file; draw is how upstream draws count of n of them. The warnings are for people.
func selectTasks[T Task](file string, all []T, o TaskOptions, draw func(n, count int) []int) (chosen []T, warnings []string, err error) {
	count := len(all)
	if drawn := o.Selection.By == SelectDrawn || o.Selection.By == SelectFirst; drawn && o.Tasks > count {
		warnings = append(warnings, fmt.Sprintf("%s: %d tasks are wanted, it has %d: all are evaluated", file, o.Tasks, count))
	} else if drawn && o.Tasks > 0 {
		count = o.Tasks
	}
	var places []int
	switch o.Selection.By {
	case SelectDrawn:
		places = draw(len(all), count)
	case SelectAll, SelectFirst:
		places = identity(count)
	case SelectListed:
		if places, err = listedTasks(o.Selection.List, file, all); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, fmt.Errorf("selection %d is not known", o.Selection.By)
	}
	for _, i := range places {
		chosen = append(chosen, all[i])
	}
	return chosen, warnings, nil
}

// drawSome is drawSwapping where fewer tasks than there are are wanted; upstream leaves the order of all as it is.
func drawSome(n, count int) []int {
	if count < n {
		return drawSwapping(n, count)
	}
	return identity(n)
}

const hashDigits = 16

// listedTasks are the places of the tasks of a list. Errors are *FormatError.
func listedTasks[T Task](list Input, file string, all []T) ([]int, error) {
	lines, err := list.lines()
	if err != nil {
		return nil, err
	}
	hashes := make(map[string]int)
	for i, t := range all {
		hashes[t.hash()] = i
	}
	var places []int
	seen := make(map[int]int)
	for i, line := range lines {
		fail := func(format string, a ...any) ([]int, error) {
			return nil, &FormatError{list.Name, i + 1, fmt.Sprintf(format, a...)}
		}
		name := strings.TrimSpace(line)
		place, known := hashes[name]
		switch n, err := strconv.Atoi(name); {
		case known:
		case len(name) == hashDigits:
			return fail("no task of %s has the hash %s", file, name)
		case err != nil:
			return fail("%q is neither the place of a task in %s, from 0, nor a hash of %d digits", name, file, hashDigits)
		case n < 0 || n >= len(all):
			return fail("%s has no task %d, only 0 to %d", file, n, len(all)-1)
		default:
			place = n
		}
		if first, twice := seen[place]; twice {
			return fail("the task is on line %d already", first)
		}
		seen[place] = i + 1
		places = append(places, place)
	}
	if len(places) == 0 {
		return nil, &FormatError{list.Name, 0, "the list of tasks is empty"}
	}
	return places, nil
}
