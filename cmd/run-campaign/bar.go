package main

import (
	"io"
	"os"

	"github.com/mattn/go-isatty"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bar shows how far a command on one model is, with the time left; on anything but a terminal it shows nothing.
type bar struct {
	progress *mpb.Progress
	bar      *mpb.Bar
}

func newBar(w io.Writer, what string) *bar {
	f, ok := w.(*os.File)
	if !ok || !isatty.IsTerminal(f.Fd()) {
		return &bar{}
	}
	p := mpb.New(mpb.WithOutput(f), mpb.WithWidth(48))
	return &bar{p, p.New(0, mpb.BarStyle(),
		mpb.PrependDecorators(decor.Name(what+" "), decor.CountersNoUnit("%d/%d ")),
		mpb.AppendDecorators(decor.Percentage(), decor.Name("  "), decor.AverageETA(decor.ET_STYLE_GO)),
		mpb.BarRemoveOnComplete(),
	)}
}

// set shows done of total.
func (b *bar) set(done, total int64) {
	if b.bar != nil {
		b.bar.SetTotal(total, false)
		b.bar.SetCurrent(done)
	}
}

// done takes the bar away; it may be called twice.
func (b *bar) done() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.progress.Wait()
		b.bar = nil
	}
}
