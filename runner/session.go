package runner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"attnbudget/plan"
	"attnbudget/results"
)

// session is one process run on a run directory, between taking the lock and giving it back.
type session struct {
	id        string
	dir       *results.Dir
	journal   *results.Journal
	plan      *plan.Plan
	o         Options
	executor  Executor
	reporter  Reporter
	decisions []decision
	estimator *estimator
	states    *states
	models    *modelFiles

	arms       map[string]plan.Arm
	conditions map[string]plan.Condition
	byModel    map[string]plan.Model
	byState    map[string]plan.State // by id

	prepared map[string]Output // by arm
	blocks   map[blockOf]bool  // begun by this session
	tasks    int               // units this session set out to run
	summary  Summary
}

// newSession makes the run directory ready: plan and environment stored.
func newSession(p *plan.Plan, dir *results.Dir, o Options, x Executor, r Reporter, decisions []decision, inv *inventory) (*session, error) {
	s := &session{
		id: newSessionID(), dir: dir, plan: p, o: o, executor: x, reporter: r, decisions: decisions,
		estimator: newEstimator(p, inv), models: newModelFiles(p.Models),
		arms: map[string]plan.Arm{}, conditions: map[string]plan.Condition{}, byModel: map[string]plan.Model{}, byState: map[string]plan.State{},
		prepared: map[string]Output{}, blocks: map[blockOf]bool{}, tasks: len(selected(decisions)),
	}
	for _, a := range p.Arms {
		s.arms[a.Name] = a
	}
	for _, c := range p.Conditions {
		s.conditions[c.Name] = c
	}
	for _, m := range p.Models {
		s.byModel[m.Name] = m
	}
	for _, state := range p.States {
		s.byState[state.ID] = state
	}
	if err := s.checkReferences(); err != nil {
		return nil, err
	}
	if err := errors.Join(keepReports(dir, p), dir.SetPlan(o.Campaign, p), dir.WriteEnvironment(*o.Environment)); err != nil {
		return nil, err
	}
	journal, err := dir.OpenJournal()
	if err != nil {
		return nil, err
	}
	s.journal = journal
	if err := s.begin(inv); err != nil {
		return nil, errors.Join(err, journal.Close())
	}
	return s, nil
}

// checkReferences refuses a plan whose units name what it does not have, before anything is executed.
func (s *session) checkReferences() error {
	for i := range s.plan.Units {
		u := &s.plan.Units[i]
		arm, ok := s.arms[u.Arm]
		if !ok {
			return fmt.Errorf("plan: unit %s is of arm %q, which the plan does not have", u.Name, u.Arm)
		}
		if _, ok := s.byModel[arm.Model]; !ok {
			return fmt.Errorf("plan: arm %s is of model %q, which the plan does not have", u.Arm, arm.Model)
		}
		if _, ok := s.conditions[u.Condition]; !ok {
			return fmt.Errorf("plan: unit %s is at condition %q, which the plan does not have", u.Name, u.Condition)
		}
		if u.State == "" {
			continue
		}
		state, ok := s.byState[u.State]
		if !ok {
			return fmt.Errorf("plan: unit %s needs state %q, which the plan does not have", u.Name, u.State)
		}
		if maker, ok := s.arms[state.Arm]; !ok || maker.Model != arm.Model {
			return fmt.Errorf("plan: state %s, which unit %s needs, is made by arm %q: the plan has no such arm of model %s", u.State, u.Name, state.Arm, arm.Model)
		}
	}
	return nil
}

func newSessionID() string {
	var b [3]byte
	rand.Read(b[:])
	return time.Now().UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(b[:])
}

// begin journals the session and removes files of work that earlier sessions left and this one cannot use.
func (s *session) begin(inv *inventory) error {
	err := errors.Join(
		s.emit(results.Event{Kind: results.EventSessionStart, Environment: s.o.Environment.ID(), Message: s.o.Command}),
		s.emit(results.Event{Kind: results.EventPlan, Message: s.plan.CampaignSHA256}))
	if err != nil {
		return err
	}
	for _, d := range s.decisions {
		if damaged := inv.damaged[d.unit.ID]; damaged != nil {
			s.report(Event{Event: results.Event{Kind: EventNote, Message: damaged.Error() + "; the unit is run again"}})
		}
	}
	if s.states, err = newStates(s); err != nil {
		return err
	}
	return s.removeStaleCheckpoints()
}

// removeStaleCheckpoints deletes checkpoints of units that need none any more, and says so of those that the plan has lost before
// they were finished.
func (s *session) removeStaleCheckpoints() error {
	keep, known := make(map[string]bool), make(map[string]bool)
	for _, d := range s.decisions {
		path := s.dir.CheckpointPath(d.unit.ID)
		keep[path], known[path] = d.left || d.failed, true
	}
	paths, err := s.dir.Checkpoints()
	if err != nil {
		return err
	}
	for _, path := range paths {
		if !keep[path] {
			if !known[path] {
				s.report(Event{Event: results.Event{Kind: EventNote, Message: "what was finished of unit " + strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)) +
					" is dropped: the plan, its kernels included, has changed and has no such unit"}})
			}
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("stale checkpoint: %w", err)
			}
		}
	}
	return nil
}

// emit writes an event to the journal and then reports it.
func (s *session) emit(e results.Event) error {
	e.Session, e.Time = s.id, time.Now()
	if err := s.journal.Append(e); err != nil {
		return err
	}
	s.report(Event{Event: e})
	return nil
}

// report completes an event with the counts and reports it.
func (s *session) report(e Event) {
	if e.Time.IsZero() {
		e.Session, e.Time = s.id, time.Now()
	}
	c := count(s.decisions)
	todo := selected(s.decisions)
	e.Total, e.Done, e.Failed = s.tasks, s.summary.Ran, c.Failed
	if len(s.decisions) > 0 { // calibrations have none
		e.LeftSeconds = s.estimator.left(todo)
	}
	s.reporter.Report(e)
}

// run executes the selected units in plan order.
func (s *session) run(ctx context.Context) (err error) {
	for i := range s.decisions {
		d := &s.decisions[i]
		if !d.runs() {
			continue
		}
		if stop := s.mustStop(ctx, i); stop != "" {
			s.summary.Stopped = stop
			break
		}
		if err = s.unit(ctx, d); err != nil {
			break
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		s.summary.Stopped, err = StoppedAbort, nil
	case err != nil:
		s.summary.Stopped = StoppedFailed
	}
	if s.summary.Stopped == StoppedAbort || s.summary.Stopped == StoppedAsked {
		return ErrInterrupted
	}
	return err
}

// mustStop says why the task of decision i is not begun, "" if it is.
func (s *session) mustStop(ctx context.Context, i int) string {
	if ctx.Err() != nil {
		return StoppedAbort
	}
	select {
	case <-s.o.Stop:
		return StoppedAsked
	default:
	}
	if !s.o.Until.IsZero() && s.startsBlock(i) {
		if now := time.Now(); !now.Before(s.o.Until) || now.Add(s.blockTime(i)).After(s.o.Until) {
			return StoppedUntil
		}
	}
	return ""
}

// startsBlock reports whether decision i's unit is the first selected one of an uninterrupted stretch of its block.
func (s *session) startsBlock(i int) bool {
	for j := i - 1; j >= 0; j-- {
		if block(s.decisions[j].unit) != block(s.decisions[i].unit) {
			return true
		}
		if s.decisions[j].ranHere {
			return false
		}
	}
	return true
}

// blockTime is how long the stretch of a block that begins with decision i is expected to take; what has never been
// measured counts nothing, or a run with a limit could never begin.
func (s *session) blockTime(i int) time.Duration {
	var sum time.Duration
	first := block(s.decisions[i].unit)
	made := map[string]bool{}
	for _, d := range s.decisions[i:] {
		if block(d.unit) != first {
			break
		}
		if d.runs() {
			t, _ := s.estimator.unit(d.unit)
			sum += t
			if !made[d.unit.State] {
				made[d.unit.State] = true
				sum += s.states.buildTime(d.unit.State)
			}
		}
	}
	return sum
}

// startBlock journals the beginning of a block and moves the records away that its rerun replaces.
func (s *session) startBlock(b blockOf) error {
	if s.blocks[b] {
		return nil
	}
	s.blocks[b] = true
	if err := s.emit(results.Event{Kind: results.EventBlockStart, Condition: b.condition, Block: &b.block}); err != nil {
		return err
	}
	for i := range s.decisions {
		d := &s.decisions[i]
		if block(d.unit) != b || !d.supersede {
			continue
		}
		if err := s.dir.Supersede(d.unit.ID); err != nil {
			return fmt.Errorf("record of unit %s: %w", d.unit.Name, err)
		}
		d.record, d.supersede = nil, false
		if err := s.emit(results.Event{Kind: results.EventSuperseded, Unit: d.unit.ID, Name: d.unit.Name, Message: d.why}); err != nil {
			return err
		}
	}
	return nil
}

// close ends the session in the journal and gives the files back.
func (s *session) close() error {
	c := count(s.decisions)
	c.Session, c.Ran, c.Stopped = s.id, s.summary.Ran, s.summary.Stopped
	s.summary = c
	how := c.Stopped
	if how == "" {
		how = "finished"
	} else if how != StoppedFailed {
		if err := s.emit(results.Event{Kind: results.EventStop, Message: how}); err != nil {
			return errors.Join(err, s.journal.Close())
		}
	}
	return errors.Join(s.emit(results.Event{Kind: results.EventSessionEnd, Message: how}), s.journal.Close())
}
