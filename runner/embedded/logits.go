package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"attnbudget/atomicfile"
	"attnbudget/engine/eval"
	"attnbudget/plan"
	"attnbudget/runner"

	"golang.org/x/sys/unix"
)

// LogitsFile is a base's logits file that is being made. Until it is whole, what there is of it stands in two files beside it:
// PATH.part has the rows, PATH.part.jsonl is the checkpoint, with a line per chunk whose rows are on the disk. Whoever makes the
// file again after a kill goes on from there, to the very same bytes.
type LogitsFile struct {
	Path        string
	ID          string // of its content: a part with another one is not continued
	Environment string // on which it is made: a part of another one is not continued

	Note func(string) // is told in a line which finished chunks are not used and why; nil = nobody wants to know
}

func (l LogitsFile) part() string       { return l.Path + ".part" }
func (l LogitsFile) checkpoint() string { return l.Path + ".part.jsonl" }

// Begun is how many bytes of the disk the unfinished file takes already.
func (l LogitsFile) Begun() int64 {
	info, err := os.Stat(l.part())
	if err != nil {
		return 0
	}
	return info.Size()
}

// Discard removes what there is of the unfinished file.
func (l LogitsFile) Discard() error {
	for _, path := range []string{l.part(), l.checkpoint()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Make evaluates the base, in a context with p's options, and puts the file at Path. each is called for every chunk in order,
// also for those that are finished already. What is there at Path stays until the new file is whole. A chunk that has no
// perplexity ends it for good: nothing is kept then.
func (l LogitsFile) Make(ctx context.Context, p *eval.Perplexity, c eval.Context, each func(eval.Chunk) error) (chunks []eval.Chunk, err error) {
	if err := atomicfile.Check(l.Path); err != nil {
		return nil, err
	}
	part, err := lockFile(l.part())
	if err != nil {
		return nil, fmt.Errorf("logits file: %w", err)
	}
	defer func() {
		err = errors.Join(err, part.Close())
		var broken *eval.NotFiniteError
		if errors.As(err, &broken) {
			err = errors.Join(err, l.Discard())
		}
	}()
	if chunks, err = l.fill(ctx, part, p, c, each); err != nil {
		return chunks, err
	}
	if err := os.Rename(l.part(), l.Path); err != nil {
		return chunks, err
	}
	if err := os.Remove(l.checkpoint()); err != nil {
		return chunks, err
	}
	return chunks, atomicfile.SyncFolder(filepath.Dir(l.Path))
}

// fill makes the part whole and durable.
func (l LogitsFile) fill(ctx context.Context, part *os.File, p *eval.Perplexity, c eval.Context, each func(eval.Chunk) error) (chunks []eval.Chunk, err error) {
	cp, done, err := l.open(part, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cp.close()) }()
	for _, chunk := range done {
		if err := each(chunk); err != nil {
			return done, err
		}
	}
	chunks, err = p.RunBase(ctx, c, part, done, func(chunk eval.Chunk) error {
		// The rows before the line that says they are there.
		if err := part.Sync(); err != nil {
			return err
		}
		if err := cp.add(chunk); err != nil {
			return err
		}
		return each(chunk)
	})
	if err != nil {
		return chunks, err
	}
	return chunks, part.Sync()
}

// open opens the checkpoint and cuts off what the part has behind the finished chunks. A checkpoint that says more than the
// part has is not used.
func (l LogitsFile) open(part *os.File, p *eval.Perplexity) (*checkpoint[eval.Chunk], []eval.Chunk, error) {
	job := runner.Job{Unit: plan.Unit{ID: l.ID}, Environment: l.Environment, Checkpoint: l.checkpoint()}
	cp, done, err := openCheckpoint[eval.Chunk](job, 1)
	if err != nil {
		return nil, nil, err
	}
	info, err := part.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, cp.close())
	}
	l.note(cp.dropped)
	if len(done) > p.Chunks || info.Size() < p.LogitsSize(len(done)) {
		if len(done) > 0 {
			l.note(fmt.Sprintf("%d finished chunks are not used but evaluated again: %s does not have all of their rows", len(done), l.part()))
		}
		if err := errors.Join(cp.close(), os.Remove(l.checkpoint())); err != nil {
			return nil, nil, err
		}
		if cp, done, err = openCheckpoint[eval.Chunk](job, 1); err != nil {
			return nil, nil, err
		}
	}
	if len(done) == 0 {
		err = part.Truncate(0)
	} else {
		err = part.Truncate(p.LogitsSize(len(done)))
	}
	if err != nil {
		return nil, nil, errors.Join(err, cp.close())
	}
	return cp, done, nil
}

func (l LogitsFile) note(text string) {
	if l.Note != nil && text != "" {
		l.Note(text)
	}
}

// lockFile opens or makes a file that no other process may have open in this way. The kernel gives the lock back when the file is
// closed.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%s is being written by another process: wait for it, or choose another file", path)
		}
		return nil, errors.Join(err, f.Close())
	}
	// Its last holder may have finished it, and given it its name, since it was opened.
	mine, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		if named, err = os.Stat(path); err == nil && !os.SameFile(mine, named) || errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s has just been finished by another process", path)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
