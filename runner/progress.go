package runner

import (
	"fmt"
	"io"
	"os"
	"time"

	"attnbudget/results"

	"github.com/mattn/go-isatty"
)

// Kinds of events that are reported but not journaled, beside those of package results.
const (
	EventWouldRun            = "would_run"            // of a dry run: Unit, Name, Message = why
	EventUnitProgress        = "unit_progress"        // Unit, Name, Progress
	EventCalibrationProgress = "calibration_progress" // Name = the model, Calibration, Progress in evaluations, LeftSeconds
	EventNote                = "note"                 // Message = a warning; of a unit: Unit, Name
)

// Event is what a Reporter is told: a journal event, or one of the kinds above, with how far the session is.
type Event struct {
	results.Event
	Done        int       `json:"done"`                   // units this session has executed
	Total       int       `json:"total"`                  // units this session set out to execute
	Failed      int       `json:"failed"`                 // failed units of the plan, of all sessions
	LeftSeconds *float64  `json:"left_seconds,omitempty"` // expected time of the units left, from measured ones; nil: not known yet
	Progress    *Progress `json:"progress,omitempty"`
}

// Reporter shows a session to someone. Report is never called by two goroutines at once.
type Reporter interface {
	Report(Event)
	Close() // the session is over; what is shown must stay readable
}

// ProgressWay is a way of showing progress.
type ProgressWay string

// The ways.
const (
	ProgressAuto  ProgressWay = "auto"  // bars on a terminal, lines otherwise
	ProgressBar   ProgressWay = "bar"   // two bars: the session and the running unit
	ProgressLines ProgressWay = "lines" // one line per unit
	ProgressJSON  ProgressWay = "json"  // one JSON event per line
	ProgressNone  ProgressWay = "none"
)

// ParseProgress reads the name of a way.
func ParseProgress(s string) (ProgressWay, error) {
	switch way := ProgressWay(s); way {
	case ProgressAuto, ProgressBar, ProgressLines, ProgressJSON, ProgressNone:
		return way, nil
	}
	return "", fmt.Errorf("unknown progress %q: expected %s, %s, %s, %s or %s", s, ProgressAuto, ProgressBar, ProgressLines, ProgressJSON, ProgressNone)
}

// NewReporter returns the reporter for a way, writing to w. Colours are used on a terminal unless the environment variable
// NO_COLOR is set (https://no-color.org).
func NewReporter(w io.Writer, way ProgressWay) Reporter {
	f, ok := w.(*os.File)
	terminal := ok && os.Getenv("TERM") != "dumb" && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
	colour := terminal && os.Getenv("NO_COLOR") == ""
	switch {
	case way == ProgressBar, way == ProgressAuto && terminal:
		return NewBars(w, colour)
	case way == ProgressJSON:
		return NewJSON(w)
	case way == ProgressNone:
		return NewJSON(io.Discard)
	}
	return NewLines(w, colour)
}

// palette holds the escape sequences of the colours in use; empty without colours.
type palette struct{ red, yellow, off string }

func newPalette(colour bool) palette {
	if !colour {
		return palette{}
	}
	return palette{"\x1b[31m", "\x1b[33m", "\x1b[0m"}
}

// line is an event as one line for a person; "" for events that say nothing to one.
func (c palette) line(e Event) string {
	switch e.Kind {
	case results.EventUnitEnd:
		s := fmt.Sprintf("[%d/%d] %s  %s  %s", e.Done, e.Total, e.Name, e.Outcome, shortTime(seconds(e.Seconds)))
		if e.Outcome == results.Failed {
			s = fmt.Sprintf("[%d/%d] %s  %sfailed (%s)%s: %s", e.Done, e.Total, e.Name, c.red, e.Failure, c.off, e.Message)
		}
		if e.LeftSeconds != nil && e.Done < e.Total {
			s += fmt.Sprintf("  (%s left)", shortTime(seconds(*e.LeftSeconds)))
		}
		return s
	case results.EventUnitAbort:
		return fmt.Sprintf("%s  %sgiven up%s", e.Name, c.yellow, c.off)
	case results.EventSuperseded:
		return fmt.Sprintf("%s  runs again: %s", e.Name, e.Message)
	case results.EventArmFailed:
		return fmt.Sprintf("arm %s %scannot run (%s)%s: %s", e.Name, c.red, e.Failure, c.off, e.Message)
	case results.EventStateReady:
		return fmt.Sprintf("state %s ready  %s", e.State, shortTime(seconds(e.Seconds)))
	case results.EventStateFailed:
		return fmt.Sprintf("state %s %sfailed (%s)%s: %s", e.State, c.red, e.Failure, c.off, e.Message)
	case results.EventCalibrationStart:
		return fmt.Sprintf("calibrating %s", e.Name)
	case results.EventCalibrationReady:
		return fmt.Sprintf("calibration of %s ready  %s", e.Name, shortTime(seconds(e.Seconds)))
	case results.EventCalibrationAbort:
		return fmt.Sprintf("calibration of %s %sgiven up%s, what it has measured is kept", e.Name, c.yellow, c.off)
	case results.EventStop:
		return fmt.Sprintf("%sstopped (%s)%s with %d of %d units done", c.yellow, e.Message, c.off, e.Done, e.Total)
	case EventWouldRun:
		return fmt.Sprintf("[%d/%d] %s  %s", e.Done, e.Total, e.Name, e.Message)
	case EventNote:
		of := ""
		if e.Name != "" {
			of = e.Name + ": "
		}
		return c.yellow + "note: " + c.off + of + e.Message
	}
	return ""
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// shortTime shows a duration with the two largest of its units.
func shortTime(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}
