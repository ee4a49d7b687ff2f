package results

import (
	"time"

	"attnbudget/plan"
)

// RecordSchema is the version of the JSON form of a Record.
const RecordSchema = "attnbudget/record/1"

// Outcomes of a unit.
const (
	OK     = "ok"
	Failed = "failed"
)

// Kinds of failure.
const (
	Crash       = "crash"       // the process ended with an error or a signal
	OutOfMemory = "oom"         // it could not get the memory, or the kernel killed it for it
	Timeout     = "timeout"     // it ran longer than the campaign allows
	NaN         = "nan"         // it computed a value that is not a number
	Unparsable  = "unparsable"  // its output is not what its stage prints
	Unavailable = "unavailable" // a model or input file was gone or had changed
)

// Record is the stored raw output of a unit with the circumstances of its execution. It is written once and never
// changed: a unit that is run again gets a new record and the old one moves to failed/ or superseded/. Unit, Arm and
// Condition are as they were at that time; a later plan may name the same unit (the same Unit.ID) otherwise.
type Record struct {
	Schema      string         `json:"schema"`
	Unit        plan.Unit      `json:"unit"`
	Arm         plan.Arm       `json:"arm"`
	Condition   plan.Condition `json:"condition"`
	Session     string         `json:"session"`     // id of the runner's process run that made it
	Environment string         `json:"environment"` // Environment.ID
	Started     time.Time      `json:"started"`
	Ended       time.Time      `json:"ended"`
	Resumed     int            `json:"resumed"` // how many times the unit went on from its own checkpoint; then Started is that of its last part
	LoadBefore  Load           `json:"load_before"`
	LoadAfter   Load           `json:"load_after"`
	ModelSHA256 string         `json:"model_sha256"` // of the file that was really evaluated (after quantisation)
	Outcome     string         `json:"outcome"`      // OK or Failed
	Failure     *Failure       `json:"failure,omitempty"`
	Stdout      string         `json:"stdout"` // raw, in the form of docs/format/output.md
	Stderr      string         `json:"stderr"`
	StdoutSHA   string         `json:"stdout_sha256"` // set and checked by this package
}

// Failure says how a unit failed.
type Failure struct {
	Kind     string `json:"kind"` // Crash, OutOfMemory, ...
	Message  string `json:"message"`
	ExitCode int    `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
}

// Load is what else the machine was doing.
type Load struct {
	Load1        float64 `json:"load1"`
	Load5        float64 `json:"load5"`
	AvailableMiB uint64  `json:"available_mib"`
	RunningProcs uint64  `json:"running_procs"`
}
