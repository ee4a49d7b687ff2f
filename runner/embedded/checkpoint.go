package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"attnbudget/runner"
)

// checkpointSchema is the version of a checkpoint's lines.
const checkpointSchema = "attnbudget/checkpoint/1"

// checkpointHeader begins every part of a checkpoint: each process that works on the unit writes one, then a line per
// finished item. Only lines of the same unit in the same environment may be continued.
type checkpointHeader struct {
	Schema      string `json:"schema"`
	Unit        string `json:"unit"`
	Environment string `json:"environment"`
}

// checkpoint appends finished items to a file.
type checkpoint[Item any] struct {
	f        *os.File
	perSync  int    // items
	unsynced int    // items written since the last sync
	resumed  int    // processes that worked on it before this one and finished at least one item
	dropped  string // which finished items are not used and why, in a line; empty = none
}

// openCheckpoint reads the items finished so far and opens the file for more. What does not belong to the job, and
// everything behind the first damaged line, is cut off; a torn last line costs only its item.
func openCheckpoint[Item any](job runner.Job, perSync int) (*checkpoint[Item], []Item, error) {
	header := checkpointHeader{checkpointSchema, job.Unit.ID, job.Environment}
	b, err := os.ReadFile(job.Checkpoint)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("checkpoint: %w", err)
	}
	done, resumed, good := readCheckpoint[Item](b, header)
	f, err := os.OpenFile(job.Checkpoint, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("checkpoint: %w", err)
	}
	c := &checkpoint[Item]{f: f, perSync: perSync, resumed: resumed, dropped: unused(b[good:], header)}
	if err := f.Truncate(int64(good)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("checkpoint: %w", err), f.Close())
	}
	if err := errors.Join(c.write(header), c.sync()); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return c, done, nil
}

// readCheckpoint returns the items of b, how many parts with items it has, and how many of its bytes are good.
func readCheckpoint[Item any](b []byte, header checkpointHeader) (items []Item, parts, good int) {
	itemsInPart := 0
	for len(b[good:]) > 0 {
		line, _, whole := bytes.Cut(b[good:], []byte{'\n'})
		if !whole {
			break
		}
		var h checkpointHeader
		if json.Unmarshal(line, &h) != nil {
			break
		}
		switch {
		case h == header:
			itemsInPart = 0
		case h == checkpointHeader{} && good > 0:
			var item Item
			if json.Unmarshal(line, &item) != nil {
				return items, parts, good
			}
			items = append(items, item)
			if itemsInPart++; itemsInPart == 1 {
				parts++
			}
		default:
			return items, parts, good
		}
		good += len(line) + 1
	}
	return items, parts, good
}

// unused says which finished items of a checkpoint's rest are not used and why. It is empty where there are none: the one that
// a kill has torn was not finished.
func unused(rest []byte, header checkpointHeader) string {
	first, _, _ := bytes.Cut(rest, []byte{'\n'})
	items := 0
	for line := range bytes.Lines(rest) {
		var h checkpointHeader
		if bytes.HasSuffix(line, []byte{'\n'}) && (json.Unmarshal(line, &h) != nil || h == checkpointHeader{}) {
			items++
		}
	}
	if items == 0 {
		return ""
	}
	why := "the checkpoint is damaged"
	var h checkpointHeader
	if json.Unmarshal(first, &h) == nil {
		switch {
		case h == checkpointHeader{} || h == header:
		case h.Schema != header.Schema:
			why = fmt.Sprintf("another release of this program wrote them (%s, this one %s)", h.Schema, header.Schema)
		case h.Unit != header.Unit:
			why = fmt.Sprintf("they are of other work (%s, this is %s)", h.Unit, header.Unit)
		default:
			why = fmt.Sprintf("another machine, program or set of kernels computed them (environment %s, this is %s)", h.Environment, header.Environment)
		}
	}
	what := "1 finished item is"
	if items > 1 {
		what = fmt.Sprintf("%d finished items are", items)
	}
	return what + " not used but evaluated again: " + why
}

// add writes one finished item; it is durable once perSync items have been written, or after close.
func (c *checkpoint[Item]) add(item Item) error {
	if err := c.write(item); err != nil {
		return err
	}
	if c.unsynced++; c.unsynced < c.perSync {
		return nil
	}
	return c.sync()
}

func (c *checkpoint[Item]) write(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = c.f.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

func (c *checkpoint[Item]) sync() error {
	c.unsynced = 0
	if err := c.f.Sync(); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// close makes the written items durable.
func (c *checkpoint[Item]) close() error { return errors.Join(c.sync(), c.f.Close()) }
