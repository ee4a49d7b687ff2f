package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"attnbudget/engine/bench"
	"attnbudget/engine/bench/limits"
	"attnbudget/internal/golden"
	"attnbudget/results"

	"github.com/google/go-cmp/cmp"
)

// TestMain makes this binary stand in for both engines.
func TestMain(m *testing.M) {
	if log := os.Getenv("RACE_TEST_LOG"); log != "" {
		os.Exit(fakeEngine(log, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// fakeEngine notes in the log who ran and prints samples of 200 tokens/s for us, 100 for upstream, or what RACE_TEST_SAY
// says. It fails when the log has as many lines as RACE_TEST_FAIL says.
func fakeEngine(log string, args []string) int {
	who := theirs
	if slices.Contains(args, "jsonl") {
		who = ours
	}
	before, _ := os.ReadFile(log)
	if n := strings.Count(string(before), "\n"); os.Getenv("RACE_TEST_FAIL") == strconv.Itoa(n) {
		fmt.Fprintln(os.Stderr, "the fake engine fails")
		return 1
	}
	if err := os.WriteFile(log, append(before, who+" "+strings.Join(args, " ")+"\n"...), 0o644); err != nil {
		return 1
	}
	if say := os.Getenv("RACE_TEST_SAY"); say != "" {
		fmt.Println(say)
		return 0
	}
	if who == ours {
		fmt.Println(`{"n_prompt": 0, "n_gen": 64, "samples_ns": [320000000, 320000000, 320000000], "samples_gc": [0,0,0], "samples_major_faults": [0,0,0], "bytes_per_token": 1e8, "operations_per_token": 2e8}`)
	} else {
		fmt.Println(`{"test":"tg","samples_ts":[100,100,100]}`)
	}
	return 0
}

// fakeRace is a track on which fake engines race in one cell.
func fakeRace(t *testing.T, rounds int) (*track, []cell, func() []string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	t.Setenv("RACE_TEST_LOG", log)
	chosen, err := choose(cells(false), "llama-3.2-1b,q4_0,tg64")
	if err != nil || len(chosen) != 1 {
		t.Fatalf("%d cells, %v", len(chosen), err)
	}
	if err := os.WriteFile(filepath.Join(dir, chosen[0].Model.file()), nil, 0o644); err != nil { // so that none is made
		t.Fatal(err)
	}
	j, err := openJournal(filepath.Join(dir, "race.jsonl"), "setup")
	if err != nil {
		t.Fatal(err)
	}
	if err := j.add(record{Limits: &limits.Limits{ReadBytes: 4e10, MultiplyAdd: 1e11, Threads: 2}}); err != nil {
		t.Fatal(err)
	}
	s := settings{dir: dir, rounds: rounds, threads: 2, only: "x"}
	ran := func() []string {
		b, _ := os.ReadFile(log)
		var who []string
		for line := range strings.Lines(string(b)) {
			who = append(who, strings.Fields(line)[0])
		}
		return who
	}
	return &track{s: s, j: j, ours: embedded{os.Args[0], 2}, upstream: peer{os.Args[0], 2}, log: &bytes.Buffer{}}, chosen, ran
}

func TestRoundsAlternateAndAreNotRepeated(t *testing.T) {
	track, chosen, ran := fakeRace(t, 2)
	if err := track.run(t.Context(), chosen); err != nil {
		t.Fatal(err)
	}
	want := []string{ours, theirs, theirs, ours, theirs, ours, ours, theirs}
	if d := cmp.Diff(want, ran()); d != "" {
		t.Errorf("order of the processes: %s", d)
	}
	again, err := openJournal(track.j.path, "setup")
	if err != nil {
		t.Fatal(err)
	}
	track.j, track.s.rounds = again, 3
	if err := track.run(t.Context(), chosen); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(append(want, ours, theirs, theirs, ours), ran()); d != "" {
		t.Errorf("after a third round was asked for: %s", d)
	}
	c := compare(chosen[0], track.j.rounds(chosen[0].key()))
	if c.medians() != 2 || c.pairsN != 18 || !c.ratio.Bounded || math.Abs(c.ratio.Est-2) > 1e-9 || c.missed() != "" {
		t.Errorf("comparison %+v", c)
	}
	if other, err := openJournal(track.j.path, "another setup"); err != nil || len(other.records) != 0 {
		t.Errorf("another setup sees %d records, %v", len(other.records), err)
	}
}

func TestAStoppedRoundIsRunAgainWhole(t *testing.T) {
	track, chosen, ran := fakeRace(t, 1)
	t.Setenv("RACE_TEST_FAIL", "2")
	if err := track.run(t.Context(), chosen); err == nil || !strings.Contains(err.Error(), "the fake engine fails") {
		t.Fatalf("error %v, want the engine's", err)
	}
	if n := len(track.j.rounds(chosen[0].key())); n != 0 {
		t.Fatalf("%d rounds kept of a stopped one", n)
	}
	t.Setenv("RACE_TEST_FAIL", "")
	if err := track.run(t.Context(), chosen); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{ours, theirs, ours, theirs, theirs, ours}, ran()); d != "" {
		t.Error(d)
	}
}

func TestAnOlderProgramOfOursCountsLess(t *testing.T) {
	var r run
	if err := (embedded{}).read([]byte(`{"n_prompt": 512, "n_gen": 0, "samples_ns": [256000000, 512000000], "samples_gc": [1, 2]}`), &r); err != nil {
		t.Fatal(err)
	}
	if want := (run{Samples: []float64{2000, 1000}, Collections: 3}); !cmp.Equal(r, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
}

func TestAnEngineThatPrintsNoSamplesEndsTheRace(t *testing.T) {
	for say, why := range map[string]string{
		`{"samples_ns":[1000000000]}`:                           "expected 3 samples, found 1",
		`{"n_gen":64,"samples_ns":[1000000000,1000000000,-1]}`:  "a sample of -",
		`{"n_gen":0,"samples_ns":[1000000000,1000000000,1000]}`: "a sample of 0",
		"Segmentation fault":                                    "expected a JSON line",
	} {
		track, chosen, _ := fakeRace(t, 1)
		t.Setenv("RACE_TEST_SAY", say)
		if err := track.run(t.Context(), chosen); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", say, err, why)
		}
		if n := len(track.j.rounds(chosen[0].key())); n != 0 {
			t.Errorf("%s: %d rounds kept", say, n)
		}
	}
}

func TestARaceOnABusyMachineIsCalledDisturbed(t *testing.T) {
	c := cells(false)[0]
	for others, want := range map[float64]bool{0.01: false, 0.05: true} {
		r := run{Engine: ours, Samples: []float64{100, 100}, Others: others}
		p := describe(settings{}, machine{}, &journal{records: []record{{Cell: c.key(), Runs: []run{r, r}}}})
		if p.Disturbed != want {
			t.Errorf("others took %v: disturbed %t", others, p.Disturbed)
		}
	}
}

func TestAloneWeRunTwice(t *testing.T) {
	track, chosen, ran := fakeRace(t, 1)
	track.upstream = nil
	if err := track.run(t.Context(), chosen); err != nil {
		t.Fatal(err)
	}
	c := compare(chosen[0], track.j.rounds(chosen[0].key()))
	if d := cmp.Diff([]string{ours, ours}, ran()); d != "" || c.ours != 200 || c.theirs != 0 || c.pairsN != 0 || c.missed() != "" {
		t.Errorf("%s, comparison %+v", d, c)
	}
}

func TestAHalfWrittenLineLosesNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "race.jsonl")
	j, err := openJournal(path, "s")
	if err != nil {
		t.Fatal(err)
	}
	if err := j.add(record{Cell: "a"}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"setup":"s","cell":"b","ru`)
	f.Close()
	if err := j.add(record{Cell: "c"}); err != nil {
		t.Fatal(err)
	}
	again, err := openJournal(path, "s")
	if err != nil || len(again.records) != 2 || again.records[1].Cell != "c" {
		t.Errorf("%v, records %+v", err, again.records)
	}
}

func TestOnlyChoosesCells(t *testing.T) {
	for _, c := range []struct {
		only string
		want int
		err  string
	}{
		{"", 38, ""},
		{"tg64,Q4_0", 1, ""},
		{"tg64", 9, ""},
		{"q4_0", 6, ""},
		{"kv-q8_0", 1, ""},
		{"tg32@d4096,Q4_0", 3, ""},
		{"tg32,kv-f16", 9, ""},
		{"tg64,Q4_0/kv-q8_0/kv-q4_0", 3, ""},
		{"qwen3.5-2b,pp2048", 1, ""},
		{"tg65", 0, `no part of the race is called "tg65"`},
		{"qwen3.5-2b,F16", 0, "no part of the race is all of that"},
	} {
		got, err := choose(cells(false), c.only)
		if len(got) != c.want || (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("--only %s: %d cells, %v; want %d, %q", c.only, len(got), err, c.want, c.err)
		}
	}
}

func TestOthersAreWhatTheProcessDidNotTake(t *testing.T) {
	for _, c := range []struct{ worked, idle, own, want float64 }{
		{10, 0, 10, 0}, {10, 10, 5, 0.25}, {10, 0, 12, 0}, {0, 0, 0, 0},
	} {
		before := processors{100, 200}
		if got := others(before, processors{100 + c.worked, 200 + c.idle}, c.own); got != c.want {
			t.Errorf("worked %v, idle %v, own %v: %v, want %v", c.worked, c.idle, c.own, got, c.want)
		}
	}
}

func TestKeysOfCellsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range append(cells(false), cells(true)...) {
		if seen[c.key()] {
			t.Errorf("two cells are called %s", c.key())
		}
		seen[c.key()] = true
	}
}

func TestTheReportSaysWhatTheJournalHolds(t *testing.T) {
	j := &journal{records: []record{{Limits: &limits.Limits{Threads: 2, Loops: "avx2", ReadBytes: 22.5e9, MultiplyAdd: 39e9}}}}
	add := func(only string, ourSpeed, theirSpeed float64, ourPeak int64) {
		chosen, err := choose(cells(false), only)
		if err != nil || len(chosen) != 1 {
			t.Fatalf("--only %s: %d cells, %v", only, len(chosen), err)
		}
		n := chosen[0].Test.Samples
		us := run{Engine: ours, Samples: slices.Repeat([]float64{ourSpeed}, n), PeakBytes: ourPeak, Others: 0.01, BytesPerToken: 2e8, OperationsPerToken: 3e8}
		them := run{Engine: theirs, Samples: slices.Repeat([]float64{theirSpeed}, n), PeakBytes: 400 << 20}
		j.records = append(j.records, record{Cell: chosen[0].key(), Runs: []run{us, them, them, us}})
	}
	add("tg64,Q4_0", 70, 50, 410<<20)
	add("pp512,F16", 54, 66, 500<<20)
	add("tg32,kv-q8_0", 30, 24, 400<<20)
	for _, l := range []bench.Load{{Cold: true, Touched: true, Total: 900e6}, {Touched: true, Total: 120e6}, {Total: 150e6}} {
		l.Type, l.Bytes, l.Threads, l.Prompt, l.Open, l.Context, l.Compute = "llama 1.2B Q4_0", 700<<20, 2, 1, 10e6, 20e6, 30e6
		if l.Touched {
			l.Touch = l.Total - 60e6
		}
		j.records = append(j.records, record{Loads: append(slices.Clone(j.loads()), l)})
	}
	s := settings{threads: 2, report: filepath.Join(t.TempDir(), "speed.md")}
	m := machine{
		Environment: results.Environment{CPU: "AMD EPYC 7571", Cores: 2, Threads: 2, MemoryGiB: 16, OS: "linux debian 13", Kernel: "6.1", GoVersion: "go1.26.0", Kernels: "avx2"},
		commit:      "abc1234",
	}
	if err := report(s, m, j, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(s.report)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/speed.md", got)
}

func TestHeadingsOfTheReportStandAlone(t *testing.T) {
	machine, rows, loads := []string{"a machine"}, []row{{Model: "llama"}}, []loadRow{{From: "disk"}}
	for name, p := range map[string]page{
		"nothing raced":             {Machine: machine},
		"only loads":                {Machine: machine, Loads: loads},
		"raced":                     {Machine: machine, Rows: rows, Raced: true},
		"raced and disturbed":       {Machine: machine, Rows: rows, Raced: true, Disturbed: true, Loads: loads},
		"alone, with a collection":  {Machine: machine, Rows: rows, Collections: 1},
		"loads behind a collection": {Machine: machine, Rows: rows, Collections: 1, Loads: loads},
	} {
		document, err := p.document()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(document), "\n")
		headings := 0
		for i, line := range lines {
			if !strings.HasPrefix(line, "## ") {
				continue
			}
			headings++
			if lines[i-1] != "" || lines[i-2] == "" || lines[i+1] != "" {
				t.Errorf("%s: there must be one empty line before and after %q:\n%s", name, line, strings.Join(lines[i-2:i+2], "\n"))
			}
		}
		if headings < 2 || strings.Contains(string(document), "\n\n\n") {
			t.Errorf("%s: %d headings, or two empty lines:\n%s", name, headings, document)
		}
	}
}
