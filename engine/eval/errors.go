package eval

import "fmt"

// FormatError is a mistake in an input file.
type FormatError struct {
	File    string
	Line    int // from 1; 0 if it concerns the whole file
	Problem string
}

func (e *FormatError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Problem)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
}

// TooShortError is a text with less than two contexts of tokens.
type TooShortError struct {
	File   string
	NCtx   int
	Tokens int
}

// Error is upstream's message.
func (e *TooShortError) Error() string {
	return fmt.Sprintf("%s: you need at least %d tokens to evaluate perplexity with a context of %d; the data file you provided tokenizes to only %d tokens",
		e.File, 2*e.NCtx, e.NCtx, e.Tokens)
}

// TooLongError is a task that does not fit into the context.
type TooLongError struct {
	Task   string // file and line
	Tokens int    // it needs
	Cells  int    // of the context
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("%s: task does not fit in the context window (requires %d tokens, there are %d): raise the context", e.Task, e.Tokens, e.Cells)
}

// NotFiniteError is a log-probability that is not a number, or infinite: the model or its quantisation is broken, and no
// score can be given.
type NotFiniteError struct {
	Stage string  // "perplexity", ...
	Item  string  // "chunk 3", "task 12 (file:67)"
	Value float64 // NaN or an infinity
}

func (e *NotFiniteError) Error() string {
	return fmt.Sprintf("%s: %s: the model gives a log-probability of %v: its weights, or one of the attention layers dropped, make it overflow", e.Stage, e.Item, e.Value)
}

// CheckpointError is a checkpoint that does not belong to the evaluation.
type CheckpointError struct {
	Stage   string
	Problem string
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("%s: the checkpoint is of another evaluation: %s; remove it to start afresh", e.Stage, e.Problem)
}
