package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"attnbudget/plan"
	"attnbudget/results"
)

// states is the life of the plan's states: made before the first unit that needs one, removed after the last one.
//
// A state file is used only if the journal says that it was finished in the present environment with the size it has; it is
// removed when the session begins otherwise. What there is of an unfinished state stays as long as a unit may want it, also one
// that failed and can be tried again: whoever makes the state knows whether it can go on from there.
type states struct {
	s      *session
	needed map[string]int           // by state id: units left in the plan, also those this session does not run
	ready  map[string]bool          // its file is there and good
	failed map[string]Output        // it could not be made by this session
	took   map[string]time.Duration // how long making it took, now or in an earlier session
}

func newStates(s *session) (*states, error) {
	t := &states{s, map[string]int{}, map[string]bool{}, map[string]Output{}, map[string]time.Duration{}}
	for _, d := range s.decisions {
		if d.left && d.unit.State != "" {
			t.needed[d.unit.State]++
		}
	}
	journaled, err := t.readJournal()
	if err != nil {
		return nil, err
	}
	files, err := s.dir.StateFiles()
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(files)) {
		info, err := os.Stat(s.dir.StatePath(id))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("state: %w", err)
		}
		e, known := journaled[id]
		t.ready[id] = err == nil && known && t.needed[id] > 0 && e.Environment == s.o.Environment.ID() && e.Bytes == info.Size()
		if err := t.tidy(id, files[id]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// readJournal returns the last event about every state that was finished and not removed.
func (t *states) readJournal() (map[string]results.Event, error) {
	ready := make(map[string]results.Event)
	for e, err := range t.s.dir.Journal() {
		var damaged *results.LineError
		if errors.As(err, &damaged) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch e.Kind {
		case results.EventStateReady:
			ready[e.State] = e
			t.took[e.State] = time.Duration(e.Seconds * float64(time.Second))
		case results.EventStateStart, results.EventStateRemoved:
			delete(ready, e.State)
		}
	}
	return ready, nil
}

// ensure makes the unit's state unless it is there, with the arm that makes it. A failure to make it is the failure of every
// unit that needs it, found out once.
func (t *states) ensure(ctx context.Context, u *plan.Unit, job Job) (Output, error) {
	id := u.State
	if t.ready[id] {
		return Output{}, nil
	}
	if out, ok := t.failed[id]; ok {
		return out, nil
	}
	job.Arm = t.s.arms[t.s.byState[id].Arm]
	if out, err := t.s.prepare(ctx, job); err != nil || out.Failure != nil {
		return out, err
	}
	if err := t.s.emit(results.Event{Kind: results.EventStateStart, State: id}); err != nil {
		return Output{}, err
	}
	start := time.Now()
	job.Kind, job.Checkpoint = JobState, ""
	out, err := t.s.execute(ctx, job)
	if err != nil {
		return out, err
	}
	if out.Failure == nil {
		info, err := os.Stat(job.State)
		if err == nil {
			t.ready[id], t.took[id] = true, time.Since(start)
			return Output{}, t.s.emit(results.Event{Kind: results.EventStateReady, State: id, Environment: t.s.o.Environment.ID(),
				Bytes: info.Size(), Seconds: t.took[id].Seconds()})
		}
		out.Failure = &results.Failure{Kind: results.Crash, Message: err.Error()}
	}
	failure := *out.Failure
	failure.Message = stateName(t.s.byState[id]) + ": " + failure.Message
	out.Failure = &failure
	t.failed[id] = out
	return out, t.s.emit(results.Event{Kind: results.EventStateFailed, State: id, Failure: failure.Kind, Message: failure.Message})
}

// stateName is what people call a state.
func stateName(s plan.State) string {
	if s.Key.Kind == plan.StateLogits {
		return "base logits " + s.ID + " of " + s.Arm
	}
	return "prefilled cache " + s.ID + " of " + s.Arm
}

// release tells that a unit which needed the state has its record.
func (t *states) release(id string) error {
	if id == "" {
		return nil
	}
	if t.needed[id]--; t.needed[id] > 0 {
		return nil
	}
	t.ready[id] = false
	files, err := t.s.dir.StateFiles()
	if err != nil {
		return err
	}
	return t.tidy(id, files[id])
}

// tidy removes the state's files that nobody has a use for: the whole one unless it is ready, the unfinished one if it is, or if
// no unit wants it.
func (t *states) tidy(id string, files []string) error {
	removed := false
	for _, path := range files {
		whole := path == t.s.dir.StatePath(id)
		if whole && t.ready[id] || !whole && !t.ready[id] && wanted(t.s.decisions, id) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("state: %w", err)
		}
		removed = true
	}
	if !removed || t.ready[id] {
		return nil
	}
	return t.s.emit(results.Event{Kind: results.EventStateRemoved, State: id})
}

// wanted reports whether a unit needs the state, now or when it is tried again.
func wanted(decisions []decision, state string) bool {
	return slices.ContainsFunc(decisions, func(d decision) bool { return d.unit.State == state && (d.left || d.failed) })
}

// buildTime is how long the state still takes to be made, as far as that is known.
func (t *states) buildTime(id string) time.Duration {
	if id == "" || t.ready[id] {
		return 0
	}
	return t.took[id]
}
