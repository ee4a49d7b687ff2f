package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"attnbudget/plan"
)

// EnvironmentSchema is the version of the JSON form of an Environment.
const EnvironmentSchema = "attnbudget/environment/1"

// Environment is the machine and binary that a session ran on: everything that timings depend on and that a unit's key
// does not say. Measurements of two environments are never paired. Package runner fills it in.
type Environment struct {
	Schema string `json:"schema"`

	Machine   string   `json:"machine"` // anonymous identity: a hash of the operating system's machine id
	OS        string   `json:"os"`      // "linux ubuntu 24.04"
	Kernel    string   `json:"kernel"`
	Arch      string   `json:"arch"`      // GOARCH
	CPU       string   `json:"cpu"`       // model name
	Microcode string   `json:"microcode"` // empty where the system does not tell
	CPUFlags  []string `json:"cpu_flags"` // ascending
	Cores     int      `json:"cores"`     // physical
	Threads   int      `json:"threads"`   // logical
	Usable    int      `json:"usable"`    // logical ones this process may use: affinity and cgroup quota
	Governor  string   `json:"governor"`  // of the CPU frequency; empty where there is none
	Boost     string   `json:"boost"`     // "on", "off" or empty
	MemoryGiB uint64   `json:"memory_gib"`

	GoVersion     string `json:"go_version"`
	Commit        string `json:"commit"` // of the source; with "+changes" if it was not clean
	BinarySHA256  string `json:"binary_sha256"`
	EngineVersion string `json:"engine_version"`
	Kernels       string `json:"kernels,omitempty"` // which of the engine's inner loops: "avx2", "upstream", ...
}

// ID is the first 16 hexadecimal digits of the SHA-256 of the environment's JSON form.
func (e Environment) ID() string {
	e.Schema = EnvironmentSchema
	b, err := json.Marshal(e)
	if err != nil {
		panic("results: an Environment is always marshalable: " + err.Error())
	}
	return hash(b)[:16]
}

// Diff lists the fields in which old and e differ, in declaration order, by their JSON names.
func (e Environment) Diff(old Environment) []plan.Difference {
	var out []plan.Difference
	a, b := reflect.ValueOf(old), reflect.ValueOf(e)
	for i := range a.NumField() {
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
		if name == "schema" || reflect.DeepEqual(x, y) {
			continue
		}
		d := plan.Difference{Field: name, Old: fmt.Sprint(x), New: fmt.Sprint(y)}
		if flags, ok := x.([]string); ok {
			d.Old, d.New = onlyIn(flags, e.CPUFlags), onlyIn(e.CPUFlags, flags)
		}
		out = append(out, d)
	}
	return out
}

// onlyIn lists what a has and b lacks; a whole list of CPU flags tells a reader nothing.
func onlyIn(a, b []string) string {
	var out []string
	for _, s := range a {
		if !slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return strings.Join(out, " ")
}

// WriteEnvironment stores e under its ID, once.
func (d *Dir) WriteEnvironment(e Environment) error {
	path := d.file("environments", e.ID()+".json")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	e.Schema = EnvironmentSchema
	if err := writeJSON(path, e); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	return nil
}

// Environment reads the environment with the given ID.
func (d *Dir) Environment(id string) (Environment, error) {
	var e Environment
	if err := checkID(id); err != nil {
		return e, err
	}
	path := d.file("environments", id+".json")
	if err := readJSON(path, &e); err != nil {
		return Environment{}, fmt.Errorf("environment %s: %w", id, err)
	}
	return e, checkSchema(path, EnvironmentSchema, e.Schema)
}

// Environments reads all environments of the run, by ID.
func (d *Dir) Environments() (map[string]Environment, error) {
	entries, err := os.ReadDir(d.file("environments"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("environments: %w", err)
	}
	out := make(map[string]Environment)
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), ".json")
		if !ok || strings.HasPrefix(id, ".") {
			continue
		}
		if out[id], err = d.Environment(id); err != nil {
			return nil, err
		}
	}
	return out, nil
}
