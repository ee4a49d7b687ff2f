package results

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"time"

	"attnbudget/atomicfile"
)

// JournalSchema is the version of the journal's lines, stored in its first line.
const JournalSchema = "attnbudget/journal/1"

// Kinds of journal events.
const (
	EventJournal           = "journal"            // first line: Schema
	EventSessionStart      = "session_start"      // Environment, Message = the command
	EventPlan              = "plan"               // Message = SHA-256 of the campaign text
	EventBlockStart        = "block_start"        // Condition, Block
	EventUnitStart         = "unit_start"         // Unit, Name
	EventUnitEnd           = "unit_end"           // Unit, Name, Outcome, Failure, Seconds; its record is on disk
	EventUnitAbort         = "unit_abort"         // Unit, Name; it left no record
	EventSuperseded        = "superseded"         // Unit, Name, Message = why; its record has left records/
	EventArmReady          = "arm_ready"          // Name = the arm, Seconds; its model can be evaluated
	EventArmFailed         = "arm_failed"         // Name = the arm, Failure, Message
	EventStateStart        = "state_start"        // State
	EventStateReady        = "state_ready"        // State, Environment, Bytes, Seconds
	EventStateFailed       = "state_failed"       // State, Failure, Message
	EventStateRemoved      = "state_removed"      // State
	EventCalibrationStart  = "calibration_start"  // Name = the model, Calibration
	EventCalibrationReady  = "calibration_ready"  // Name, Calibration, Seconds; its report is in calibrations/
	EventCalibrationFailed = "calibration_failed" // Name, Calibration, Failure, Message
	EventCalibrationAbort  = "calibration_abort"  // Name, Calibration; what it has measured is in the cache
	EventStop              = "stop"               // Message = why no further unit is started
	EventSessionEnd        = "session_end"        // Message = how it ended
)

// Event is one line of the journal. Which fields are set follows from Kind.
type Event struct {
	Kind        string    `json:"event"`
	Time        time.Time `json:"time"`
	Schema      string    `json:"schema,omitempty"`
	Session     string    `json:"session,omitempty"`
	Environment string    `json:"environment,omitempty"`
	Condition   string    `json:"condition,omitempty"`
	Block       *int      `json:"block,omitempty"`
	Unit        string    `json:"unit,omitempty"` // id
	Name        string    `json:"name,omitempty"`
	State       string    `json:"state,omitempty"`       // id
	Calibration string    `json:"calibration,omitempty"` // id
	Outcome     string    `json:"outcome,omitempty"`
	Failure     string    `json:"failure,omitempty"` // kind
	Seconds     float64   `json:"seconds,omitempty"`
	Bytes       int64     `json:"bytes,omitempty"`
	Message     string    `json:"message,omitempty"`
}

// Journal appends events to the journal of a run.
type Journal struct{ f *os.File }

// OpenJournal opens the journal for appending, making it if there is none. The caller holds the lock. A last line that
// a crash cut short is closed with a newline and stays, for reading it as damaged.
func (d *Dir) OpenJournal() (*Journal, error) {
	f, err := os.OpenFile(d.file(journalFile), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{f}
	if err := j.prepare(d); err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

func (j *Journal) prepare(d *Dir) error {
	info, err := j.f.Stat()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if info.Size() == 0 {
		if err := j.Append(Event{Kind: EventJournal, Time: time.Now(), Schema: JournalSchema}); err != nil {
			return err
		}
		return atomicfile.SyncFolder(d.path)
	}
	for _, err := range ReadJournal(j.f, j.f.Name()) {
		var newer *SchemaError
		if errors.As(err, &newer) {
			return newer
		}
	}
	last := make([]byte, 1)
	if _, err := j.f.ReadAt(last, info.Size()-1); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if last[0] != '\n' {
		return j.write([]byte{'\n'})
	}
	return nil
}

// Append adds one event as one line and waits until it is on disk.
func (j *Journal) Append(e Event) error {
	e.Time = e.Time.UTC()
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return j.write(append(b, '\n'))
}

func (j *Journal) write(b []byte) error {
	if _, err := j.f.Write(b); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Close closes the file.
func (j *Journal) Close() error { return j.f.Close() }

// LineError reports a journal line that is not an event. Reading goes on after it.
type LineError struct {
	Path string
	Line int  // counted from 1
	Torn bool // it is the last line and has no newline: a crash cut it short
	Err  error
}

func (e *LineError) Error() string {
	if e.Torn {
		return fmt.Sprintf("%s:%d: last line was cut short: %v", e.Path, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d: damaged line: %v", e.Path, e.Line, e.Err)
}
func (e *LineError) Unwrap() error { return e.Err }

// Journal reads the events of the run's journal; a run without one has no events.
func (d *Dir) Journal() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f, err := os.Open(d.file(journalFile))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				yield(Event{}, fmt.Errorf("journal: %w", err))
			}
			return
		}
		defer f.Close()
		ReadJournal(f, f.Name())(yield)
	}
}

// ReadJournal reads events line by line; path is for its errors. A line that is not an event is yielded as a *LineError
// and reading goes on, so that a torn line costs only itself. A *SchemaError or a read error ends the reading.
func ReadJournal(r io.Reader, path string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		in := bufio.NewReader(r)
		for n := 1; ; n++ {
			line, err := in.ReadBytes('\n')
			if err != nil && err != io.EOF {
				yield(Event{}, fmt.Errorf("journal %s: %w", path, err))
				return
			}
			torn := err == io.EOF
			if line = bytes.TrimSpace(line); len(line) > 0 {
				e, err := decodeEvent(line, path)
				if _, wrongSchema := err.(*SchemaError); wrongSchema {
					yield(Event{}, err)
					return
				}
				if err != nil {
					err = &LineError{path, n, torn, err}
				}
				if !yield(e, err) {
					return
				}
			}
			if torn {
				return
			}
		}
	}
}

func decodeEvent(line []byte, path string) (Event, error) {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return Event{}, err
	}
	if e.Kind == "" {
		return Event{}, errors.New(`it has no "event"`)
	}
	if e.Kind == EventJournal {
		if err := checkSchema(path, JournalSchema, e.Schema); err != nil {
			return Event{}, err
		}
	}
	return e, nil
}
