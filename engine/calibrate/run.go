package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"attnbudget/engine"
	"attnbudget/engine/drop"
	"attnbudget/engine/kernel"
)

// Job is a calibration to be run.
type Job struct {
	Model       *engine.Model
	Fingerprint string // of the model's file
	Text        []byte
	TextName    string
	Settings    Settings
	Journal     string // file that keeps what was measured, which nobody else may write to meanwhile; "" = none
	AtOnce      int    // masks of one pass; default 8; 1 = one after the other
	Threads     int    // default: the model's
	Surrogate   SurrogatePlan
	// SurrogateFile names the file for the surrogates of a profile, as the report is to have it; nil = none are written.
	SurrogateFile   func(profile string) string
	SurrogateFolder string         // where relative names begin; "" = the current folder
	Progress        func(Progress) // nil = nobody; called after every chunk
}

// Progress says how far a calibration is, in evaluations: one mask on one chunk. Total is an estimate until the searches
// are done, because how many steps they take and how early losers stop is not known before.
type Progress struct {
	Stage       string
	Done, Total int
}

// StageAlone is the stage of phase A.
const StageAlone = "every layer alone"

// defaultAtOnce is where sharing the weights among more masks stopped paying (docs/calibration.md).
const defaultAtOnce = 8

const defaultRank = 32

// Run calibrates. It ends with ctx's error when ctx does; with a journal, the next Run goes on from there.
func Run(ctx context.Context, job Job) (*Report, error) {
	c, err := open(ctx, job)
	if err != nil {
		return nil, err
	}
	r, err := c.run(ctx)
	return r, errors.Join(err, c.close())
}

// calibration is a job in progress.
type calibration struct {
	Job
	corpus          *corpus
	search, heldout []int // chunks
	journal         *journal
	meter           *meter
	variants        *engine.Variants
	searcher        *Search
	checked         *ledger            // of the held-out split
	standing        *engine.Surrogates // that masks are searched with; nil = none
	bar             bar
}

func open(ctx context.Context, job Job) (*calibration, error) {
	c := &calibration{Job: job}
	c.Settings = job.Settings.defaults()
	if err := c.Settings.check(); err != nil {
		return nil, err
	}
	if err := c.cut(); err != nil {
		return nil, err
	}
	if c.AtOnce == 0 {
		c.AtOnce = defaultAtOnce
	}
	if c.Surrogate.Kind == LinearSurrogate && c.Surrogate.Rank == 0 {
		c.Surrogate.Rank = defaultRank
	}
	var err error
	if c.variants, err = c.Model.NewVariants(engine.VariantsOptions{Tokens: c.Settings.NCtx, Masks: c.AtOnce, Threads: c.Threads}); err != nil {
		return nil, err
	}
	library, err := c.library(ctx)
	if err != nil {
		return nil, errors.Join(err, c.variants.Close())
	}
	c.journal, err = openJournal(c.Journal, binding{
		Schema: JournalSchema, Model: c.Fingerprint, Engine: engine.ResultVersion(kernel.Name()), Text: c.corpus.sha256, NCtx: c.Settings.NCtx, Surrogates: library,
	})
	if err != nil {
		return nil, errors.Join(err, c.variants.Close())
	}
	c.meter = newMeter(c.Model, c.variants, c.corpus, c.journal)
	c.bar.show = job.Progress
	c.searcher = NewSearch(Search{
		Roles: c.Model.Roles(), Metric: c.Settings.Metric, Chunks: c.order(), Alpha: max(0, c.Settings.Alpha), Most: c.Settings.Most, MaxDamage: c.Settings.MaxDamage,
	}, c.counted(c.meter.measure))
	c.checked = newLedger(c.counted(c.meter.measure))
	return c, nil
}

func (c *calibration) close() error { return errors.Join(c.variants.Close(), c.journal.Close()) }

// cut prepares the text.
func (c *calibration) cut() error {
	tok, err := c.Model.Tokenizer()
	if err != nil {
		return err
	}
	if c.corpus, err = cut(tok, c.Text, c.Settings.NCtx); err != nil {
		return err
	}
	c.search, c.heldout, err = c.corpus.split(c.Settings.Search, c.Settings.Heldout)
	return err
}

// order is the order in which races measure the search split: shuffled, so that the first few chunks are from everywhere.
func (c *calibration) order() []int {
	out := make([]int, len(c.search))
	for i, j := range rand.New(rand.NewPCG(c.Settings.Seed, 1)).Perm(len(out)) {
		out[i] = c.search[j]
	}
	return out
}

// run is the whole calibration: phase A, phase B, and the check on the held-out split.
func (c *calibration) run(ctx context.Context) (*Report, error) {
	r := c.report()
	s := c.searcher
	units := len(s.grown(drop.Mask{}))
	c.bar.begin(StageAlone, units*len(c.search), c.later(units, 3))
	alone, err := s.Alone(ctx)
	if err != nil {
		return nil, err
	}
	r.Evaluations.Alone = s.Evaluations()
	r.Units = c.units(alone, s.Shortlist(alone, c.Settings.Shortlist))
	greedy, err := c.greedy(ctx, r, alone)
	if err != nil {
		return nil, err
	}
	steps, err := c.better(ctx, r, greedy)
	if err != nil {
		return nil, err
	}
	if err := c.check(ctx, r, greedy, steps); err != nil {
		return nil, err
	}
	return r, c.standIns(ctx, r)
}

func (c *calibration) greedy(ctx context.Context, r *Report, alone []Contender) ([]Step, error) {
	c.searcher.ledger.restart()
	k := c.foreseen(alone)
	c.bar.begin("greedy", c.racing(len(r.Units), k), len(c.heldout)*k)
	steps, err := c.searcher.Greedy(ctx)
	r.Evaluations.Greedy = c.searcher.Evaluations()
	return steps, err
}

// better runs the search that was asked for on top of greedy.
func (c *calibration) better(ctx context.Context, r *Report, greedy []Step) ([]Step, error) {
	o, s, k := c.Settings, c.searcher, len(greedy)
	s.ledger.restart()
	steps, err := greedy, error(nil)
	switch o.Strategy {
	case Beam:
		c.bar.begin("beam", o.Beam*c.racing(len(r.Units), k), 2*len(c.heldout)*k)
		steps, err = s.Beam(ctx, greedy, o.Beam)
	case Evolve:
		c.bar.begin("evolve", c.racing(k*o.Offspring*o.Generations, 1), 2*len(c.heldout)*k)
		steps, err = s.Evolve(ctx, greedy, Evolution{Survivors: o.Survivors, Offspring: o.Offspring, Generations: o.Generations, Evaluations: o.Limit, Seed: o.Seed})
	}
	r.Evaluations.Search = s.Evaluations()
	return steps, err
}

// check measures the steps on the held-out split and draws the conclusions.
func (c *calibration) check(ctx context.Context, r *Report, greedy, steps []Step) error {
	var masks []drop.Mask
	for _, s := range append(append([]Step{}, greedy...), steps...) {
		if !slices.Contains(masks, s.Mask) {
			masks = append(masks, s.Mask)
		}
	}
	c.bar.begin("held-out split", len(masks)*len(c.heldout), 0)
	scores, err := c.checked.score(ctx, masks, c.heldout)
	if err != nil {
		return err
	}
	r.Evaluations.Heldout = c.checked.evaluations()
	heldout := map[drop.Mask][]Score{}
	for i, m := range masks {
		heldout[m] = scores[i]
	}
	r.Steps = c.steps(steps, heldout)
	if c.Settings.Strategy != Greedy {
		r.Greedy = c.steps(greedy, heldout)
	}
	r.Undropped = Undropped{Search: c.undropped(c.search), Heldout: c.undropped(c.heldout)}
	r.Profiles, r.BudgetExceeded = profiles(r.Steps, c.Settings.Budget, c.Settings.MaxDamage)
	if r.BudgetExceeded {
		r.Cautions = append(r.Cautions, fmt.Sprintf("even the safest drop does not fit the quality budget of %g nats", c.Settings.Budget))
	}
	return c.memory(r.Profiles)
}

func (c *calibration) undropped(chunks []int) Estimate {
	var nll []float64
	for _, chunk := range chunks {
		if e, ok := c.journal.get(drop.Mask{}, chunk); ok {
			nll = append(nll, e.NLL)
		}
	}
	return estimate(nll)
}

// memory fills in what the profiles' masks save.
func (c *calibration) memory(ps []Profile) error {
	bytes := func(o engine.ContextOptions) (total int64, err error) {
		sizes, err := c.Model.CacheSizes(o)
		for _, s := range sizes {
			total += s.Bytes()
		}
		return total, err
	}
	for i := range ps {
		p := &ps[i]
		m, err := drop.Resolve(c.Model.Roles(), p.Layers)
		if err != nil {
			return err
		}
		p.Hash = m.Hash()
		p.KV.NCtx = (c.Model.Info().ContextTrain + 255) / 256 * 256
		if p.KV.Undropped, err = bytes(engine.ContextOptions{}); err != nil {
			return err
		}
		if p.KV.Dropped, err = bytes(engine.ContextOptions{Mask: p.Layers}); err != nil {
			return err
		}
	}
	return nil
}
