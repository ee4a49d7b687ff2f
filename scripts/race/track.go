package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"attnbudget/engine/bench"
	"attnbudget/engine/bench/limits"
	"attnbudget/engine/synth"
)

// track is a race in progress.
type track struct {
	s        settings
	j        *journal
	ours     engine
	upstream engine // nil = we run alone
	log      io.Writer
}

func (t *track) run(ctx context.Context, chosen []cell) error {
	if _, ok := t.j.limits(); !ok {
		l := limits.Measure(t.s.threads)
		if err := t.j.add(record{Limits: &l}); err != nil {
			return err
		}
	}
	if t.s.only == "" && !t.s.noLoad && t.j.loads() == nil {
		if err := t.load(ctx); err != nil {
			return err
		}
	}
	for round := range t.s.rounds {
		for i, c := range chosen {
			if len(t.j.rounds(c.key())) > round {
				continue
			}
			fmt.Fprintf(t.log, "round %d of %d, %d of %d: %s, %s KV, %s:", round+1, t.s.rounds, i+1, len(chosen), c.Model, c.KV, c.Test.Name)
			if err := t.round(ctx, c, round); err != nil {
				fmt.Fprintln(t.log)
				return err
			}
		}
	}
	return nil
}

// round runs a cell A B B A and keeps the result when it is whole.
func (t *track) round(ctx context.Context, c cell, round int) error {
	path, err := t.model(ctx, c.Model)
	if err != nil {
		return err
	}
	r := record{Cell: c.key(), Round: round + 1}
	for _, e := range t.order(round) {
		one, err := measure(ctx, e, path, c)
		if err != nil {
			return err
		}
		fmt.Fprintf(t.log, " %s %.4g", e.name(), median(one.Samples))
		r.Runs = append(r.Runs, one)
	}
	fmt.Fprintln(t.log)
	return t.j.add(r)
}

// order is A B B A, or the other way round.
func (t *track) order(round int) []engine {
	a, b := t.ours, t.upstream
	if b == nil {
		return []engine{a, a}
	}
	if round%2 == 1 {
		a, b = b, a
	}
	return []engine{a, b, b, a}
}

// model writes a model that is not there yet.
func (t *track) model(ctx context.Context, m model) (string, error) {
	path := filepath.Join(t.s.dir, m.file())
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		err = synth.Write(ctx, path, m.Shape, m.Format, synth.Options{Layers: m.Layers, Seed: 1})
	}
	return path, err
}

// loadRepetitions of the way to the first token, from memory and from the disk each.
const loadRepetitions = 5

// load measures the way to the first token of a whole 1B model.
func (t *track) load(ctx context.Context) error {
	m := model{Shape: "llama-3.2-1b", Format: "Q4_0"}
	path, err := t.model(ctx, m)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.log, "loading %s\n", m)
	var all []bench.Load
	for _, extra := range [][]string{{"--cold"}, nil, {"--no-touch"}} {
		args := append([]string{"bench", "--load", "-m", path, "-t", strconv.Itoa(t.s.threads), "-r", strconv.Itoa(loadRepetitions), "-o", "json"}, extra...)
		cmd := exec.CommandContext(ctx, t.s.ours, args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, stderr.Bytes())
		}
		var loads []bench.Load
		if err := json.Unmarshal(out, &loads); err != nil {
			return fmt.Errorf("%v: %w", cmd.Args, err)
		}
		all = append(all, loads...)
	}
	return t.j.add(record{Loads: all})
}
