// Package summary turns a run directory into summary.json and the published tables. It reads that directory alone,
// through package results: neither a clock nor the machine nor the models. The same raw records
// give the same bytes; on another kind of processor the last digit of a fraction may differ (Check).
//
// It compares arms block by block, chunk by chunk and task by task, never level by level; it pairs only what one
// environment measured; and it says "undecided" where the data do not tell. It executes nothing and drops no value: a
// record that cannot be used stands in the summary with the reason.
package summary

import (
	"attnbudget/plan"
	"attnbudget/results"
	"attnbudget/summary/stat"
)

// Schema is the version of the JSON form of a Summary.
const Schema = "attnbudget/summary/1"

// Level is the nominal coverage of all intervals.
const Level = 0.95

// Summary is what a run has shown.
type Summary struct {
	Schema         string           `json:"schema"`
	Campaign       string           `json:"campaign"`
	CampaignSHA256 string           `json:"campaign_sha256"`
	Seed           uint64           `json:"seed"`
	Order          string           `json:"order"`
	Threads        int              `json:"threads"`
	Baseline       string           `json:"baseline"`          // name of the arm
	Control        string           `json:"control,omitempty"` // name of the arm that is the baseline again
	Units          Units            `json:"units"`
	Environments   []Environment    `json:"environments"`
	Arms           []plan.Arm       `json:"arms"`
	Conditions     []plan.Condition `json:"conditions"`
	Cells          []Cell           `json:"cells"`
	Effects        []Effect         `json:"effects"`
	NoiseFloor     []Noise          `json:"noise_floor,omitempty"`
	Tables         []Table          `json:"tables"`
	Notes          []string         `json:"notes,omitempty"` // what a reader must know about the whole run
}

// Units counts the units of the plan.
type Units struct {
	Planned int `json:"planned"`
	OK      int `json:"ok"`
	Failed  int `json:"failed"`
	Missing int `json:"missing"` // without a usable record
}

// Environment is a machine and binary that made records which are used here.
type Environment struct {
	ID      string            `json:"id"`
	Records int               `json:"records"`
	CPU     string            `json:"cpu,omitempty"`
	Commit  string            `json:"commit,omitempty"`
	Kernels string            `json:"kernels,omitempty"` // of the engine
	Changes []plan.Difference `json:"changes,omitempty"` // from the first one
}

// Cell is one metric of one arm at one condition.
type Cell struct {
	Arm       string `json:"arm"`
	Condition string `json:"condition"`
	Metric    string `json:"metric"`
	Unit      string `json:"unit"`
	Planned   int    `json:"planned"` // units
	OK        int    `json:"ok"`
	Missing   int    `json:"missing,omitempty"`

	Value    *float64       `json:"value,omitempty"` // the median over blocks for timings; absent without any good record
	Interval *stat.Interval `json:"interval,omitempty"`
	Mean     *float64       `json:"mean,omitempty"`    // over blocks; timings
	StdDev   *float64       `json:"std_dev,omitempty"` // sample, over blocks; timings of two blocks or more

	TokenError   *float64 `json:"token_error,omitempty"`   // perplexity, nll, divergences: upstream's standard error, tokens taken as independent
	DesignEffect *float64 `json:"design_effect,omitempty"` // of the mean a token behind Value: its variance over chunks in units of that over tokens

	Values   []BlockValue `json:"values"`
	Failures []Failure    `json:"failures,omitempty"`
	Records  []string     `json:"records"` // files that the value comes from
	Warnings []string     `json:"warnings,omitempty"`
}

// BlockValue is what one record says.
type BlockValue struct {
	Block       int     `json:"block"`
	Value       float64 `json:"value"`
	Environment string  `json:"environment"`
	Record      string  `json:"record"`
}

// Failure is a unit whose record gives no value.
type Failure struct {
	Unit    string `json:"unit"`
	Block   int    `json:"block"`
	Kind    string `json:"kind"` // of results
	Message string `json:"message"`
	Record  string `json:"record"`
}

// Why an arm is compared with another.
const (
	OnBaseline = "baseline" // the other is the baseline arm
	OnMask     = "mask"     // the other differs only in its mask, which is the baseline's
)

// Effect is a paired comparison of an arm with another at one condition.
type Effect struct {
	Arm         string         `json:"arm"`
	Against     string         `json:"against"`
	Comparisons []string       `json:"comparisons"`
	Condition   string         `json:"condition"`
	Metric      string         `json:"metric"`
	Verdict     string         `json:"verdict,omitempty"`    // Better, Worse, Undecided or Equal; empty when refused
	Ratio       *stat.Interval `json:"ratio,omitempty"`      // arm over against
	Difference  *stat.Interval `json:"difference,omitempty"` // arm minus against
	Check       *stat.Interval `json:"check,omitempty"`      // Ratio by a second method, where there is one
	P           *float64       `json:"p,omitempty"`          // two-sided, of no effect: Student's t for timings and what chunks have, McNemar's mid-p for tasks
	Detectable  *float64       `json:"detectable_ratio,omitempty"`
	Pairs       []Pair         `json:"pairs,omitempty"` // of timings
	Flips       *Flips         `json:"flips,omitempty"` // of tasks
	Refused     string         `json:"refused,omitempty"`
	Warnings    []string       `json:"warnings,omitempty"`
	Records     []string       `json:"records"`
}

// Pair is one block that both arms finished in one environment.
type Pair struct {
	Block       int     `json:"block"`
	Environment string  `json:"environment"`
	Ratio       float64 `json:"ratio"`
}

// Flips are the tasks on which two arms differ.
type Flips struct {
	Tasks int     `json:"tasks"`
	Won   int     `json:"won"`  // right only under the arm
	Lost  int     `json:"lost"` // right only under the other
	Exact float64 `json:"exact_p"`
	MidP  float64 `json:"mid_p"` // McNemar
}

// Noise is what the control differs from the baseline, of which it is a copy.
type Noise struct {
	Condition  string         `json:"condition"`
	Metric     string         `json:"metric"`
	Verdict    string         `json:"verdict"`
	Ratio      *stat.Interval `json:"ratio,omitempty"`
	Difference *stat.Interval `json:"difference,omitempty"`
}

// Build reads the run directory at dir and summarises its current records. It fails when dir is no run directory, has
// no plan, or cannot be read; a damaged or failed record is no error but stands in the summary.
func Build(dir string) (*Summary, error) {
	d, err := results.Open(dir)
	if err != nil {
		return nil, err
	}
	src, err := readRun(d)
	if err != nil {
		return nil, err
	}
	return summarise(src), nil
}

func summarise(src source) *Summary {
	ds := newDataset(src)
	p := src.plan
	s := &Summary{
		Schema: Schema, Campaign: p.Campaign, CampaignSHA256: p.CampaignSHA256,
		Seed: p.Seed, Order: p.Order, Threads: p.Threads,
		Baseline: p.Baseline, Control: ds.control(),
		Units: ds.units, Environments: ds.environments(),
		Arms: p.Arms, Conditions: publicConditions(p.Conditions),
		Cells: ds.cells(), Effects: ds.effects(),
		Notes: ds.notes,
	}
	s.NoiseFloor = noiseFloor(s.Effects, s.Control)
	s.Tables = ds.tables(s)
	return s
}
