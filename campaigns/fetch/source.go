package fetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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

	key() string  // of the model's folder in the cache
	file() string // the model, or its first part, in that folder
	// fill puts the model into folder, which may hold what an earlier attempt left.
	fill(ctx context.Context, folder string, progress Progress) error
}

// Progress is told how many bytes of a file there are; total is negative while it is not known.
type Progress func(file string, done, total int64)

// Path is where the model is in the cache, or will be.
func Path(s Source) (string, error) {
	dir, err := cachedir.Path()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "models", s.key(), s.file()), nil
}

// Find is Path of a model that is in the cache, empty for one that is not.
func Find(s Source) (string, error) {
	path, err := Path(s)
	if err != nil || !exists(path) {
		return "", err
	}
	return path, nil
}

// Get makes sure that the model is in the cache and returns its path. Two processes may want the same one at once.
func Get(ctx context.Context, s Source, progress Progress) (string, error) {
	path, err := Path(s)
	if err != nil {
		return "", err
	}
	if exists(path) {
		return path, nil
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", fmt.Errorf("cache folder for models (ATTNBUDGET_CACHE chooses another): %w", err)
	}
	unlock, err := cachedir.Lock(ctx, folder+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(path) { // fetched by another process while this one waited
		return path, nil
	}
	return path, fillFolder(ctx, s, folder, progress)
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

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
