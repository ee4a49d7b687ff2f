package campaigns

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"

	"github.com/shirou/gopsutil/v4/cpu"

	"attnbudget/plan"
)

// Campaign is a campaign file that has been read and checked, with what is known of its models, texts and task files.
type Campaign struct {
	Spec
	Path     string // of the file, as given
	Text     []byte // the file's bytes
	SHA256   string // of Text
	Warnings []string

	doc          *document
	folder       string // absolute, where relative paths start
	conditions   []condition
	models       []*model // in the order of the file; nil where one could not be opened
	arms         []plan.Arm
	calibrations []plan.Calibration      // that arms get their masks from
	base         int                     // index of the baseline in arms
	work         map[workKey]work        // by model and condition
	calibrated   map[string]*calibration // of the stage calibrate, by model
	reports      map[string]*calibration // that were given, by how the masks name them
}

// Load reads and checks the campaign at path, with every model, text and task file it names. The error is Mistakes when the
// file can be read at all, or ctx's when that ended first. The caller closes the campaign.
func Load(ctx context.Context, path string) (*Campaign, error) {
	text, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	c, err := read(path, text)
	if err != nil {
		return nil, err
	}
	c.resolve(ctx)
	if err := cmp.Or(ctx.Err(), c.doc.err()); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Parse reads a campaign and checks what can be checked without opening any other file. Such a campaign cannot be planned;
// Load is the way to do that.
func Parse(path string, text []byte) (*Campaign, error) {
	c, err := read(path, text)
	if err != nil {
		return nil, err
	}
	return c, c.doc.err()
}

// read decodes and checks. The mistakes are left in the document; the error is for a file that has no values to go on with.
func read(path string, text []byte) (*Campaign, error) {
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	c := &Campaign{Path: path, Text: text, SHA256: hex.EncodeToString(sum[:]), folder: folder, work: map[workKey]work{}}
	doc, top := parse(path, text)
	if c.doc = doc; top == nil {
		return nil, doc.err()
	}
	c.doc.decode(top, reflect.ValueOf(&c.Spec).Elem(), "", rules{})
	c.setDefaults()
	c.check()
	return c, nil
}

// setDefaults fills in what depends on more than one field; fields with a fixed default have got it from their tag.
func (c *Campaign) setDefaults() {
	if _, given := c.doc.values[at("masks")]; !given {
		c.Masks = Masks{{Name: "none"}}
	}
	if _, given := c.doc.values[at("kv_types")]; !given {
		c.KVTypes = []KVType{{"f16", "f16"}}
	}
	if _, given := c.doc.values[at("run", "threads")]; !given {
		c.Run.Threads = cores()
	}
}

// cores is the number of physical cores that this process may use. A second thread on a core shares its arithmetic units and
// makes times uneven.
func cores() int {
	n, err := cpu.Counts(false)
	if err != nil || n < 1 {
		return runtime.GOMAXPROCS(0)
	}
	return min(n, runtime.GOMAXPROCS(0))
}

// Close releases the models.
func (c *Campaign) Close() error {
	var errs []error
	for _, m := range c.models {
		if m != nil {
			errs = append(errs, m.close())
		}
	}
	c.models = nil
	return errors.Join(errs...)
}

func (c *Campaign) warn(format string, args ...any) {
	if w := fmt.Sprintf(format, args...); !slices.Contains(c.Warnings, w) {
		c.Warnings = append(c.Warnings, w)
	}
}

// readBounded reads a file but no more of it than a campaign may have, so that a wrong path cannot fill the memory.
func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("campaign: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("campaign: %s is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("campaign: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("campaign: %w", err)
	}
	return text, nil
}
