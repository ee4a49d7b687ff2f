package fetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"attnbudget/atomicfile"
	"attnbudget/cachedir"
)

// Prefixes of the sources.
const (
	HubPrefix   = "hf:"
	SynthPrefix = "synth:"
)

// Source is a model that can be had.
type Source interface {
	// String is the source in full, with what it leaves to defaults.
	String() string
	// Bytes is the size of the model, negative where only the server knows it.
	Bytes() int64

	key() string     // of the model's folder in the cache
	files() []string // of the model in that folder, in their order
	// fill puts the model into folder, which may hold what an earlier attempt left.
	fill(ctx context.Context, folder string, progress Progress) error
}

// Progress is told how many bytes of a file there are; total is negative while it is not known.
type Progress func(file string, done, total int64)

// folderOf is where the files of the model are in the cache, or will be.
func folderOf(s Source) (string, error) {
	dir, err := cachedir.Path()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "models", s.key()), nil
}

// Find is where the model, or its first part, is in the cache; empty when it is not there.
func Find(s Source) (string, error) {
	folder, err := folderOf(s)
	if err != nil {
		return "", err
	}
	return find(folder, s), nil
}

// find looks for the first of as many files as the model has. They may have other names: what was fetched from elsewhere is the
// same if the key is.
func find(folder string, s Source) string {
	first := filepath.Join(folder, s.files()[0])
	if exists(first) {
		return first
	}
	there, err := os.ReadDir(folder)
	if err != nil || len(there) != len(s.files()) || filepath.Ext(there[0].Name()) != ".gguf" {
		return ""
	}
	return filepath.Join(folder, there[0].Name())
}

// Get makes sure that the model is in the cache and returns its path. Two processes may want the same one at once.
func Get(ctx context.Context, s Source, progress Progress) (string, error) {
	folder, err := folderOf(s)
	if err != nil {
		return "", err
	}
	if path := find(folder, s); path != "" {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", fmt.Errorf("cache folder for models (ATTNBUDGET_CACHE chooses another): %w", err)
	}
	unlock, err := cachedir.Lock(ctx, folder+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if path := find(folder, s); path != "" { // fetched by another process while this one waited
		return path, nil
	}
	return filepath.Join(folder, s.files()[0]), fillFolder(ctx, s, folder, progress)
}

// fillFolder fills a folder beside and gives it its name when that is done. The caller holds the lock.
func fillFolder(ctx context.Context, s Source, folder string, progress Progress) error {
	if err := os.RemoveAll(folder); err != nil { // one that somebody has deleted the model from
		return err
	}
	partial := folder + ".partial"
	if err := os.Mkdir(partial, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.fill(ctx, partial, progress); err != nil {
		return err
	}
	if err := atomicfile.SyncFolder(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, folder); err != nil {
		return err
	}
	return atomicfile.SyncFolder(filepath.Dir(folder))
}

// removeBut removes the files in a folder but for those with the names.
func removeBut(folder string, names []string) error {
	left, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range left {
		if slices.Contains(names, e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(folder, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
