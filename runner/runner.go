// Package runner executes a plan in a run directory: unit by unit in the plan's order, each one recorded before the next
// begins, so that a run killed at any instant goes on with the first unit that has no valid record.
//
// It decides what runs (schedule.go), makes and removes states (states.go), keeps the journal, and reports
// progress. It does not know how a unit is executed, which is an Executor's business, and computes no result: it only
// checks, with package parsers, that an output is one before its record counts as good.
//
// What keeps pairs honest: the arms of a block must come from one environment. If the machine or the
// binary changed while a block was half done, the whole block is run again and its old records move to superseded/.
package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"attnbudget/plan"
	"attnbudget/results"
)

// Options says what of a plan is run and when to stop.
type Options struct {
	Campaign               []byte               // the campaign's YAML text, copied into the run directory
	Command                string               // what the lock and the journal say this process is
	Environment            *results.Environment // what this process runs on, from Machine; needed unless DryRun
	Only                   []string             // run only units whose name matches one of these patterns, see Match; empty = all
	RetryFailed            bool                 // run failed units again
	AllowEnvironmentChange bool                 // go on in another environment than the run's newest record
	DryRun                 bool                 // report what would run, write nothing
	Started                time.Time            // of the command: a time of day in the plan is the next one after it; zero = now
	Until                  time.Time            // start no block that is not expected to end by then; zero = as the plan says
	Timeout                time.Duration        // for one unit; 0 = as the plan says
	Stop                   <-chan struct{}      // when closed, the running unit is finished and no further one is started; nil = never
}

// Ways in which Run ended early.
const (
	StoppedUntil  = "until"  // Options.Until
	StoppedAsked  = "asked"  // Options.Stop
	StoppedAbort  = "abort"  // the context was cancelled and the running unit given up
	StoppedFailed = "failed" // the runner itself could not go on; Run's error says why
)

// Summary counts the units of the plan after a run.
type Summary struct {
	Session string
	Done    int // have a good record
	Failed  int // have a failed record
	Left    int // have neither, or must run again
	Ran     int // were executed by this session, good or failed
	Stopped string
}

// ErrInterrupted is returned when Options.Stop or the context ended the run early. The run can be resumed.
var ErrInterrupted = errors.New("interrupted; run again to go on")

// EnvironmentError refuses to go on in a run made elsewhere.
type EnvironmentError struct {
	Old, New    string // environment IDs
	Differences []plan.Difference
	Everything  bool // the kernels differ in their results, so that no record of the run counts
}

func (e *EnvironmentError) Error() string {
	var b strings.Builder
	b.WriteString("this run was made in another environment:")
	if len(e.Differences) == 0 {
		fmt.Fprintf(&b, " %s, whose description is missing,", e.Old)
	}
	for _, d := range e.Differences {
		fmt.Fprintf(&b, "\n  %s was %q and is %q", d.Field, d.Old, d.New)
	}
	b.WriteString("\n")
	if len(e.Differences) == 1 && e.Differences[0].Field == "kernels" && e.Differences[0].Old != "" {
		fmt.Fprintf(&b, "--kernels %s goes on with it. Or use", e.Differences[0].Old)
	} else {
		b.WriteString("Use")
	}
	again := "half-finished blocks are then run again as a whole"
	if e.Everything {
		again = "everything is then run again, because results of these kernels are others; the records stay"
	}
	b.WriteString(" a new run directory, or --allow-environment-change: " + again)
	return b.String()
}

// Run executes what is left of p in dir, taking the directory's lock. Failed units are recorded and do not end the run;
// the Summary counts them. The error is nil when every unit was dealt with or Until was reached, wraps ErrInterrupted
// after a stop, is a *results.LockedError, an *EnvironmentError or a *DiskError when nothing was started, and otherwise says why the
// runner could not go on, for instance a full disk. In every case the directory is left so that Run can resume it.
//
// dir may be nil only with DryRun; then nothing is done yet.
func Run(ctx context.Context, p *plan.Plan, dir *results.Dir, o Options, x Executor, r Reporter) (Summary, error) {
	if o.DryRun {
		return dryRun(p, dir, o, r)
	}
	if o.Environment == nil {
		panic("runner: Run needs Options.Environment")
	}
	if len(p.Pending()) > 0 {
		panic("runner: Run needs a plan whose calibrations are made")
	}
	if o.Timeout == 0 {
		o.Timeout = p.Timeout
	}
	var err error
	if o.Until, err = o.until(p); err != nil {
		return Summary{}, err
	}
	lock, err := dir.Lock(o.Command)
	if err != nil {
		return Summary{}, err
	}
	defer lock.Unlock()
	decisions, inv, err := survey(p, dir, o)
	if err != nil {
		return Summary{}, err
	}
	if err := checkEnvironment(p, dir, inv, decisions, o); err != nil {
		return count(decisions), err
	}
	if err := dir.RemoveLeftovers(); err != nil {
		return count(decisions), err
	}
	if err := checkDisk(p, dir, decisions); err != nil {
		return count(decisions), err
	}
	s, err := newSession(p, dir, o, x, r, decisions, inv)
	if err != nil {
		return count(decisions), err
	}
	err = errors.Join(s.run(ctx), s.close())
	return s.summary, err
}

// until is when to stop: as asked for, or as the plan says.
func (o Options) until(p *plan.Plan) (time.Time, error) {
	if !o.Until.IsZero() {
		return o.Until, nil
	}
	start := o.Started
	if start.IsZero() {
		start = time.Now()
	}
	until, err := plan.Deadline(p.Until, start)
	if err != nil {
		return until, fmt.Errorf("plan: until: %w", err)
	}
	return until, nil
}

// dryRun reports the tasks that Run would execute now, with the reason of each.
func dryRun(p *plan.Plan, dir *results.Dir, o Options, r Reporter) (Summary, error) {
	decisions, inv, err := survey(p, dir, o)
	if err != nil {
		return Summary{}, err
	}
	sum := count(decisions)
	est := newEstimator(p, inv)
	tasks := selected(decisions)
	for i, t := range tasks {
		r.Report(Event{
			Event: results.Event{Kind: EventWouldRun, Time: time.Now(), Unit: t.unit.ID, Name: t.unit.Name, Message: t.why},
			Done:  i + 1, Total: len(tasks), LeftSeconds: est.left(tasks[i:]),
		})
	}
	return sum, nil
}

// checkEnvironment refuses to mix environments unless it is allowed. What counts is the newest record of the plan: a run
// that was once allowed to move goes on where it is now. Where the campaign leaves the kernels to the command, a record that
// would be of the plan but for their results counts too: to leave a flag out must not begin everything anew.
func checkEnvironment(p *plan.Plan, dir *results.Dir, inv *inventory, decisions []decision, o Options) error {
	if o.AllowEnvironmentChange || len(selected(decisions)) == 0 {
		return nil
	}
	old, everything := inv.newest(decisions), false
	if other := inv.newestOfOtherKernels(decisions); p.Kernels == "" && other != nil && (old == nil || other.Ended.After(old.Ended)) {
		old, everything = other, true
	}
	if old == nil || old.Environment == o.Environment.ID() {
		return nil
	}
	e := &EnvironmentError{Old: old.Environment, New: o.Environment.ID(), Everything: everything}
	if was, err := dir.Environment(old.Environment); err == nil {
		e.Differences = o.Environment.Diff(was)
	}
	return e
}

func count(decisions []decision) Summary {
	var s Summary
	for _, d := range decisions {
		switch {
		case d.failed:
			s.Failed++
		case d.left:
			s.Left++
		default:
			s.Done++
		}
	}
	return s
}
