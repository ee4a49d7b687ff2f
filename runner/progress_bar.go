package runner

import (
	"fmt"
	"io"
	"sync"
	"time"

	"attnbudget/results"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// NewBars reports a session on a terminal: a bar over its units with the expected time left, a bar over the running
// unit, and above them a line for every finished unit.
func NewBars(w io.Writer, colour bool) Reporter {
	b := &bars{container: mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithWidth(40)), c: newPalette(colour)}
	style := mpb.BarStyle().Lbound("[").Filler("#").Tip("#").Padding(".").Rbound("]")
	b.all = b.container.New(0, style,
		mpb.PrependDecorators(decor.Name("units", decor.WCSyncSpaceR), decor.CountersNoUnit("%d/%d", decor.WCSyncSpace)),
		mpb.AppendDecorators(decor.Any(b.timeLeft)))
	b.unit = b.container.New(0, style,
		mpb.PrependDecorators(decor.Any(b.phase, decor.WCSyncSpaceR), decor.Percentage(decor.WCSyncSpace)),
		mpb.AppendDecorators(decor.Any(b.name)))
	return b
}

type bars struct {
	container *mpb.Progress
	all, unit *mpb.Bar
	c         palette

	mu       sync.Mutex // the container draws in a goroutine of its own
	running  string
	doing    string
	deadline time.Time // when the session is expected to end; zero = not known
}

func (b *bars) Report(e Event) {
	b.note(e)
	b.all.SetTotal(int64(e.Total), false)
	b.all.SetCurrent(int64(e.Done))
	if p := e.Progress; p != nil {
		b.unit.SetTotal(p.Total, false)
		b.unit.SetCurrent(p.Done)
	}
	if s := b.c.line(e); s != "" {
		fmt.Fprintln(b.container, s)
	}
}

// note keeps what the decorators show.
func (b *bars) note(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Kind {
	case results.EventUnitStart, results.EventUnitEnd:
		b.running, b.doing, b.deadline = e.Name, "", time.Time{}
		if e.LeftSeconds != nil {
			b.deadline = e.Time.Add(seconds(*e.LeftSeconds))
		}
	case EventCalibrationProgress:
		b.running, b.doing = "calibration of "+e.Name, e.Progress.Phase
		if e.LeftSeconds != nil {
			b.deadline = e.Time.Add(seconds(*e.LeftSeconds))
		}
	case EventUnitProgress:
		b.running, b.doing = e.Name, e.Progress.Phase
	}
}

func (b *bars) timeLeft(decor.Statistics) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deadline.IsZero() {
		return "time left not known yet"
	}
	return shortTime(max(0, time.Until(b.deadline))) + " left"
}

func (b *bars) phase(decor.Statistics) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.doing
}

func (b *bars) name(decor.Statistics) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

// Close removes the bars; the lines above them stay.
func (b *bars) Close() {
	b.all.Abort(true)
	b.unit.Abort(true)
	b.container.Wait()
}
