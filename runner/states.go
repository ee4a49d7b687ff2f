package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"attnbudget/plan"
	"attnbudget/results"
)

// states is the life of the plan's states: made before the first unit that needs one, removed after the last one.
//
// A state file is used only if the journal says that it was finished in the present environment with the size it has;
// anything else in the folder is removed when the session begins.
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
	paths, err := s.dir.States()
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		id := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
		e, ok := journaled[id]
		if ok && t.needed[id] > 0 && e.Environment == s.o.Environment.ID() && e.Bytes == info.Size() {
			t.ready[id] = true
		} else if err := t.remove(id); err != nil {
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
	if t.needed[id]--; t.needed[id] > 0 || !t.ready[id] {
		return nil
	}
	return t.remove(id)
}

func (t *states) remove(id string) error {
	if err := os.Remove(t.s.dir.StatePath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state: %w", err)
	}
	delete(t.ready, id)
	return t.s.emit(results.Event{Kind: results.EventStateRemoved, State: id})
}

// buildTime is how long the state still takes to be made, as far as that is known.
func (t *states) buildTime(id string) time.Duration {
	if id == "" || t.ready[id] {
		return 0
	}
	return t.took[id]
}
