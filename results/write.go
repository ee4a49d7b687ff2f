package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"attnbudget/atomicfile"
)

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return atomicfile.WriteBytes(path, append(b, '\n'))
}

// setAside moves a record out of records/ into folder under the first free number, for good. The caller holds the lock,
// so the free number stays free.
func (d *Dir) setAside(id, folder string) error {
	if err := atomicfile.MakeFolder(d.file(folder)); err != nil {
		return err
	}
	for n := 1; ; n++ {
		to := d.file(folder, fmt.Sprintf("%s.%d.json", id, n))
		if _, err := os.Lstat(to); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Rename(d.recordPath(id), to); err != nil {
			return fmt.Errorf("set a record aside: %w", err)
		}
		return errors.Join(atomicfile.SyncFolder(d.file(folder)), atomicfile.SyncFolder(d.file("records")))
	}
}

// RemoveLeftovers deletes what processes that died while writing have left. The caller holds the lock.
func (d *Dir) RemoveLeftovers() error {
	for _, sub := range []string{".", "environments", "calibrations", "records", "work/checkpoints", "work/states", "tables"} {
		if err := atomicfile.RemoveLeftovers(d.file(sub)); err != nil {
			return err
		}
	}
	return nil
}
