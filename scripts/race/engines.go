package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/shirou/gopsutil/v4/cpu"
)

// run is what one process measured.
type run struct {
	Engine             string    `json:"engine"`
	Samples            []float64 `json:"samples"`    // tokens per second
	PeakBytes          int64     `json:"peak_bytes"` // resident; 0 where the system does not tell
	BytesPerToken      float64   `json:"bytes_per_token,omitempty"`
	OperationsPerToken float64   `json:"operations_per_token,omitempty"`
	Collections        int64     `json:"gc,omitempty"`
	MajorFaults        int64     `json:"major_faults,omitempty"`
	Others             float64   `json:"others"` // share of the machine's processor time that went to anything but this process
}

// engine is a program that measures a cell.
type engine interface {
	name() string
	command(ctx context.Context, model string, c cell) *exec.Cmd
	read(line []byte, r *run) error // the result from its JSON line
}

const (
	ours   = "attnbudget"
	theirs = "upstream"
)

// embedded is this project's program.
type embedded struct {
	path    string
	threads int
}

func (embedded) name() string { return ours }

func (e embedded) command(ctx context.Context, model string, c cell) *exec.Cmd {
	return exec.CommandContext(ctx, e.path, append([]string{"bench", "-o", "jsonl"}, options(model, c, e.threads)...)...)
}

// options are those both engines understand.
func options(model string, c cell, threads int) []string {
	return []string{
		"-m", model, "-p", strconv.Itoa(c.Test.Prompt), "-n", strconv.Itoa(c.Test.Generate), "-d", strconv.Itoa(c.Test.Depth),
		"-r", strconv.Itoa(c.Test.Samples), "-t", strconv.Itoa(threads), "-ctk", c.KV, "-ctv", c.KV,
	}
}

func (embedded) read(line []byte, r *run) error {
	var got struct {
		NS         []int64 `json:"samples_ns"`
		Prompt     int     `json:"n_prompt"`
		Generate   int     `json:"n_gen"`
		Bytes      float64 `json:"bytes_per_token"`
		Operations float64 `json:"operations_per_token"`
		GC         []int64 `json:"samples_gc"`
		Major      []int64 `json:"samples_major_faults"`
	}
	if err := json.Unmarshal(line, &got); err != nil {
		return err
	}
	for _, ns := range got.NS {
		r.Samples = append(r.Samples, 1e9*float64(got.Prompt+got.Generate)/float64(ns))
	}
	for _, n := range got.GC { // with --ours an older program may race, which does not count them
		r.Collections += n
	}
	for _, n := range got.Major {
		r.MajorFaults += n
	}
	r.BytesPerToken, r.OperationsPerToken = got.Bytes, got.Operations
	return nil
}

// peer is a program around upstream's library: "bench" with the same options, a JSON line with samples_ts for each test.
type peer struct {
	path    string
	threads int
}

func (peer) name() string { return theirs }

func (e peer) command(ctx context.Context, model string, c cell) *exec.Cmd {
	args := append([]string{"bench"}, options(model, c, e.threads)...)
	if c.KV != "f16" {
		args = append(args, "-fa", "on") // upstream quantises values only with it
	}
	return exec.CommandContext(ctx, e.path, args...)
}

func (peer) read(line []byte, r *run) error {
	var got struct {
		Samples []float64 `json:"samples_ts"`
	}
	err := json.Unmarshal(line, &got)
	r.Samples = got.Samples
	return err
}

// processors is the time all processors have spent since they started, in seconds; what a hypervisor took away counts as worked.
type processors struct{ worked, idle float64 }

func busy() processors {
	t, err := cpu.Times(false)
	if err != nil || len(t) == 0 {
		return processors{}
	}
	c := t[0]
	return processors{c.User + c.System + c.Nice + c.Irq + c.Softirq + c.Steal, c.Idle + c.Iowait}
}

// others is the share of the time between two readings that was worked, but not in the seconds a process took itself.
func others(before, after processors, own float64) float64 {
	worked, idle := after.worked-before.worked, after.idle-before.idle
	if worked+idle <= 0 {
		return 0
	}
	return max(0, worked-own) / (worked + idle)
}

// measure runs one process.
func measure(ctx context.Context, e engine, modelPath string, c cell) (run, error) {
	cmd := e.command(ctx, modelPath, c)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	before := busy()
	out, err := cmd.Output()
	after := busy()
	if err != nil {
		return run{}, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	r := run{Engine: e.name(), PeakBytes: peakBytes(cmd.ProcessState)}
	r.Others = others(before, after, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	line := bytes.TrimSpace(out)
	if err := e.read(line, &r); err != nil {
		return run{}, fmt.Errorf("%s: expected a JSON line, found %.200q: %w", strings.Join(cmd.Args, " "), line, err)
	}
	if len(r.Samples) != c.Test.Samples {
		return run{}, fmt.Errorf("%s: expected %d samples, found %d in %.200q", strings.Join(cmd.Args, " "), c.Test.Samples, len(r.Samples), line)
	}
	for _, s := range r.Samples {
		if !(s > 0) {
			return run{}, fmt.Errorf("%s: a sample of %v tokens per second", strings.Join(cmd.Args, " "), s)
		}
	}
	return r, nil
}
