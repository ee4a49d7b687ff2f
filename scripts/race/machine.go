package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	ourengine "attnbudget/engine"
	"attnbudget/engine/kernel"
	"attnbudget/results"
	"attnbudget/runner"
)

// machine is where a race runs and with what.
type machine struct {
	results.Environment
	setup  string // identity, see record
	commit string
}

func identify(s settings) (machine, error) {
	e, err := runner.Machine(ourengine.Version, kernel.Name())
	if err != nil {
		return machine{}, err
	}
	h := sha256.New()
	fmt.Fprintln(h, e.Machine, e.CPU, e.Usable, s.threads, e.Kernels, s.build)
	for _, path := range []string{s.ours, s.upstream} {
		if path == "" {
			continue
		}
		if err := hashFile(h, path); err != nil {
			return machine{}, err
		}
	}
	return machine{Environment: e, setup: hex.EncodeToString(h.Sum(nil))[:16], commit: commit()}, nil
}

func hashFile(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(h, f)
	return err
}

// build builds our program. Without the version control stamp equal sources give equal binaries, so that a commit to a document does not
// begin a new race.
func build(ctx context.Context, dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, "run-campaign"))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", path, "./cmd/run-campaign")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building our program (run this from the root of the checkout): %w\n%s", err, out)
	}
	return path, nil
}

// commit is the checkout's, empty outside of one.
func commit() string {
	id, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return ""
	}
	name := strings.TrimSpace(string(id))
	if changes, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output(); err == nil && len(changes) > 0 {
		name += "+changes"
	}
	return name
}
