package runner

import (
	"fmt"
	"os"
	"slices"

	"attnbudget/plan"
	"attnbudget/results"

	"github.com/shirou/gopsutil/v4/disk"
)

// DiskError refuses to begin what the disk has no room for.
type DiskError struct {
	Path       string // of the run directory
	Need, Free int64  // bytes
}

func (e *DiskError) Error() string {
	const mib = 1 << 20
	return fmt.Sprintf("%s: states (prefilled caches, logits to compare with) will take up to %d MiB and the disk has %d MiB free: "+
		"make room, choose another --dir, or plan fewer depths or chunks", e.Path, e.Need/mib, e.Free/mib)
}

// checkDisk compares what the states of the coming units take with the free space. What there is of a state, whole or not, is
// used, replaced or removed, so its space counts as free; unless units want it that this session does not run. Where the system
// does not tell, nothing is refused.
func checkDisk(p *plan.Plan, dir *results.Dir, decisions []decision) error {
	units := unitsWithStates(decisions)
	need := p.StateBytes(units)
	if need == 0 {
		return nil
	}
	usage, err := disk.Usage(dir.Path())
	if err != nil {
		return nil
	}
	there, err := ownBytes(dir, decisions, units)
	if err != nil {
		return err
	}
	if free := int64(min(usage.Free, 1<<62)) + there; need > free {
		return &DiskError{dir.Path(), need, free}
	}
	return nil
}

// ownBytes is the space of the files of states that this session uses, replaces or removes.
func ownBytes(dir *results.Dir, decisions []decision, units []plan.Unit) (int64, error) {
	files, err := dir.StateFiles()
	if err != nil {
		return 0, err
	}
	var sum int64
	for id, paths := range files {
		loaded := slices.ContainsFunc(units, func(u plan.Unit) bool { return u.State == id })
		if !loaded && wanted(decisions, id) {
			continue
		}
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil {
				sum += info.Size()
			}
		}
	}
	return sum, nil
}

// unitsWithStates are the units whose states this session makes or keeps: those that run, and those that are left for
// another session and load the same states.
func unitsWithStates(decisions []decision) []plan.Unit {
	loaded := map[string]bool{}
	for _, d := range decisions {
		if d.runs() && d.unit.State != "" {
			loaded[d.unit.State] = true
		}
	}
	var out []plan.Unit
	for _, d := range decisions {
		if d.left && loaded[d.unit.State] {
			out = append(out, *d.unit)
		}
	}
	return out
}
