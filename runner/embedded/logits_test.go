package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnbudget/engine"
	"attnbudget/engine/builtin"
	"attnbudget/engine/eval"
	"attnbudget/engine/source"
	"attnbudget/plan"
	"attnbudget/results"
	"attnbudget/runner"

	"github.com/google/go-cmp/cmp"
)

var errStopped = errors.New("stopped here")

// stoppable is a context of the engine that fails when it is to decode once too often.
type stoppable struct {
	*engine.Context
	left   int
	poison bool // the logits become NaN instead
}

func (s *stoppable) Decode(ctx context.Context, b *engine.Batch) error {
	if s.left--; s.left < 0 && !s.poison {
		return errStopped
	}
	return s.Context.Decode(ctx, b)
}

func (s *stoppable) Logits(i int) []float32 {
	logits := s.Context.Logits(i)
	if s.left < 0 {
		logits = slices.Clone(logits)
		logits[0] = float32(math.NaN())
	}
	return logits
}

// logitsBench evaluates bases of the shipped model, 8 chunks at a time.
type logitsBench struct {
	t     *testing.T
	model *engine.Model
	file  LogitsFile
}

func newLogitsBench(t *testing.T) *logitsBench {
	m, err := source.Model("builtin:glossary-5m", engine.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return &logitsBench{t, m, LogitsFile{Path: filepath.Join(t.TempDir(), "base.logits"), ID: "base 1", Environment: "e1"}}
}

const benchChunks = 10

func (b *logitsBench) perplexity(format eval.LogitsFormat) *eval.Perplexity {
	b.t.Helper()
	text, err := builtin.Open("builtin:evaluation")
	if err != nil {
		b.t.Fatal(err)
	}
	tok, err := b.model.Tokenizer()
	if err != nil {
		b.t.Fatal(err)
	}
	p, err := eval.NewPerplexity(tok, eval.Input{Name: "evaluation", Data: text}, eval.PerplexityOptions{
		NCtx: 64, Chunks: benchChunks, Logits: format, Origin: eval.Origin{Model: strings.Repeat("0", 64)},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// make makes the file, or as much of it as so many batches give; told are the numbers of the chunks.
func (b *logitsBench) make(format eval.LogitsFormat, s stoppable) (told []int, decoded int, err error) {
	b.t.Helper()
	p := b.perplexity(format)
	if s.Context, err = b.model.NewContext(p.ContextOptions(engine.ContextOptions{NUBatch: 256, Threads: 2})); err != nil {
		b.t.Fatal(err)
	}
	defer s.Context.Close()
	left := s.left
	_, err = b.file.Make(b.t.Context(), p, &s, func(c eval.Chunk) error {
		told = append(told, c.Chunk)
		return nil
	})
	return told, left - s.left, err
}

const unlimited = 1000

func (b *logitsBench) whole(format eval.LogitsFormat) []byte {
	b.t.Helper()
	b.file.Note = func(text string) { b.t.Errorf("%v: made at once, it says %q", format, text) }
	told, decoded, err := b.make(format, stoppable{left: unlimited})
	b.file.Note = nil
	if err != nil {
		b.t.Fatal(err)
	}
	if len(told) != benchChunks || decoded != 2+1 {
		b.t.Errorf("%v: chunks %v in %d batches", format, told, decoded)
	}
	return b.take()
}

// take reads the file and removes it; nothing else may be there.
func (b *logitsBench) take() []byte {
	b.t.Helper()
	if left := b.files(); !slices.Equal(left, []string{"base.logits"}) {
		b.t.Errorf("beside the file there are %v", left)
	}
	content, err := os.ReadFile(b.file.Path)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.Remove(b.file.Path); err != nil {
		b.t.Fatal(err)
	}
	return content
}

func (b *logitsBench) files() (names []string) {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(b.file.Path))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestALogitsFileGoesOnFromWhereItWasStoppedToTheSameBytes(t *testing.T) {
	b := newLogitsBench(t)
	for _, format := range []eval.LogitsFormat{eval.LogitsUpstream, eval.LogitsFloat32} {
		want := b.whole(format)
		for stop, left := range []int{3, 3, 1} { // batches that are still needed
			t.Run(fmt.Sprintf("%v stopped in batch %d", format, stop), func(t *testing.T) {
				if told, _, err := b.make(format, stoppable{left: stop}); !errors.Is(err, errStopped) || len(told) != stop/2*8 {
					t.Fatalf("%v after chunks %v", err, told)
				}
				if files := b.files(); !slices.Equal(files, []string{"base.logits.part", "base.logits.part.jsonl"}) {
					t.Errorf("a file that is not whole leaves %v", files)
				}
				told, decoded, err := b.make(format, stoppable{left: unlimited})
				if err != nil || len(told) != benchChunks || told[0] != 1 || !slices.IsSorted(told) || decoded != left {
					t.Errorf("continued: chunks %v in %d batches, %v", told, decoded, err)
				}
				if !bytes.Equal(b.take(), want) {
					t.Error("the file differs from one that was made at once")
				}
			})
		}
	}
}

func TestOnlyWhatIsSoundOfAnUnfinishedLogitsFileIsUsed(t *testing.T) {
	b := newLogitsBench(t)
	want := b.whole(eval.LogitsUpstream)
	size := b.perplexity(eval.LogitsUpstream).LogitsSize
	for name, c := range map[string]struct {
		spoil   func(l *LogitsFile) error
		decoded int    // batches still needed
		note    string // how it begins
	}{
		"rows behind the last finished chunk": {func(l *LogitsFile) error { return appendTo(l.part(), "rows that are not whole") }, 1, ""},
		"torn line of the checkpoint":         {func(l *LogitsFile) error { return appendTo(l.checkpoint(), `{"kind":"perplex`) }, 1, ""},
		"part longer than the file will be":   {func(l *LogitsFile) error { return os.Truncate(l.part(), size(benchChunks)+1000) }, 1, ""},
		"head overwritten":                    {func(l *LogitsFile) error { return overwrite(l.part()) }, 1, ""},
		"rows lost":                           {func(l *LogitsFile) error { return os.Truncate(l.part(), size(8)-1) }, 3, "8 finished chunks are not used but evaluated again: " + b.file.part()},
		"part lost":                           {func(l *LogitsFile) error { return os.Remove(l.part()) }, 3, "8 finished chunks are not used"},
		"checkpoint lost":                     {func(l *LogitsFile) error { return os.Remove(l.checkpoint()) }, 3, ""},
		"another content":                     {func(l *LogitsFile) error { l.ID = "base 2"; return nil }, 3, "8 finished items are not used but evaluated again: they are of other work (base 1, this is base 2)"},
		"another environment":                 {func(l *LogitsFile) error { l.Environment = "e2"; return nil }, 3, "8 finished items are not used but evaluated again: another machine"},
	} {
		t.Run(name, func(t *testing.T) {
			before := b.file
			if _, _, err := b.make(eval.LogitsUpstream, stoppable{left: 2}); !errors.Is(err, errStopped) {
				t.Fatal(err)
			}
			if err := c.spoil(&b.file); err != nil {
				t.Fatal(err)
			}
			var notes []string
			b.file.Note = func(text string) { notes = append(notes, text) }
			_, decoded, err := b.make(eval.LogitsUpstream, stoppable{left: unlimited})
			b.file = before
			if (len(notes) > 0) != (c.note != "") || len(notes) > 1 || c.note != "" && !strings.HasPrefix(notes[0], c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
			if err != nil || decoded != c.decoded {
				t.Errorf("%d batches, want %d; %v", decoded, c.decoded, err)
			}
			if !bytes.Equal(b.take(), want) {
				t.Error("the file differs from one that was made at once")
			}
		})
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func overwrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("nonsense"), 0)
	return errors.Join(err, f.Close())
}

func TestABaseWithoutPerplexityLeavesNothing(t *testing.T) {
	b := newLogitsBench(t)
	var broken *eval.NotFiniteError
	if _, _, err := b.make(eval.LogitsFloat32, stoppable{left: 2, poison: true}); !errors.As(err, &broken) || broken.Item != "chunk 9" {
		t.Errorf("%v", err)
	}
	if files := b.files(); len(files) != 0 {
		t.Errorf("it leaves %v", files)
	}
}

func TestAnOldLogitsFileStaysUntilTheNewOneIsWhole(t *testing.T) {
	b := newLogitsBench(t)
	if err := os.WriteFile(b.file.Path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.make(eval.LogitsUpstream, stoppable{left: 2}); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	if old, err := os.ReadFile(b.file.Path); err != nil || string(old) != "old" {
		t.Errorf("%q, %v", old, err)
	}
	if begun, want := b.file.Begun(), b.perplexity(eval.LogitsUpstream).LogitsSize(8); begun < want {
		t.Errorf("%d bytes are there, expected %d at least", begun, want)
	}
	if err := b.file.Discard(); err != nil || b.file.Begun() != 0 {
		t.Errorf("%v, %d bytes left", err, b.file.Begun())
	}
	b.whole(eval.LogitsUpstream)
}

func TestALogitsFileTakesThePlaceOfNothingButAFile(t *testing.T) {
	b := newLogitsBench(t)
	if err := os.Mkdir(b.file.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	if told, _, err := b.make(eval.LogitsUpstream, stoppable{left: unlimited}); err == nil || !strings.Contains(err.Error(), "base.logits: it is a directory") || len(told) > 0 {
		t.Errorf("%v after %d chunks", err, len(told))
	}
	if files := b.files(); !slices.Equal(files, []string{"base.logits"}) {
		t.Errorf("it leaves %v", files)
	}
}

func TestTwoProcessesDoNotMakeTheSameLogitsFile(t *testing.T) {
	b := newLogitsBench(t)
	held, err := lockFile(b.file.part())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.make(eval.LogitsUpstream, stoppable{left: unlimited}); err == nil || !strings.Contains(err.Error(), "base.logits.part is being written by another process") {
		t.Error(err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	b.whole(eval.LogitsUpstream)
}

func TestAKilledJobOfBaseLogitsGoesOn(t *testing.T) {
	x := executor(t, "child")
	j := job(t, "F16", nil, plan.Condition{Stage: plan.KLDivergence, Input: "builtin:evaluation", Context: 64, Chunks: 60})
	j.Unit.State = "logits1"
	want, err := os.ReadFile(baseLogits(t, x, j))
	if err != nil {
		t.Fatal(err)
	}
	j.Kind, j.State = runner.JobState, filepath.Join(t.TempDir(), "base.state")
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	if _, err := x.Execute(ctx, j, func(p runner.Progress) {
		if p.Phase == "base logits" && p.Done > 0 {
			kill()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Fatalf("it was not killed: %v", err)
	}
	begun, err := os.ReadFile(j.State + ".part.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	finished := bytes.Count(begun, []byte(`"kind":"perplexity_chunk"`))
	var told []int64
	out, err := x.Execute(t.Context(), j, func(p runner.Progress) { told = append(told, p.Done) })
	if err != nil || out.Failure != nil {
		t.Fatalf("%+v, %v", out.Failure, err)
	}
	if finished == 0 || finished == 60 || len(told) == 0 || told[len(told)-1] != 60 {
		t.Errorf("%d chunks were finished; then progress %v", finished, told)
	}
	got, err := os.ReadFile(j.State)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs from one that was made at once; %v", err)
	}
	if left, err := filepath.Glob(j.State + ".*"); err != nil || left != nil {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestADivergenceReadsEitherFormat gives the executor a base that another program could have made.
func TestADivergenceReadsEitherFormat(t *testing.T) {
	b := newLogitsBench(t)
	x := executor(t, "child")
	j := job(t, "F16", nil, plan.Condition{Stage: plan.KLDivergence, Input: "builtin:evaluation", Context: 64, Chunks: benchChunks})
	for format, floor := range map[eval.LogitsFormat]float64{eval.LogitsUpstream: 1e-5, eval.LogitsFloat32: 0} {
		if _, _, err := b.make(format, stoppable{left: unlimited}); err != nil {
			t.Fatal(err)
		}
		j.State, j.Checkpoint = b.file.Path, filepath.Join(t.TempDir(), "u1.jsonl")
		out, ms := succeed(t, x, j)
		if out.Failure != nil || math.Abs(ms[0].Value) > floor || ms[4].Value != 1 {
			t.Errorf("%v: the base from itself: %+v", format, ms)
		}
	}
	if diff := cmp.Diff([]string{"base.logits"}, b.files()); diff != "" {
		t.Error(diff)
	}
	if err := os.Truncate(j.State, 5000); err != nil {
		t.Fatal(err)
	}
	out, err := x.Execute(t.Context(), j, func(runner.Progress) {})
	if err != nil || out.Failure == nil || out.Failure.Kind != results.Crash || !strings.Contains(out.Failure.Message, "base.logits: the file is cut off") {
		t.Errorf("%+v, %v", out.Failure, err)
	}
}
