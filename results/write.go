package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tempPrefix marks files that are being written. A leftover belongs to a process that died.
const tempPrefix = ".tmp-"

// WriteFile puts what write produces at path so that after a crash or a power cut there is either the whole file or what
// was there before: temporary file, fsync, rename, fsync of the folder. The temporary file of a process that died is
// removed by RemoveLeftovers when path is inside the run directory.
func WriteFile(path string, write func(*os.File) error) (err error) {
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, tempPrefix+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err = write(f); err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncFolder(folder)
}

func writeFile(path string, data []byte) error {
	return WriteFile(path, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return writeFile(path, append(b, '\n'))
}

// syncFolder makes the names in a folder durable; a rename alone is not.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// setAside moves a record out of records/ into folder under the first free number, for good. The caller holds the lock,
// so the free number stays free.
func (d *Dir) setAside(id, folder string) error {
	if err := os.MkdirAll(d.file(folder), 0o755); err != nil {
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
		return errors.Join(syncFolder(d.file(folder)), syncFolder(d.file("records")))
	}
}

// RemoveLeftovers deletes temporary files of processes that died while writing. The caller holds the lock.
func (d *Dir) RemoveLeftovers() error {
	for _, sub := range []string{".", "environments", "calibrations", "records", "work/checkpoints", "work/states"} {
		entries, err := os.ReadDir(d.file(sub))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), tempPrefix) {
				if err := os.Remove(d.file(sub, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
