package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"attnbudget/atomicfile"
	"attnbudget/cachedir"
	"attnbudget/engine"
	"attnbudget/engine/gguf"
	"attnbudget/engine/quant"
	"attnbudget/engine/source"
	"attnbudget/plan"
)

// quantizedSchema is the version of the description beside a quantised file.
const quantizedSchema = "attnbudget/quantized/1"

// quantizedEntry describes a file of the cache; it is stored beside it and makes it valid.
type quantizedEntry struct {
	Schema string `json:"schema"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	path   string
}

// quantized returns the cached copy of m in format, making it first if there is none. Its name says everything that
// decides its content, and a lock beside it keeps two processes from making it at once.
func (c *child) quantized(ctx context.Context, m plan.Model, format string) (quantizedEntry, error) {
	mix, err := quant.ParseMix(format)
	if err != nil {
		return quantizedEntry{}, err
	}
	dir, err := cachedir.Path()
	if err != nil {
		return quantizedEntry{}, err
	}
	path := filepath.Join(dir, "quantized", fmt.Sprintf("%s-%s-v%s.gguf", m.Fingerprint, mix, engine.Version))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return quantizedEntry{}, fmt.Errorf("cache folder for quantised models (ATTNBUDGET_CACHE chooses another): %w", err)
	}
	if entry, ok := readEntry(path); ok {
		return entry, nil
	}
	unlock, err := cachedir.Lock(ctx, path+".lock")
	if err != nil {
		return quantizedEntry{}, err
	}
	defer unlock()
	if entry, ok := readEntry(path); ok { // made by another process while this one waited
		return entry, nil
	}
	return c.makeQuantized(ctx, m, mix, path)
}

func (c *child) makeQuantized(ctx context.Context, m plan.Model, mix quant.Mix, path string) (quantizedEntry, error) {
	if err := atomicfile.RemoveLeftoversOf(path); err != nil {
		return quantizedEntry{}, err
	}
	original, err := source.File(sourceOf(m))
	if err != nil {
		return quantizedEntry{}, unavailable(err)
	}
	defer original.Close()
	progress := func(done, total int64) { c.say.progress("quantize "+mix.String(), done, total) }
	if err := quant.QuantizeTo(ctx, original, path, mix, quant.Options{Threads: c.job.Threads, Progress: progress}); err != nil {
		return quantizedEntry{}, err
	}
	sum, err := gguf.Fingerprint(ctx, path)
	if err != nil {
		return quantizedEntry{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return quantizedEntry{}, err
	}
	entry := quantizedEntry{Schema: quantizedSchema, SHA256: sum, Bytes: info.Size(), path: path}
	return entry, atomicfile.Write(entryPath(path), func(f *os.File) error { return json.NewEncoder(f).Encode(entry) })
}

func entryPath(path string) string { return path + ".json" }

// readEntry returns the description of a cached file; false if there is no file that fits it.
func readEntry(path string) (quantizedEntry, bool) {
	e := quantizedEntry{path: path}
	b, err := os.ReadFile(entryPath(path))
	if err != nil || json.Unmarshal(b, &e) != nil || e.Schema != quantizedSchema {
		return e, false
	}
	info, err := os.Stat(path)
	return e, err == nil && info.Size() == e.Bytes
}
