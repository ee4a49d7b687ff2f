// Package results is the run directory: what one campaign has produced, kept so that nothing measured is ever lost.
// It holds the raw records, the journal, the plan and the environments, and the lock that lets one process write.
//
// Layout:
//
//	run.json               the manifest: schema, campaign name, when it was made
//	campaign.yaml          the campaign as it was when plan.json was made
//	plan.json              what the campaign expanded into
//	journal.jsonl          what every session did, append-only
//	lock                   held with flock by the process that writes
//	environments/ID.json   the machines and binaries that made records
//	records/UNIT.json      the current record of a unit, good or failed
//	calibrations/ID.json   the reports that masks of the plan are profiles of; beside them the surrogates of the profiles
//	failed/UNIT.N.json     failed records of units that were run again
//	superseded/UNIT.N.json other records that were replaced
//	work/                  checkpoints and states; may be deleted whenever no session is running
//
// The package executes nothing, decides nothing and interprets no raw output: package runner decides what runs, package
// parsers reads what was printed. Opening and reading never write, so a run directory can be read-only.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"attnbudget/atomicfile"
	"attnbudget/plan"
)

// ManifestSchema is the version of the JSON form of a Manifest, and with it of the layout of the run directory.
const ManifestSchema = "attnbudget/run/1"

const (
	manifestFile = "run.json"
	campaignFile = "campaign.yaml"
	planFile     = "plan.json"
	journalFile  = "journal.jsonl"
	lockFile     = "lock"
)

// Manifest says what a run directory is. It is written once.
type Manifest struct {
	Schema   string    `json:"schema"`
	Campaign string    `json:"campaign"` // name
	Created  time.Time `json:"created"`
}

// Dir is an opened run directory.
type Dir struct {
	path     string
	manifest Manifest
}

// NotRunError reports a folder that is not a run directory.
type NotRunError struct {
	Path   string
	Reason string
}

func (e *NotRunError) Error() string {
	return fmt.Sprintf("%s is not a run directory: %s", e.Path, e.Reason)
}

// Create opens the run directory at path, making it first if it does not exist or is empty, or if a process was killed that was
// making it. A folder that holds anything else, or the run of a campaign of another name, is refused and left as it is.
func Create(path, campaign string) (*Dir, error) {
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return atomicfile.IsLeftover(e.Name()) })
	if len(entries) > 0 {
		d, err := Open(path)
		if err != nil {
			return nil, err
		}
		if err := d.CheckCampaign(campaign); err != nil {
			return nil, err
		}
		return d, d.makeFolders()
	}
	if err := atomicfile.MakeFolder(path); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	d := &Dir{path: path, manifest: Manifest{Schema: ManifestSchema, Campaign: campaign, Created: time.Now().UTC().Truncate(time.Second)}}
	// The manifest comes first: a creation that is cut short leaves a run directory and not a folder to be refused.
	if err := writeJSON(d.file(manifestFile), d.manifest); err != nil {
		return nil, fmt.Errorf("run directory %s: %w", path, err)
	}
	return d, d.makeFolders()
}

// CheckCampaign refuses the run of a campaign of another name.
func (d *Dir) CheckCampaign(name string) error {
	if d.manifest.Campaign != name {
		return fmt.Errorf("%s holds a run of campaign %q, not of %q: choose another --dir", d.path, d.manifest.Campaign, name)
	}
	return nil
}

func (d *Dir) makeFolders() error {
	for _, sub := range []string{"environments", "calibrations", "records", "failed", "superseded", "work/checkpoints", "work/states"} {
		if err := atomicfile.MakeFolder(d.file(sub)); err != nil {
			return fmt.Errorf("run directory: %w", err)
		}
	}
	return nil
}

// Open opens an existing run directory for reading and writing. It writes nothing. The error is a *NotRunError when
// path is not a run directory and a *SchemaError when a newer version of the program made it.
func Open(path string) (*Dir, error) {
	d := &Dir{path: path}
	err := readJSON(d.file(manifestFile), &d.manifest)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(path); statErr != nil {
			return nil, fmt.Errorf("run directory: %w", statErr)
		}
		return nil, &NotRunError{path, "it has no " + manifestFile}
	}
	if err != nil {
		return nil, err
	}
	if err := checkSchema(d.file(manifestFile), ManifestSchema, d.manifest.Schema); err != nil {
		return nil, err
	}
	return d, nil
}

// Path is the folder's path as it was given to Open or Create.
func (d *Dir) Path() string { return d.path }

// Manifest returns the run's manifest.
func (d *Dir) Manifest() Manifest { return d.manifest }

func (d *Dir) file(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// SetPlan stores the plan and the campaign text that it was made from, in place of an earlier one.
func (d *Dir) SetPlan(campaign []byte, p *plan.Plan) error {
	if err := atomicfile.WriteBytes(d.file(campaignFile), campaign); err != nil {
		return fmt.Errorf("campaign copy: %w", err)
	}
	if err := writeJSON(d.file(planFile), p); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return nil
}

// Plan reads the stored plan. The error satisfies errors.Is(err, fs.ErrNotExist) when no session has stored one yet.
func (d *Dir) Plan() (*plan.Plan, error) {
	var p plan.Plan
	if err := readJSON(d.file(planFile), &p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if err := checkSchema(d.file(planFile), plan.Schema, p.Schema); err != nil {
		return nil, err
	}
	return &p, nil
}

// Campaign reads the stored campaign text.
func (d *Dir) Campaign() ([]byte, error) { return os.ReadFile(d.file(campaignFile)) }

// WriteCalibration stores the report of a calibration, and before it what belongs beside it, by name: where a report is, all of
// it is. The caller holds the lock.
func (d *Dir) WriteCalibration(id string, report []byte, beside map[string][]byte) error {
	for name, data := range beside {
		if err := atomicfile.WriteBytes(filepath.Join(d.CalibrationFolder(), name), data); err != nil {
			return fmt.Errorf("calibration: %w", err)
		}
	}
	if err := atomicfile.WriteBytes(d.calibrationPath(id), report); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	return nil
}

// Calibration reads the report of a calibration. The error satisfies errors.Is(err, fs.ErrNotExist) when there is none.
func (d *Dir) Calibration(id string) ([]byte, error) { return os.ReadFile(d.calibrationPath(id)) }

// CalibrationFolder is where the reports of calibrations are, and what belongs beside them.
func (d *Dir) CalibrationFolder() string { return d.file("calibrations") }

func (d *Dir) calibrationPath(id string) string {
	return filepath.Join(d.CalibrationFolder(), id+".json")
}

// CheckpointPath is where an evaluation unit keeps what it has finished so far.
func (d *Dir) CheckpointPath(unit string) string {
	return d.file("work", "checkpoints", unit+".jsonl")
}

// StatePath is where a state is kept. What a state is made of before it is whole stands beside it, in files whose names begin
// with the state's own, as StatePath.part.
func (d *Dir) StatePath(state string) string { return d.file("work", "states", state+stateExt) }

const stateExt = ".state"

// readJSON decodes one JSON file. Unknown fields are accepted: a newer minor version may have added some.
func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	return nil
}

// Checkpoints lists the paths of the checkpoints there are.
func (d *Dir) Checkpoints() ([]string, error) {
	names, err := d.workFiles("checkpoints")
	var out []string
	for _, name := range names {
		if filepath.Ext(name) == ".jsonl" {
			out = append(out, d.file("work", "checkpoints", name))
		}
	}
	return out, err
}

// StateFiles lists the paths of the files of all states, by the state's id: whole ones, and what is there of unfinished ones.
func (d *Dir) StateFiles() (map[string][]string, error) {
	names, err := d.workFiles("states")
	out := map[string][]string{}
	for _, name := range names {
		id, rest, ok := strings.Cut(name, stateExt)
		if ok && (rest == "" || rest[0] == '.') && !strings.HasPrefix(name, ".") {
			out[id] = append(out[id], d.file("work", "states", name))
		}
	}
	return out, err
}

// workFiles lists the names of the files in a folder of work, none when there is no such folder.
func (d *Dir) workFiles(folder string) ([]string, error) {
	entries, err := os.ReadDir(d.file("work", folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}
