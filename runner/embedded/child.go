package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"attnbudget/engine"
	"attnbudget/plan"
	"attnbudget/runner"
)

// Child is the other side of Executor: it reads one job from stdin and executes it. The raw output goes to stdout,
// warnings to stderr, messages to progress, which the parent reads from descriptor ProgressFD. The caller prints the
// error and exits with code 1.
func Child(ctx context.Context, stdin io.Reader, stdout, stderr, progress io.Writer) error {
	dec := json.NewDecoder(stdin)
	var job runner.Job
	if err := dec.Decode(&job); err != nil {
		return fmt.Errorf("job on standard input: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		// Nothing else comes: reading ends when the parent is gone.
		_, _ = io.Copy(io.Discard, stdin)
		cancel(errors.New("the parent process is gone"))
	}()
	c := &child{job: job, stdout: stdout, stderr: stderr, say: &speaker{enc: json.NewEncoder(progress)}}
	err := c.run(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("given up: %w", context.Cause(ctx))
	}
	if err != nil {
		c.say.message(message{Failure: describe(err)})
	}
	return err
}

// child executes one job.
type child struct {
	job            runner.Job
	modelSHA256    string // of the file that is evaluated
	stdout, stderr io.Writer
	say            *speaker
}

func (c *child) run(ctx context.Context) error {
	m, sha256, err := c.openModel(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	c.modelSHA256 = sha256
	c.say.message(message{ModelSHA256: sha256})
	switch c.job.Kind {
	case runner.JobPrepare:
		return nil
	case runner.JobState:
		return c.state(ctx, m)
	case runner.JobCalibrate:
		return c.calibrate(ctx, m)
	case runner.JobUnit:
	default:
		return fmt.Errorf("job of unknown kind %q", c.job.Kind)
	}
	switch stage := c.job.Condition.Stage; stage {
	case plan.Throughput, plan.Depth:
		return c.bench(ctx, m)
	case plan.KV:
		return c.kv(m)
	case plan.Perplexity:
		return c.perplexity(ctx, m)
	case plan.HellaSwag:
		return c.hellaSwag(ctx, m)
	case plan.Winogrande:
		return c.winogrande(ctx, m)
	case plan.MultipleChoice:
		return c.multipleChoice(ctx, m)
	case plan.KLDivergence:
		return c.divergence(ctx, m)
	default:
		return fmt.Errorf("stage %q is not one that the embedded engine executes", stage)
	}
}

// state makes the file that units of the condition load.
func (c *child) state(ctx context.Context, m *engine.Model) error {
	switch stage := c.job.Condition.Stage; stage {
	case plan.Depth:
		return c.prefill(ctx, m)
	case plan.KLDivergence:
		return c.baseLogits(ctx, m)
	default:
		return fmt.Errorf("units of stage %q load no state", stage)
	}
}

// speaker writes messages to the parent. A parent that no longer listens is no reason to stop.
type speaker struct {
	mu   sync.Mutex
	enc  *json.Encoder
	last time.Time
}

// progressEvery is how often progress is told at most; more would be drawn by nobody.
const progressEvery = 100 * time.Millisecond

func (s *speaker) message(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.enc.Encode(m)
}

// note tells people something in a line.
func (s *speaker) note(text string) { s.message(message{Progress: &runner.Progress{Note: text}}) }

func (s *speaker) progress(phase string, done, total int64) {
	s.mu.Lock()
	due := time.Since(s.last) >= progressEvery || done == total
	if due {
		s.last = time.Now()
	}
	s.mu.Unlock()
	if due {
		s.message(message{Progress: &runner.Progress{Phase: phase, Done: done, Total: total}})
	}
}
