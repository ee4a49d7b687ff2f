package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"attnbudget/engine/bench"
	"attnbudget/engine/bench/limits"
)

// record is a line of the journal: a finished round of a cell, or what was measured of the machine and of loading.
type record struct {
	Setup string    `json:"setup"` // identity of the binaries and the machine; records of another are not mixed in
	Time  time.Time `json:"time"`

	Cell  string `json:"cell,omitempty"`
	Round int    `json:"round,omitempty"`
	Runs  []run  `json:"runs,omitempty"` // in order

	Limits *limits.Limits `json:"limits,omitempty"`
	Loads  []bench.Load   `json:"loads,omitempty"`
}

// journal is a file of records, one JSON object a line, only ever appended to.
type journal struct {
	path    string
	setup   string
	records []record // of this setup
}

// openJournal reads what is there. A last line cut off by a crash is ignored.
func openJournal(path, setup string) (*journal, error) {
	j := &journal{path: path, setup: setup}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintf(os.Stderr, "race: %s:%d is not a whole record and is left out\n", path, n)
			continue
		}
		if r.Setup == setup {
			j.records = append(j.records, r)
		}
	}
	return j, lines.Err()
}

// add appends a record and has it on the disk before it returns. It begins with a line break where a crash left half a line.
func (j *journal) add(r record) error {
	r.Setup, r.Time = j.setup, time.Now().UTC().Truncate(time.Second)
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if s, err := f.Stat(); err == nil && s.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, s.Size()-1); err == nil && last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	j.records = append(j.records, r)
	return nil
}

// rounds are the finished rounds of a cell.
func (j *journal) rounds(key string) []record {
	var out []record
	for _, r := range j.records {
		if r.Cell == key {
			out = append(out, r)
		}
	}
	return out
}

// limits are those measured last.
func (j *journal) limits() (l limits.Limits, ok bool) {
	for _, r := range j.records {
		if r.Limits != nil {
			l, ok = *r.Limits, true
		}
	}
	return l, ok
}

// loads are those measured last.
func (j *journal) loads() []bench.Load {
	var out []bench.Load
	for _, r := range j.records {
		if r.Loads != nil {
			out = r.Loads
		}
	}
	return out
}
