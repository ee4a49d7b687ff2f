package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"attnbudget/plan"
	"attnbudget/results"
)

// errTimeout is the cause of a context that Options.Timeout ended.
var errTimeout = errors.New("unit timeout")

// unit executes one unit and records how it ended. The error is context.Canceled when the unit was given up, and
// otherwise what keeps the runner from going on.
func (s *session) unit(ctx context.Context, d *decision) error {
	u := d.unit
	d.ranHere = true
	if err := s.startBlock(block(u)); err != nil {
		return err
	}
	job := s.job(u)
	record := &results.Record{
		Unit: *u, Arm: job.Arm, Condition: job.Condition, Session: s.id, Environment: s.o.Environment.ID(),
		LoadBefore: MachineLoad(), Started: time.Now().UTC(),
	}
	out, err := s.attempt(ctx, u, job, record)
	if err != nil {
		return errors.Join(err, s.abandon(u))
	}
	record.Ended, record.LoadAfter = time.Now().UTC(), MachineLoad()
	record.Stdout, record.Stderr = string(out.Stdout), string(out.Stderr)
	record.ModelSHA256, record.Resumed, record.Failure = out.ModelSHA256, out.Resumed, out.Failure
	record.Outcome = results.OK
	if out.Failure != nil {
		record.Outcome = results.Failed
	}
	if err := s.store(d, record); err != nil {
		return err
	}
	return s.states.release(u.State)
}

// job describes the unit to the executor.
func (s *session) job(u *plan.Unit) Job {
	arm := s.arms[u.Arm]
	j := Job{
		Kind: JobUnit, Unit: *u, Arm: arm, Condition: s.conditions[u.Condition], Model: s.byModel[arm.Model],
		Threads: u.Key.Threads, Environment: s.o.Environment.ID(),
	}
	if u.State != "" {
		j.State, j.DepthTrace = s.dir.StatePath(u.State), s.byState[u.State].Key.Trace
	}
	switch u.Key.Stage {
	case plan.Perplexity, plan.HellaSwag, plan.Winogrande, plan.MultipleChoice, plan.KLDivergence:
		j.Checkpoint = s.dir.CheckpointPath(u.ID)
	}
	return j
}

// attempt executes the unit after what it needs is there; a failure of what it needs is the unit's failure.
func (s *session) attempt(ctx context.Context, u *plan.Unit, job Job, record *results.Record) (Output, error) {
	if err := s.emit(results.Event{Kind: results.EventUnitStart, Unit: u.ID, Name: u.Name}); err != nil {
		return Output{}, err
	}
	failure := s.models.check(ctx, job.Model)
	if ctx.Err() != nil {
		return Output{}, context.Canceled
	}
	if failure != nil {
		return Output{Failure: failure}, nil
	}
	if out, err := s.prepare(ctx, job); err != nil || out.Failure != nil {
		return out, err
	}
	if u.State != "" {
		if out, err := s.states.ensure(ctx, u, job); err != nil || out.Failure != nil {
			return out, err
		}
	}
	record.LoadBefore, record.Started = MachineLoad(), time.Now().UTC()
	out, err := s.execute(ctx, job)
	if err == nil && out.Failure == nil {
		out.Failure = validate(u.Key.Stage, out.Stdout)
	}
	return out, err
}

// prepare readies the model of an arm once per session. A failure is that of every unit of the arm.
func (s *session) prepare(ctx context.Context, job Job) (Output, error) {
	if out, ok := s.prepared[job.Arm.Name]; ok {
		return out, nil
	}
	start := time.Now()
	job.Kind, job.State, job.Checkpoint = JobPrepare, "", ""
	out, err := s.execute(ctx, job)
	if err != nil {
		return out, err
	}
	s.prepared[job.Arm.Name] = out
	e := results.Event{Kind: results.EventArmReady, Name: job.Arm.Name, Seconds: time.Since(start).Seconds()}
	if out.Failure != nil {
		e = results.Event{Kind: results.EventArmFailed, Name: job.Arm.Name, Failure: out.Failure.Kind, Message: out.Failure.Message}
	}
	return out, s.emit(e)
}

// execute runs a job under the timeout, which is a failure of the job and not of the runner.
func (s *session) execute(ctx context.Context, job Job) (Output, error) {
	if s.o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.o.Timeout, errTimeout)
		defer cancel()
	}
	out, err := s.executor.Execute(ctx, job, func(p Progress) {
		if p.Note != "" {
			s.report(Event{Event: results.Event{Kind: EventNote, Unit: job.Unit.ID, Name: job.Unit.Name, Message: p.Note}})
			return
		}
		s.report(Event{Event: results.Event{Kind: EventUnitProgress, Unit: job.Unit.ID, Name: job.Unit.Name}, Progress: &p})
	})
	switch {
	case err != nil && context.Cause(ctx) == errTimeout:
		out.Failure = &results.Failure{Kind: results.Timeout, Message: fmt.Sprintf("it ran longer than %v", s.o.Timeout)}
		return out, nil
	case err != nil && ctx.Err() != nil:
		return out, context.Canceled
	case err != nil:
		return out, fmt.Errorf("executing unit %s: %w", job.Unit.Name, err)
	}
	return out, nil
}

// abandon journals that the unit left no record.
func (s *session) abandon(u *plan.Unit) error {
	return s.emit(results.Event{Kind: results.EventUnitAbort, Unit: u.ID, Name: u.Name})
}

// store writes the record, then says so in the journal, then drops the checkpoint that the record makes needless.
func (s *session) store(d *decision, r *results.Record) error {
	if err := s.dir.WriteRecord(r); err != nil {
		return err
	}
	took := r.Ended.Sub(r.Started)
	d.left, d.failed = false, r.Outcome == results.Failed
	d.record = &results.Record{Unit: r.Unit, Environment: r.Environment, Outcome: r.Outcome, Failure: r.Failure, Started: r.Started, Ended: r.Ended}
	s.summary.Ran++
	e := results.Event{Kind: results.EventUnitEnd, Unit: d.unit.ID, Name: d.unit.Name, Outcome: r.Outcome, Seconds: took.Seconds()}
	if r.Failure != nil {
		e.Failure, e.Message = r.Failure.Kind, r.Failure.Message
	} else if r.Resumed == 0 {
		s.estimator.add(d.unit, took)
	}
	if err := s.emit(e); err != nil {
		return err
	}
	if r.Failure != nil && r.Failure.Kind != results.NaN && r.Failure.Kind != results.Unparsable {
		// A retry goes on where the crash was. What led to a wrong output is not built upon.
		return nil
	}
	if err := os.Remove(s.dir.CheckpointPath(d.unit.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checkpoint of unit %s: %w", d.unit.Name, err)
	}
	return nil
}
