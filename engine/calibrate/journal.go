package calibrate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"attnbudget/atomicfile"
	"attnbudget/engine/drop"
)

// JournalSchema names the format of the journal, in its first line.
const JournalSchema = "attnbudget/calibration-journal/1"

// binding is the first line of a journal: everything that decides a measured value. Search settings are not among it, so that
// another search goes on with what is known.
type binding struct {
	Schema     string `json:"schema"`
	Model      string `json:"model"` // fingerprint
	Engine     string `json:"engine"`
	Text       string `json:"text"` // SHA-256
	NCtx       int    `json:"n_ctx"`
	Surrogates string `json:"surrogates,omitempty"` // hash of those that masks are measured with
}

// entry is a line of the journal: one mask on one chunk. The undropped model has the empty mask.
type entry struct {
	Mask  string  `json:"mask"`
	Chunk int     `json:"chunk"`
	NLL   float64 `json:"nll"` // of the chunk's scored tokens, mean, nats
	KL    float64 `json:"kl"`
}

// journal keeps what has been measured, in memory and, if it has a file, on disk: lines are appended and synced before
// anybody uses them, so that a calibration that was killed goes on where it was.
type journal struct {
	known map[place]entry
	file  *os.File // nil = in memory only
}

type place struct {
	mask  string
	chunk int
}

// JournalError is a journal of something else than what is to be calibrated.
type JournalError struct {
	Path, What, Expected, Found string
}

func (e *JournalError) Error() string {
	return fmt.Sprintf("%s: the journal was begun with another %s: %s, now %s; remove it or name another report", e.Path, e.What, e.Found, e.Expected)
}

// openJournal begins or goes on with the journal at path; "" is one that is forgotten. An unfinished last line is dropped.
func openJournal(path string, b binding) (*journal, error) {
	j := &journal{known: map[place]entry{}}
	if path == "" {
		return j, nil
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	old = old[:bytes.LastIndexByte(old, '\n')+1]
	if len(old) > 0 {
		if err := j.read(path, old, b); err != nil {
			return nil, err
		}
	}
	if j.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	if err := errors.Join(j.begin(old, b), atomicfile.SyncFolder(filepath.Dir(path))); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), j.Close())
	}
	return j, nil
}

func (j *journal) read(path string, data []byte, b binding) error {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		var err error
		if n == 1 {
			var found binding
			if err = json.Unmarshal(lines.Bytes(), &found); err == nil {
				err = found.same(path, b)
			}
		} else {
			var e entry
			if err = json.Unmarshal(lines.Bytes(), &e); err == nil {
				j.known[place{e.Mask, e.Chunk}] = e
			}
		}
		var other *JournalError
		if errors.As(err, &other) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %w; remove the journal to begin anew", path, n, err)
		}
	}
	return lines.Err()
}

func (found binding) same(path string, want binding) error {
	for _, f := range []struct{ what, want, found string }{
		{"schema", want.Schema, found.Schema},
		{"model", want.Model, found.Model},
		{"engine version", want.Engine, found.Engine},
		{"text", want.Text, found.Text},
		{"context length", fmt.Sprint(want.NCtx), fmt.Sprint(found.NCtx)},
		{"set of surrogates", want.Surrogates, found.Surrogates},
	} {
		if f.want != f.found {
			return &JournalError{path, f.what, f.want, f.found}
		}
	}
	return nil
}

// begin cuts off what follows the lines that were read, and writes the first line where there are none.
func (j *journal) begin(old []byte, b binding) error {
	if err := j.file.Truncate(int64(len(old))); err != nil {
		return err
	}
	if _, err := j.file.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if len(old) > 0 {
		return nil
	}
	return j.write(b)
}

func (j *journal) get(m drop.Mask, chunk int) (entry, bool) {
	e, ok := j.known[place{m.Canonical(), chunk}]
	return e, ok
}

// add writes entries that are not known yet.
func (j *journal) add(entries []entry) error {
	var lines []any
	for _, e := range entries {
		at := place{e.Mask, e.Chunk}
		if _, ok := j.known[at]; !ok {
			j.known[at] = e
			lines = append(lines, e)
		}
	}
	return j.write(lines...)
}

func (j *journal) write(lines ...any) error {
	if j.file == nil || len(lines) == 0 {
		return nil
	}
	var buf bytes.Buffer
	out := json.NewEncoder(&buf)
	for _, l := range lines {
		if err := out.Encode(l); err != nil {
			return err
		}
	}
	if _, err := j.file.Write(buf.Bytes()); err != nil {
		return err
	}
	return j.file.Sync()
}

// Close lets the file go; it stays where it is.
func (j *journal) Close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}
