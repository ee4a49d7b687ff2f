package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"attnbudget/plan"
	"attnbudget/results"

	"github.com/google/go-cmp/cmp"
)

// fake is a scripted Executor: what a job does is looked up by the unit's name, "state " before it for
// prefills, "prepare " and the arm's name for preparations. Without an entry a job does what it is for.
type fake struct {
	script map[string]behaviour
	calls  []string // names of jobs in the order they came
	took   time.Duration
}

type behaviour func(ctx context.Context, job Job, progress func(Progress)) (Output, error)

func (f *fake) Execute(ctx context.Context, job Job, progress func(Progress)) (Output, error) {
	name := job.Unit.Name
	switch job.Kind {
	case JobState:
		name = "state " + name
	case JobPrepare:
		name = "prepare " + job.Arm.Name
	}
	f.calls = append(f.calls, name)
	if b := f.script[name]; b != nil {
		return b(ctx, job, progress)
	}
	return f.succeed(ctx, job, progress)
}

func (f *fake) succeed(_ context.Context, job Job, progress func(Progress)) (Output, error) {
	progress(Progress{Phase: "run", Done: 1, Total: 1})
	switch job.Kind {
	case JobPrepare:
		return Output{}, nil
	case JobState:
		time.Sleep(f.took)
		return Output{}, os.WriteFile(job.State, []byte("state of "+job.Arm.Name), 0o644)
	}
	time.Sleep(f.took)
	return Output{Stdout: []byte(validOutput(job.Unit.Key)), ModelSHA256: job.Model.Fingerprint}, nil
}

func validOutput(k plan.Key) string {
	switch k.Stage {
	case plan.Throughput, plan.Depth:
		return fmt.Sprintf(`{"build_commit": "x", "n_prompt": %d, "n_gen": %d, "n_depth": %d, "avg_ts": %d.000000, "stddev_ts": 0.000000, "samples_ns": [1000000000], "samples_ts": [%d]}`+"\n",
			k.Prompt, k.Generate, k.Depth, k.Prompt+k.Generate, k.Prompt+k.Generate)
	case plan.Perplexity:
		return `perplexity: calculating perplexity over 1 chunks, n_ctx=512, batch_size=2048, n_seq=4
{"kind":"perplexity_chunk","chunk":1,"tokens":255,"nll":765,"nll2":2295}
[1]20.0855,
Final estimate: PPL = 20.0855 +/- 0.00000
`
	}
	if k.Stage == plan.KLDivergence {
		return `kl_divergence: computing over 1 chunks, n_ctx=4, batch_size=2048, n_seq=4
{"kind":"kl_chunk","chunk":1,"tokens":1,"nll":3,"nll2":9,"nll_base":3,"nll_base2":9,"nll_nll_base":9,"kld":0.5,"kld2":0.25,"p_diff":0,"p_diff2":0,"p_diff4":0,"same_top":1,"kld_values":[0.5],"p_diff_values":[0]}
   1      20.0855 ±    0.0000       0.00000 ±    0.00000       0.50000 ±    0.00000     0.000 ±  0.000 %    100.000 ±  0.000 %
`
	}
	panic("no output for stage " + k.Stage)
}

func hang(ctx context.Context, _ Job, _ func(Progress)) (Output, error) {
	<-ctx.Done()
	return Output{Stdout: []byte("half of"), Stderr: []byte("still computing\n")}, ctx.Err()
}

func fails(f results.Failure) behaviour {
	return func(context.Context, Job, func(Progress)) (Output, error) {
		return Output{Stdout: []byte("before the end"), Stderr: []byte("fatal error\n"), Failure: &f}, nil
	}
}

func prints(s string) behaviour {
	return func(context.Context, Job, func(Progress)) (Output, error) { return Output{Stdout: []byte(s)}, nil }
}

// recorder is a Reporter that keeps what it was told.
type recorder struct {
	events []Event
	on     func(Event) // may be nil
}

func (r *recorder) Report(e Event) {
	r.events = append(r.events, e)
	if r.on != nil {
		r.on(e)
	}
}
func (r *recorder) Close() {}

// testPlan has two arms, a throughput and a depth condition of two blocks each in ABBA order, and a perplexity.
func testPlan() *plan.Plan {
	p := &plan.Plan{
		Schema: plan.Schema, Campaign: "demo", CampaignSHA256: "c0ffee", Seed: 1, Order: plan.OrderABBA, Repetitions: 2, Threads: 2,
		Models: []plan.Model{{Name: "m", Source: "builtin:m", Fingerprint: "f0"}},
		Arms:   []plan.Arm{{Name: "a", Model: "m", Format: "F16"}, {Name: "b", Model: "m", Format: "F16", Mask: plan.Mask{Name: "two", Layers: []int{3, 5}}}},
		Conditions: []plan.Condition{
			{Name: "pp8", Stage: plan.Throughput, Repetitions: 2, Prompt: 8},
			{Name: "tg4 @ d16", Stage: plan.Depth, Repetitions: 2, Generate: 4, Depth: 16},
			{Name: "perplexity text c512", Stage: plan.Perplexity, Repetitions: 1, Context: 512},
		},
	}
	for _, c := range p.Conditions {
		for block := range c.Repetitions {
			for position := range p.Arms {
				a := position
				if block%2 == 1 {
					a = len(p.Arms) - 1 - position
				}
				p.Units = append(p.Units, testUnit(p.Arms[a], c, block, position))
			}
		}
	}
	for _, a := range p.Arms {
		p.States = append(p.States, plan.State{ID: "state-" + a.Name, Arm: a.Name, Key: plan.StateKey{Kind: plan.StateCache, Depth: 16, Trace: "seed 1 depth 16"}})
	}
	return p
}

func testUnit(a plan.Arm, c plan.Condition, block, position int) plan.Unit {
	k := plan.Key{ModelFingerprint: "f0", Format: a.Format, Mask: plan.CanonicalMask(a.Mask.Layers), Threads: 2, Stage: c.Stage,
		Prompt: c.Prompt, Generate: c.Generate, Depth: c.Depth, Context: c.Context, Block: block}
	u := plan.Unit{ID: k.ID(), Name: fmt.Sprintf("%s/%s/%s/%03d", c.Stage, c.Name, a.Name, block), Arm: a.Name, Condition: c.Name, Block: block, Position: position, Key: k}
	if c.Depth > 0 {
		u.State = "state-" + a.Name
	}
	return u
}

func testEnvironment() *results.Environment {
	return &results.Environment{Schema: results.EnvironmentSchema, Machine: "here", CPU: "Example 9000", BinarySHA256: "b1"}
}

func otherEnvironment() *results.Environment {
	e := testEnvironment()
	e.Governor, e.BinarySHA256 = "powersave", "b2"
	return e
}

// bench is a run directory with everything that Run needs.
type bench struct {
	t    *testing.T
	dir  *results.Dir
	plan *plan.Plan
	o    Options
	x    *fake
	r    *recorder
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := results.Create(filepath.Join(t.TempDir(), "run"), "demo")
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, dir, testPlan(), Options{Campaign: []byte("name: demo\n"), Command: "test", Environment: testEnvironment()},
		&fake{script: map[string]behaviour{}}, &recorder{}}
}

// run executes the plan and returns what was asked of the executor by this run alone, preparations left out.
func (b *bench) run(ctx context.Context) (Summary, []string, error) {
	b.x.calls = nil
	sum, err := Run(ctx, b.plan, b.dir, b.o, b.x, b.r)
	return sum, slices.DeleteFunc(b.x.calls, func(s string) bool { return strings.HasPrefix(s, "prepare ") }), err
}

func (b *bench) mustRun() (Summary, []string) {
	b.t.Helper()
	sum, calls, err := b.run(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return sum, calls
}

// notes are the notes of all runs, as a person reads them.
func (b *bench) notes() (out []string) {
	for _, e := range b.r.events {
		if e.Kind == EventNote {
			out = append(out, strings.TrimPrefix(palette{}.line(e), "note: "))
		}
	}
	return out
}

func (b *bench) unit(name string) plan.Unit {
	b.t.Helper()
	for _, u := range b.plan.Units {
		if u.Name == name {
			return u
		}
	}
	b.t.Fatalf("no unit %s", name)
	return plan.Unit{}
}

func (b *bench) record(name string) *results.Record {
	b.t.Helper()
	r, err := b.dir.Record(b.unit(name).ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// journal returns the kinds of all events that mention one of the words, all events without words.
func (b *bench) journal(kinds ...string) []string {
	b.t.Helper()
	var out []string
	for e, err := range b.dir.Journal() {
		if err != nil {
			b.t.Fatalf("the journal is damaged: %v", err)
		}
		for _, k := range kinds {
			if e.Kind == k {
				out = append(out, strings.TrimSpace(e.Kind+" "+e.Name+e.State))
			}
		}
	}
	return out
}

func (b *bench) files(sub string) []string {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir.Path(), sub))
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
