package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"attnbudget/engine/gguf"
)

// Hub is a file, or a split model, of a repository on a model hub.
type Hub struct {
	Owner, Repo string
	File        string // in the repository, slashes between folders; of a split model the first part
	SHA256      string // of the file, or of all parts one after the other

	downloader *downloader // nil = a new one
}

var (
	hubName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	hubPart = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)
)

// ParseHub reads OWNER/REPO/FILE.
func ParseHub(text, sum string) (Hub, error) {
	steps := strings.Split(text, "/")
	if len(steps) < 3 {
		return Hub{}, fmt.Errorf("%q must be OWNER/REPO/FILE", text)
	}
	for _, step := range steps {
		if !hubName.MatchString(step) {
			return Hub{}, fmt.Errorf("%q cannot be part of OWNER/REPO/FILE: use letters, digits, dots, hyphens and underscores", step)
		}
	}
	h := Hub{Owner: steps[0], Repo: steps[1], File: strings.Join(steps[2:], "/"), SHA256: sum}
	if m := hubPart.FindStringSubmatch(h.File); m != nil {
		if m[2] != "00001" {
			return Hub{}, fmt.Errorf("%s is not the first part of the model: write %s", h.file(), path.Base(partName(m, 1)))
		}
		if n, _ := strconv.Atoi(m[3]); n < 1 {
			return Hub{}, fmt.Errorf("%s: a model has at least one part", h.file())
		}
	} else if path.Ext(h.File) != ".gguf" {
		return Hub{}, fmt.Errorf("%s is not a GGUF file: its name must end in .gguf", h.file())
	}
	return h, nil
}

func partName(m []string, no int) string { return fmt.Sprintf("%s-%05d-of-%s.gguf", m[1], no, m[3]) }

// parts are the files of the model, in their order.
func (h Hub) parts() []string {
	m := hubPart.FindStringSubmatch(h.File)
	if m == nil {
		return []string{h.File}
	}
	n, _ := strconv.Atoi(m[3])
	var out []string
	for i := range n {
		out = append(out, partName(m, i+1))
	}
	return out
}

func (h Hub) String() string { return HubPrefix + h.Owner + "/" + h.Repo + "/" + h.File }
func (h Hub) Bytes() int64   { return -1 }
func (h Hub) key() string    { return h.SHA256 }
func (h Hub) file() string   { return path.Base(h.File) }

// files are the names of the parts in the cache.
func (h Hub) files() []string {
	out := h.parts()
	for i := range out {
		out[i] = path.Base(out[i])
	}
	return out
}

// defaultHub is where hf: files are, unless HF_ENDPOINT names a mirror.
const defaultHub = "https://huggingface.co"

// endpoint is the address that the hub's own tools use too.
func endpoint() (*url.URL, error) {
	text := os.Getenv("HF_ENDPOINT")
	if text == "" {
		text = defaultHub
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("HF_ENDPOINT must be an address such as %s, found %q", defaultHub, text)
	}
	return u, nil
}

func (h Hub) fill(ctx context.Context, folder string, progress Progress) error {
	base, err := endpoint()
	if err != nil {
		return err
	}
	d := h.downloader
	if d == nil {
		d = newDownloader()
	}
	if err := removeBut(folder, h.files()); err != nil {
		return err
	}
	resumed := h.resumed(folder)
	for {
		if err := h.download(ctx, d, base, folder, progress); err != nil {
			return err
		}
		err := h.verify(ctx, folder)
		var wrong *HashError
		if !errors.As(err, &wrong) {
			return err
		}
		// The beginning may be that of a file that has been replaced since. What is whole and wrong is of no use.
		if err := h.discard(folder); err != nil || !resumed {
			return errors.Join(wrong, err)
		}
		resumed = false
	}
}

func (h Hub) download(ctx context.Context, d *downloader, base *url.URL, folder string, progress Progress) error {
	for _, part := range h.parts() {
		u := base.JoinPath(h.Owner, h.Repo, "resolve", "main", part)
		name := path.Base(part)
		err := d.download(ctx, u.String(), filepath.Join(folder, name), func(done, total int64) { progress(name, done, total) })
		if err != nil {
			return fmt.Errorf("%s: %w", h, err)
		}
	}
	return nil
}

// resumed reports whether an earlier attempt has left anything.
func (h Hub) resumed(folder string) bool {
	for _, file := range h.files() {
		if exists(filepath.Join(folder, file)) {
			return true
		}
	}
	return false
}

func (h Hub) discard(folder string) error {
	var errs []error
	for _, file := range h.files() {
		errs = append(errs, os.Remove(filepath.Join(folder, file)))
	}
	return errors.Join(errs...)
}

// verify compares the hash of all parts.
func (h Hub) verify(ctx context.Context, folder string) error {
	sum := sha256.New()
	var size int64
	for _, file := range h.files() {
		n, err := gguf.AddFile(ctx, sum, filepath.Join(folder, file))
		if err != nil {
			return err
		}
		size += n
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != h.SHA256 {
		return &HashError{Source: h.String(), Bytes: size, Got: got, Want: h.SHA256}
	}
	return nil
}

// HashError is a download that is not what was asked for. Nothing of it is kept.
type HashError struct {
	Source    string
	Bytes     int64
	Got, Want string
}

func (e *HashError) Error() string {
	return fmt.Sprintf("%s: the server's file (%d bytes) has the SHA-256 %s and must have %s: compare the hash on the file's page with that in the campaign", e.Source, e.Bytes, e.Got, e.Want)
}
