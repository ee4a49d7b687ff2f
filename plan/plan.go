// Package plan holds what a campaign has been expanded into: arms, conditions, blocks and units, each unit with the
// key that decides its result. It is pure data: it imports nothing else of this project, reads no file and executes
// nothing. campaigns builds a Plan, runner executes it, results stores it, summary reads it back.
package plan

import "time"

// Schema is the version of the JSON form of a Plan, stored in every plan.json.
const Schema = "attnbudget/plan/1"

// Stage kinds.
const (
	Throughput     = "throughput"
	Depth          = "depth"
	KV             = "kv"
	Perplexity     = "perplexity"
	HellaSwag      = "hellaswag"
	Winogrande     = "winogrande"
	MultipleChoice = "multiple-choice"
	KLDivergence   = "kl-divergence"
)

// Orders in which the arms of a block are executed.
const (
	OrderABBA       = "abba"       // arms in order, then reversed in the next block
	OrderRandom     = "random"     // a seeded shuffle per block
	OrderSequential = "sequential" // all repetitions of an arm back to back; only on request
)

// EngineEmbedded names the engine inside this binary.
const EngineEmbedded = "embedded"

// Plan is the ordered list of units of one campaign, with everything the runner and the tables need to know.
type Plan struct {
	Schema         string        `json:"schema"`
	Campaign       string        `json:"campaign"`        // name
	CampaignSHA256 string        `json:"campaign_sha256"` // of the YAML bytes
	Seed           uint64        `json:"seed"`
	Order          string        `json:"order"`
	Repetitions    int           `json:"repetitions"`
	Threads        int           `json:"threads"`
	Kernels        string        `json:"kernels,omitempty"`    // that the campaign asks for: "auto", "upstream"; empty = whatever the command says
	Timeout        time.Duration `json:"timeout_ns,omitempty"` // of one unit; 0 = none
	Until          string        `json:"until,omitempty"`      // no block is begun that is not expected to end by then, as written; see Deadline
	Models         []Model       `json:"models"`
	Calibrations   []Calibration `json:"calibrations,omitempty"` // reports that masks are profiles of
	Arms           []Arm         `json:"arms"`                   // in matrix order; names are unique
	Baseline       string        `json:"baseline"`               // name of the baseline arm
	Conditions     []Condition   `json:"conditions"`
	States         []State       `json:"states,omitempty"` // files that units load: prefilled caches, logits to compare with
	Units          []Unit        `json:"units"`            // in execution order
	Tables         []Table       `json:"tables"`
	Warnings       []string      `json:"warnings,omitempty"`
}

// Model is one GGUF file of the campaign.
type Model struct {
	Name        string `json:"name"`
	Source      string `json:"source"` // as written: a path, builtin:NAME, ...
	Path        string `json:"path"`   // absolute path; empty for builtin models
	Fingerprint string `json:"fingerprint"`
	Bytes       int64  `json:"bytes"`
	Format      string `json:"format"`          // of the file itself: an arm of this format uses it as it is, any other is quantised from it
	Vocab       int    `json:"vocab,omitempty"` // tokens in its vocabulary: the perplexity of guessing
}

// Mask is a named set of layers whose attention is dropped.
type Mask struct {
	Name   string `json:"name"`
	Layers []int  `json:"layers"`         // ascending, without repeats; never nil
	Hash   string `json:"hash,omitempty"` // SHA-256 of CanonicalMask(Layers)

	Profile     string `json:"profile,omitempty"`     // name of the profile that the layers come from; empty when they are listed
	Calibration string `json:"calibration,omitempty"` // Calibration.ID of its report
	Pending     bool   `json:"pending,omitempty"`     // the calibration has not been made: Layers is empty and says nothing

	Surrogate     string `json:"surrogate,omitempty"`      // path of the file of what stands in for the dropped attention
	SurrogateHash string `json:"surrogate_hash,omitempty"` // of its tensors, see docs/format/calibration.md
	Fitted        bool   `json:"fitted,omitempty"`         // Surrogate is what the calibration fitted for the profile, empty when that would do harm
}

// Arm is one setting under comparison.
type Arm struct {
	Name    string `json:"name"`   // "glossary/Q4_0/two/f16"; parts with one value in the whole campaign are left out
	Model   string `json:"model"`  // Model.Name
	Format  string `json:"format"` // "F16", "Q4_K_M", ...
	Mask    Mask   `json:"mask"`
	TypeK   string `json:"type_k"` // "f16", "q8_0", ...
	TypeV   string `json:"type_v"`
	Engine  string `json:"engine"`
	Control bool   `json:"control,omitempty"` // the second, identical baseline of `control: aa`
}

// Condition is what is held equal across the arms of a block. Only the fields of its stage are set.
type Condition struct {
	Name        string `json:"name"`  // unique: "pp512", "tg32", "tg16 @ d1024", "kv 8192", "perplexity evaluation c512", ...
	Stage       string `json:"stage"` // one of the stage kinds
	Repetitions int    `json:"repetitions"`

	Prompt   int `json:"prompt,omitempty"`   // tokens, throughput and depth
	Generate int `json:"generate,omitempty"` // tokens, throughput and depth
	Depth    int `json:"depth,omitempty"`    // tokens already in the cache, depth

	Context int    `json:"context,omitempty"`      // cells (kv) or tokens of a chunk (perplexity, kl-divergence) or n_ctx (tasks)
	Input   string `json:"input,omitempty"`        // text or task file: a path or builtin:NAME
	SHA256  string `json:"input_sha256,omitempty"` // of the input
	Chunks  int    `json:"chunks,omitempty"`       // perplexity, kl-divergence: at most so many chunks, 0 = all
	Tasks   int    `json:"tasks,omitempty"`        // hellaswag, winogrande, multiple-choice: so many tasks, 0 = all

	LogitsFormat string `json:"logits_format,omitempty"` // kl-divergence: of the base's logits; empty = upstream's

	Batch  int `json:"n_batch,omitempty"`
	UBatch int `json:"n_ubatch,omitempty"`
}

// Kinds of states.
const (
	StateCache  = "cache"  // a KV cache filled to some depth: every repetition of an arm begins with it
	StateLogits = "logits" // the log-probabilities of the arm that all arms of a model are compared with, kl-divergence
)

// State is a file that units load: built once, before the first of them, and removed when they are done.
type State struct {
	ID    string   `json:"id"`    // Key.ID()
	Arm   string   `json:"arm"`   // the arm that builds it; the control shares the baseline's states
	Bytes int64    `json:"bytes"` // its need of disk space
	Key   StateKey `json:"key"`
}

// Unit is one arm at one condition, one repetition: the thing that is executed, stored and resumed.
type Unit struct {
	ID        string `json:"id"`   // Key.ID()
	Name      string `json:"name"` // for people: "throughput/pp512/Q4_0-two/003"; unique in the plan, usable as a glob target
	Arm       string `json:"arm"`
	Condition string `json:"condition"`
	Block     int    `json:"block"`           // 0-based repetition
	Position  int    `json:"position"`        // 0-based place inside its block, as executed
	State     string `json:"state,omitempty"` // ID of the State that must exist before the unit runs
	Key       Key    `json:"key"`
}

// Table describes one published table.
type Table struct {
	Title   string            `json:"title"`
	Rows    []string          `json:"rows"`              // Dimensions; with several metrics DimMetric is among them or among Columns
	Columns []string          `json:"columns,omitempty"` // Dimensions
	Cells   []string          `json:"cells"`             // metrics, see docs/format/summary.md
	Effect  string            `json:"effect,omitempty"`  // "", EffectRatio, EffectDifference or EffectAuto
	Against map[string]string `json:"against,omitempty"` // dimension -> value of the arm compared with; default: the baseline's value of every column dimension
	Where   map[string]string `json:"where,omitempty"`   // dimension -> value a cell must have
}

// Estimate is what a plan is expected to take. It is a rough figure until units of the same kind have been measured.
type Estimate struct {
	Time   time.Duration `json:"time_ns"`
	Memory int64         `json:"memory_bytes"` // largest single unit
	Disk   int64         `json:"disk_bytes"`   // quantised models + states alive at once + records
	Method string        `json:"method"`       // where the figure comes from
}
