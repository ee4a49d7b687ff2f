package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestAKilledLogitsFileIsGoneOnWith kills the command that makes a base as often as it takes, whenever a chunk more is finished,
// and compares the file and what the last process prints with those of a command that was left alone.
func TestAKilledLogitsFileIsGoneOnWith(t *testing.T) {
	for _, format := range []string{"upstream", "float32"} {
		t.Run(format, func(t *testing.T) {
			work := t.TempDir()
			base := filepath.Join(work, "base.logits")
			start := func(path string) (*exec.Cmd, *bytes.Buffer) {
				c := exec.Command(program, "perplexity", "-c", "512", "--chunks", "8", "--kl-divergence-base", path, "--logits-format", format)
				var out bytes.Buffer
				c.Stdout = &out
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Process.Kill() })
				return c, &out
			}
			whole, want := start(filepath.Join(work, "whole.logits"))
			if err := whole.Wait(); err != nil {
				t.Fatal(err)
			}
			kills := 0
			c, got := start(base)
			for killedBeforeTheEnd(t, c, base) {
				kills++
				c, got = start(base)
			}
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("after %d kills it prints %q, without %q", kills, got, want)
			}
			if kills == 0 {
				t.Error("it was never killed")
			}
			t.Logf("killed %d times", kills)
			unbroken, err := os.ReadFile(filepath.Join(work, "whole.logits"))
			if err != nil {
				t.Fatal(err)
			}
			broken, err := os.ReadFile(base)
			if err != nil || !bytes.Equal(broken, unbroken) {
				t.Errorf("the files differ; %v", err)
			}
			if left, err := filepath.Glob(base + ".*"); err != nil || left != nil {
				t.Errorf("left over: %v, %v", left, err)
			}
		})
	}
}

// killedBeforeTheEnd kills the process when it has finished a chunk of the base, and is false if it ended well before that.
func killedBeforeTheEnd(t *testing.T, c *exec.Cmd, base string) bool {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for before := finishedChunks(base); ; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			return false
		case <-time.After(2 * time.Millisecond):
			if finishedChunks(base) > before {
				c.Process.Kill()
				<-ended
				return true
			}
		}
	}
}

// finishedChunks is how many chunks the checkpoint of an unfinished logits file has.
func finishedChunks(base string) int {
	text, err := os.ReadFile(base + ".part.jsonl")
	if err != nil {
		return 0
	}
	return bytes.Count(text, []byte(`"kind":"perplexity_chunk"`))
}
