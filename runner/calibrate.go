package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"attnbudget/atomicfile"
	"attnbudget/engine/calibrate"
	"attnbudget/plan"
	"attnbudget/results"
)

// CalibrationError is a calibration that failed: what its masks drop stays unknown, so that nothing of the plan can run.
type CalibrationError struct {
	Model   string
	Failure results.Failure
}

func (e *CalibrationError) Error() string {
	return fmt.Sprintf("the calibration of %s failed (%s): %s", e.Model, e.Failure.Kind, e.Failure.Message)
}

// ErrUntil is returned when Options.Until ended a calibration.
var ErrUntil = errors.New("the time to stop has come during the calibration; run again to go on")

// Calibrate makes the calibrations that p waits for, in a session of its own, so that the campaign can be planned for good. A
// report that the run has already is put back where the plan looks for it. Interrupted or killed, a calibration goes on where
// it was. Of the options, Stop and Timeout, which are for units, do not matter. Errors: those of Run, *CalibrationError, ErrUntil.
func Calibrate(ctx context.Context, p *plan.Plan, dir *results.Dir, o Options, x Executor, r Reporter) error {
	until, err := o.until(p)
	if err != nil {
		return err
	}
	lock, err := dir.Lock(o.Command)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if err := errors.Join(dir.RemoveLeftovers(), dir.WriteEnvironment(*o.Environment)); err != nil {
		return err
	}
	journal, err := dir.OpenJournal()
	if err != nil {
		return err
	}
	c := &calibrator{session: &session{id: newSessionID(), dir: dir, journal: journal, plan: p, o: o, executor: x, reporter: r, estimator: newEstimator(&plan.Plan{}, nil)}}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, until, ErrUntil)
		defer cancel()
	}
	return errors.Join(c.run(ctx), journal.Close())
}

// calibrator is a session that makes calibrations.
type calibrator struct{ *session }

func (c *calibrator) run(ctx context.Context) error {
	if err := c.emit(results.Event{Kind: results.EventSessionStart, Environment: c.o.Environment.ID(), Message: c.o.Command}); err != nil {
		return err
	}
	var err error
	for _, cal := range c.plan.Pending() {
		if err = c.calibrate(ctx, cal); err != nil {
			break
		}
	}
	how := "calibrated"
	switch {
	case errors.Is(err, ErrUntil):
		how = StoppedUntil
	case errors.Is(err, ErrInterrupted):
		how = StoppedAbort
	case err != nil:
		how = StoppedFailed
	}
	return errors.Join(err, c.emit(results.Event{Kind: results.EventSessionEnd, Message: how}))
}

// calibrate makes one report, unless the run has it.
func (c *calibrator) calibrate(ctx context.Context, cal plan.Calibration) error {
	if data, err := c.dir.Calibration(cal.ID); err == nil {
		if r, err := calibrate.Parse(data); err == nil && r.CheckSurrogates(c.dir.CalibrationFolder()) == nil {
			return restore(cal.Report, data, r, c.dir.CalibrationFolder())
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	event := func(kind string) results.Event {
		return results.Event{Kind: kind, Name: cal.Model, Calibration: cal.ID}
	}
	if err := c.emit(event(results.EventCalibrationStart)); err != nil {
		return err
	}
	start := time.Now()
	out, err := c.executor.Execute(ctx, c.job(cal), c.progress(cal))
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
		if errors.Is(err, context.Canceled) {
			err = ErrInterrupted
		}
		return errors.Join(err, c.emit(event(results.EventCalibrationAbort)))
	case err != nil:
		return fmt.Errorf("calibrating %s: %w", cal.Model, err)
	case out.Failure != nil:
		e := event(results.EventCalibrationFailed)
		e.Failure, e.Message = out.Failure.Kind, out.Failure.Message
		return errors.Join(&CalibrationError{cal.Model, *out.Failure}, c.emit(e))
	}
	data, err := os.ReadFile(cal.Report)
	if err == nil {
		err = keep(c.dir, cal, data)
	}
	if err != nil {
		return fmt.Errorf("report of the calibration of %s: %w", cal.Model, err)
	}
	e := event(results.EventCalibrationReady)
	e.Seconds = time.Since(start).Seconds()
	return c.emit(e)
}

func (c *calibrator) job(cal plan.Calibration) Job {
	j := Job{Kind: JobCalibrate, Calibration: &cal, Threads: c.plan.Threads, Environment: c.o.Environment.ID()}
	j.Unit.Name = "calibrate/" + cal.Model
	for _, m := range c.plan.Models {
		if m.Name == cal.Model {
			j.Model, j.Arm = m, plan.Arm{Name: m.Name, Model: m.Name, Format: m.Format}
		}
	}
	return j
}

// progress reports how far a calibration is. The time left follows from what this process has measured; what an earlier one
// has, the first report says is done already.
func (c *calibrator) progress(cal plan.Calibration) func(Progress) {
	var start time.Time
	known := int64(-1)
	return func(p Progress) {
		if known < 0 {
			known, start = p.Done, time.Now()
		}
		e := Event{Event: results.Event{Kind: EventCalibrationProgress, Session: c.id, Time: time.Now(), Name: cal.Model, Calibration: cal.ID}, Progress: &p}
		if done := p.Done - known; done > 0 {
			left := time.Since(start).Seconds() * float64(p.Total-p.Done) / float64(done)
			e.LeftSeconds = &left
		}
		c.reporter.Report(e)
	}
}

// restore puts a report of the run, which is in folder, back into the cache, the surrogates of its profiles first.
func restore(path string, data []byte, r *calibrate.Report, folder string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	beside, err := surrogates(r, folder)
	if err != nil {
		return err
	}
	for name, data := range beside {
		if err := atomicfile.WriteBytes(filepath.Join(filepath.Dir(path), name), data); err != nil {
			return err
		}
	}
	return atomicfile.WriteBytes(path, data)
}

// keep copies a report into the run directory, with the surrogates of its profiles if the campaign asked for it; files that
// masks name themselves are the user's to keep.
func keep(dir *results.Dir, cal plan.Calibration, data []byte) error {
	if cal.Key == nil {
		return dir.WriteCalibration(cal.ID, data, nil)
	}
	r, err := calibrate.Parse(data)
	if err != nil {
		return err
	}
	beside, err := surrogates(r, filepath.Dir(cal.Report))
	if err != nil {
		return err
	}
	return dir.WriteCalibration(cal.ID, data, beside)
}

// surrogates reads the surrogate files of a report that is in folder.
func surrogates(r *calibrate.Report, folder string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range r.SurrogateFiles() {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		out[name] = data
	}
	return out, nil
}

// keepReports copies the reports that masks of the plan come from into the run directory, with their surrogates.
func keepReports(dir *results.Dir, p *plan.Plan) error {
	for _, cal := range p.Calibrations {
		data, err := os.ReadFile(cal.Report)
		if err != nil {
			return fmt.Errorf("calibration report: %w", err)
		}
		sum := sha256.Sum256(data)
		if found := hex.EncodeToString(sum[:]); found != cal.SHA256 {
			return fmt.Errorf("calibration report %s has changed since the plan was made: its SHA-256 was %s and is %s; run again", cal.Report, cal.SHA256, found)
		}
		if err := keep(dir, cal, data); err != nil {
			return fmt.Errorf("calibration report %s: %w", cal.Report, err)
		}
	}
	return nil
}
