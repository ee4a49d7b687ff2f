package calibrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"attnbudget/engine"
	"attnbudget/engine/drop"
	"attnbudget/engine/gguf"
)

// Schema names the format of a report (docs/format/calibration.md).
const Schema = "attnbudget/calibration/1"

// Report is what a calibration found out. It holds no time and no place, so that the same calibration gives the same bytes.
type Report struct {
	Schema         string        `json:"schema"`
	Engine         string        `json:"engine"` // version
	Model          ModelSummary  `json:"model"`
	Text           TextSummary   `json:"text"`
	Settings       Settings      `json:"settings"`
	Surrogate      SurrogatePlan `json:"surrogate"`
	Undropped      Undropped     `json:"undropped"`
	Units          []UnitResult  `json:"units"`            // phase A, the least harmful first
	Steps          []StepResult  `json:"steps"`            // phase B
	Greedy         []StepResult  `json:"greedy,omitempty"` // greedy's steps, where another search was asked for
	Evaluations    Evaluations   `json:"evaluations"`
	Profiles       []Profile     `json:"profiles"`
	BudgetExceeded bool          `json:"budget_exceeded"` // even the safest drop does not fit the quality budget
	Cautions       []string      `json:"cautions"`
}

// ModelSummary says which model a report is about; it is valid for no other fingerprint.
type ModelSummary struct {
	Name        string `json:"name"`
	Arch        string `json:"arch"`
	FileType    string `json:"file_type"`
	Layers      int    `json:"layers"`
	Fingerprint string `json:"fingerprint"`
}

// TextSummary says what was measured on.
type TextSummary struct {
	Name    string `json:"name"`
	SHA256  string `json:"sha256"`
	Tokens  int    `json:"tokens"`
	BOS     bool   `json:"bos"` // every chunk begins with BOS
	NCtx    int    `json:"n_ctx"`
	Scored  int    `json:"scored"` // tokens of a chunk
	Search  []int  `json:"search_chunks"`
	Heldout []int  `json:"heldout_chunks"`
}

// Undropped is the mean negative log-likelihood of the whole model, nats a token.
type Undropped struct {
	Search  Estimate `json:"search_nll"`
	Heldout Estimate `json:"heldout_nll"`
}

// UnitResult is a unit dropped alone, on the search split.
type UnitResult struct {
	Layers      []int    `json:"layers"`
	Role        string   `json:"role"`
	Search      Damage   `json:"search"`
	Ties        []string `json:"ties"` // units that cannot be told from this one, by their masks
	Shortlisted bool     `json:"shortlisted"`
}

// StepResult is the best mask found of one size.
type StepResult struct {
	Mask       string            `json:"mask"`
	Layers     []int             `json:"layers"`
	Added      []int             `json:"added"`   // since the step before
	Removed    []int             `json:"removed"` // greedy removes nothing
	Search     Damage            `json:"search"`
	Heldout    Damage            `json:"heldout"`
	Increment  Estimate          `json:"increment"` // held-out NLL beyond the step before, paired
	Ties       []string          `json:"ties"`
	Cautions   []string          `json:"cautions"`
	Candidates []CandidateResult `json:"candidates"`
}

// CandidateResult is a mask that was compared with the winner of a step, on the search split.
type CandidateResult struct {
	Mask   string `json:"mask"`
	Damage Damage `json:"damage"`
	Out    bool   `json:"stopped_early,omitempty"` // the sequential test ended its measurement
}

// Evaluations counts the different scores, one mask on one chunk, that each part asked for, so that parts can be compared;
// what several asked for was measured once.
type Evaluations struct {
	Alone   int `json:"alone"`
	Greedy  int `json:"greedy"`
	Search  int `json:"search"` // of beam; of evolve what comes on top of greedy, from which it begins
	Heldout int `json:"heldout"`
}

// Profile is a named mask.
type Profile struct {
	Name         string           `json:"name"`
	Mask         string           `json:"mask"`
	Hash         string           `json:"mask_hash"`
	Layers       []int            `json:"layers"`
	Heldout      Damage           `json:"heldout"`
	WithinBudget bool             `json:"within_budget"`
	Cautions     []string         `json:"cautions"`
	KV           KVBytes          `json:"kv"`
	Flags        string           `json:"flags"` // to paste behind any single-model command
	Surrogate    *SurrogateResult `json:"surrogate,omitempty"`
}

// KVBytes is what a context of NCtx tokens takes for keys and values in F16.
type KVBytes struct {
	NCtx      int   `json:"n_ctx"`
	Undropped int64 `json:"undropped"`
	Dropped   int64 `json:"dropped"`
}

// WrongModelError is a profile asked for another model than it was measured on.
type WrongModelError struct {
	Report, Expected, Found string
}

func (e *WrongModelError) Error() string {
	return fmt.Sprintf("%s was measured on another model: its fingerprint is %s, this model's is %s; calibrate this model", e.Report, e.Found, e.Expected)
}

// Load reads a report. Errors name the file.
func Load(path string) (*Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Parse reads the bytes of a report.
func Parse(data []byte) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("not a calibration report: %w", err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("not a calibration report: its schema is %q, expected %q", r.Schema, Schema)
	}
	return r, nil
}

// Profile finds a profile for a model of the given fingerprint and roles. name is where the report came from, for messages.
// Errors: *WrongModelError, or what profiles there are.
func (r *Report) Profile(report, name, fingerprint string, roles []drop.Role) (drop.Mask, error) {
	if r.Model.Fingerprint != fingerprint {
		return drop.Mask{}, &WrongModelError{report, fingerprint, r.Model.Fingerprint}
	}
	var names []string
	for _, p := range r.Profiles {
		if p.Name == name {
			m, err := drop.Resolve(roles, p.Layers)
			if err != nil {
				return m, fmt.Errorf("%s: profile %s: %w", report, name, err)
			}
			return m, nil
		}
		names = append(names, p.Name)
	}
	if r.BudgetExceeded {
		return drop.Mask{}, fmt.Errorf("%s has no profile %q: even the safest drop does not fit the quality budget of %g nats; it has: %s", report, name, r.Settings.Budget, strings.Join(names, ", "))
	}
	return drop.Mask{}, fmt.Errorf("%s has no profile %q; it has: %s", report, name, strings.Join(names, ", "))
}

// SurrogateFiles are the names of the files of surrogates beside the report, each once.
func (r *Report) SurrogateFiles() []string {
	var out []string
	for _, p := range r.Profiles {
		if name := p.SurrogateFile(); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// SurrogateFile is the name of the file of the profile's surrogates beside the report, "" when there are none.
func (p Profile) SurrogateFile() string {
	if p.Surrogate == nil || p.Surrogate.File == "" {
		return ""
	}
	return filepath.Base(p.Surrogate.File)
}

// CheckSurrogates returns an error unless what was fitted is in the folder, which is the report's.
func (r *Report) CheckSurrogates(folder string) error {
	for _, p := range r.Profiles {
		name := p.SurrogateFile()
		if name == "" {
			continue
		}
		f, err := gguf.Open(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		hash := engine.HashSurrogates(f)
		if err := f.Close(); err != nil {
			return err
		}
		if hash != p.Surrogate.Hash {
			return fmt.Errorf("%s: the tensors have the hash %s, the report says %s", filepath.Join(folder, name), hash, p.Surrogate.Hash)
		}
	}
	return nil
}

// JSON is the report as it is stored.
func (r *Report) JSON() ([]byte, error) {
	var buf bytes.Buffer
	out := json.NewEncoder(&buf)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	err := out.Encode(r)
	return buf.Bytes(), err
}
