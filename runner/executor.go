package runner

import (
	"context"

	"attnbudget/plan"
	"attnbudget/results"
)

// Executor executes one job at a time. It stores nothing in the run directory but the files the job names.
type Executor interface {
	// Execute executes the job and returns what it printed. What goes wrong with the job is Output.Failure; the error
	// is for what goes wrong with the executor itself, which ends the run. When ctx ends, the job is killed and Execute
	// returns what it printed until then with ctx.Err().
	//
	// progress may be called until Execute returns, never by two goroutines at once.
	Execute(ctx context.Context, job Job, progress func(Progress)) (Output, error)
}

// Kinds of jobs.
const (
	JobPrepare   = "prepare"   // make sure the arm's model can be evaluated, quantising it if need be; print nothing
	JobState     = "state"     // make the file Job.State and print nothing
	JobCalibrate = "calibrate" // make the report of Job.Calibration and print nothing
	JobUnit      = "unit"      // execute the unit and print its raw output
)

// Job is a self-contained description of one thing to execute. Preparing and making a state are jobs of their own so that
// their work is neither timed nor warms the machine in the process that is timed.
type Job struct {
	Kind      string         `json:"kind"`
	Unit      plan.Unit      `json:"unit"` // of a preparation and a state: the unit that needs it first
	Arm       plan.Arm       `json:"arm"`  // of a state: the one that makes it
	Condition plan.Condition `json:"condition"`
	Model     plan.Model     `json:"model"`
	Threads   int            `json:"threads"`

	Calibration *plan.Calibration `json:"calibration,omitempty"` // of a calibration, which has no unit, arm and condition

	State      string `json:"state,omitempty"`       // path of the state to load, or to make
	DepthTrace string `json:"depth_trace,omitempty"` // what the tokens of a prefilled cache are drawn from
	Checkpoint string `json:"checkpoint,omitempty"`  // path where an evaluation keeps what it has finished; it goes on from there

	// Environment is the ID of what this session runs on. A checkpoint of another one is not used.
	Environment string `json:"environment"`
}

// Output is what came of a job.
type Output struct {
	Stdout, Stderr []byte
	ModelSHA256    string           // of the file that was really evaluated; empty if it did not come to that
	Resumed        int              // how many times the unit went on from its checkpoint
	Failure        *results.Failure // nil when the job ended well
}

// Progress is how far a job has come.
type Progress struct {
	Phase string `json:"phase"` // what it is doing: "quantize", "load", "perplexity", ...
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0 = unknown

	Note string `json:"note,omitempty"` // something that people should know at once, in a line; then the rest is empty
}
