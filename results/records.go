package results

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
)

// RecordError reports a record that cannot be used: unreadable, truncated, changed, or of another schema. To the runner
// its unit has no record; the file stays until a new record takes its place.
type RecordError struct {
	Path string
	Unit string // id, from the file's name
	Err  error
}

func (e *RecordError) Error() string { return fmt.Sprintf("record %s: %v", e.Path, e.Err) }
func (e *RecordError) Unwrap() error { return e.Err }

func (d *Dir) recordPath(id string) string { return d.file("records", id+".json") }

// WriteRecord stores r durably as the current record of its unit, setting its Schema and StdoutSHA. A record that the
// unit already has is kept: it moves to failed/ if it is a failure, to superseded/ otherwise. The caller holds the lock.
func (d *Dir) WriteRecord(r *Record) error {
	if err := checkID(r.Unit.ID); err != nil {
		return err
	}
	if err := d.Supersede(r.Unit.ID); err != nil {
		return fmt.Errorf("record of unit %s: %w", r.Unit.Name, err)
	}
	r.Schema, r.StdoutSHA = RecordSchema, hash([]byte(r.Stdout))
	if err := writeJSON(d.recordPath(r.Unit.ID), r); err != nil {
		return fmt.Errorf("record of unit %s: %w", r.Unit.Name, err)
	}
	return nil
}

// Supersede moves the record of a unit, if it has one, out of the way: to failed/ if it is a failure, to superseded/
// otherwise. The caller holds the lock.
func (d *Dir) Supersede(id string) error {
	old, err := d.Record(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && old.Outcome == Failed {
		return d.setAside(id, "failed")
	}
	return d.setAside(id, "superseded")
}

// Record reads the current record of a unit. The error satisfies errors.Is(err, fs.ErrNotExist) when there is none and
// is a *RecordError when there is one that cannot be used. One that the system does not let us read may be as good as any: that
// is neither.
func (d *Dir) Record(id string) (*Record, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	path := d.recordPath(id)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("record of unit %s: %w; make it readable, or remove it and the unit is run again", id, err)
	}
	r, err := DecodeRecord(b, path)
	if err == nil && r.Unit.ID != id {
		err = fmt.Errorf("it is of unit %q", r.Unit.ID)
	}
	if err != nil {
		return nil, &RecordError{path, id, err}
	}
	return r, nil
}

// Records reads the current records of all units that have one, also of units that are no longer in the plan, ordered
// by unit id. A record that cannot be used is yielded as a nil record with a *RecordError and reading goes on;
// one that a session moves away meanwhile is left out.
func (d *Dir) Records() iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		entries, err := os.ReadDir(d.file("records"))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				yield(nil, fmt.Errorf("records: %w", err))
			}
			return
		}
		for _, e := range entries {
			id, isRecord := strings.CutSuffix(e.Name(), ".json")
			if !isRecord || strings.HasPrefix(id, ".") {
				continue
			}
			r, err := d.Record(id)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// DecodeRecord decodes and checks the JSON form of a record; path is for its errors.
func DecodeRecord(b []byte, path string) (*Record, error) {
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("damaged: %w", err)
	}
	if err := checkSchema(path, RecordSchema, r.Schema); err != nil {
		return nil, err
	}
	if sum := hash([]byte(r.Stdout)); sum != r.StdoutSHA {
		return nil, fmt.Errorf("damaged: its output has SHA-256 %s and it says %q", sum, r.StdoutSHA)
	}
	if r.Outcome != OK && r.Outcome != Failed {
		return nil, fmt.Errorf("its outcome is %q, expected %q or %q", r.Outcome, OK, Failed)
	}
	if (r.Outcome == Failed) != (r.Failure != nil) {
		return nil, fmt.Errorf("its outcome is %q but failure details are %s", r.Outcome, map[bool]string{true: "given", false: "missing"}[r.Failure != nil])
	}
	return &r, nil
}

// checkID refuses what cannot be the name of a record's file, so that an id never leads out of the folder.
func checkID(id string) error {
	if id == "" || id != filepath.Base(id) || strings.HasPrefix(id, ".") {
		return fmt.Errorf("unit id %q is not usable as a file name", id)
	}
	return nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
