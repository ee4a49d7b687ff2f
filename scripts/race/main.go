// Command race runs the same synthetic models through this project's engine and through upstream's, in turn, and writes what it
// finds to docs/speed.md.
//
//	go run ./scripts/race --upstream PATH [--only tg64,Q4_0] [--rounds 3] [--full]
//
// A round of a comparison is four processes, A B B A, in the next round B A A B. Rounds are kept in a journal, so that a race
// that was stopped goes on where it was, one that has all its rounds only writes its report, and more rounds make its intervals narrower.
// Without --upstream only our own figures are measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/shirou/gopsutil/v4/load"
)

// settings are the command line.
type settings struct {
	upstream string
	build    string
	ours     string
	dir      string
	report   string
	only     string
	rounds   int
	threads  int
	full     bool
	noLoad   bool
}

func main() {
	var s settings
	flag.StringVar(&s.upstream, "upstream", "", "program that runs upstream: PATH bench -m MODEL -p N -n N -d N -r N -t N -ctk TYPE -ctv TYPE prints a JSON line with samples_ts")
	flag.StringVar(&s.build, "build", "the one it chooses itself", "which of upstream's builds that is, for the report")
	flag.StringVar(&s.ours, "ours", "", "our program; by default it is built from this checkout")
	flag.StringVar(&s.dir, "dir", filepath.Join(os.TempDir(), "attnbudget-race"), "where models (about 4 GB) and the journal are kept")
	flag.StringVar(&s.report, "report", filepath.Join("docs", "speed.md"), "file to write; empty = print the table only")
	flag.StringVar(&s.only, "only", "", "part of the race: words that must all apply, with / between alternatives: tg64,Q4_0/kv-q8_0")
	flag.IntVar(&s.rounds, "rounds", 1, "rounds of four processes to have of every comparison")
	flag.IntVar(&s.threads, "threads", runtime.GOMAXPROCS(0), "of both engines")
	flag.BoolVar(&s.full, "full", false, "all layers of every model (hours)")
	flag.BoolVar(&s.noLoad, "no-load", false, "leave out the time to the first token of a 1B model")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.race(ctx); err != nil {
		if ctx.Err() != nil {
			err = errors.New("stopped; the same command goes on from here")
		}
		fmt.Fprintln(os.Stderr, "race:", err)
		os.Exit(1)
	}
}

func (s settings) race(ctx context.Context) error {
	chosen, err := choose(cells(s.full), s.only)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if s.ours == "" {
		if s.ours, err = build(ctx, s.dir); err != nil {
			return err
		}
	}
	machine, err := identify(s)
	if err != nil {
		return err
	}
	j, err := openJournal(filepath.Join(s.dir, "race.jsonl"), machine.setup)
	if err != nil {
		return err
	}
	if l, err := load.Avg(); err == nil && l.Load1 > 0.5 {
		fmt.Fprintf(os.Stderr, "race: the load average is %.1f: something else runs here, and no time will mean much\n", l.Load1)
	}
	t := &track{s: s, j: j, ours: embedded{s.ours, s.threads}, log: os.Stderr}
	if s.upstream != "" {
		t.upstream = peer{s.upstream, s.threads}
	}
	// What was measured is reported even when the race was stopped.
	runErr := t.run(ctx, chosen)
	return errors.Join(runErr, report(s, machine, j, os.Stdout))
}
