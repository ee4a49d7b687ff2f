package parsers

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/montanaflynn/stats"
)

// benchRow is one configuration of a llama-bench output, whatever it was written as.
type benchRow struct {
	line   int
	fields map[string]string // by llama-bench's field names, values as text

	prompt, gen, depth int

	avg, stddev float64 // tokens/s, as printed
	decimals    int     // of avg and stddev
	samplesNS   []float64
	samplesTS   []float64 // as printed, six significant digits
	counted     *Counted  // nil: the output does not say
}

// results are fields that say what came out; all others say what was measured and become labels.
var results = map[string]bool{
	"avg_ns": true, "stddev_ns": true, "avg_ts": true, "stddev_ts": true, "samples_ns": true, "samples_ts": true,
	"samples_gc": true, "samples_minor_faults": true, "samples_major_faults": true, "bytes_per_token": true, "operations_per_token": true, "work": true,
}

// newBenchRow reads the fields that csv, sql and both JSON forms share. Builds before b5163 have no n_depth.
func newBenchRow(l int, fields map[string]string) (*benchRow, error) {
	r := &benchRow{line: l, fields: fields, decimals: 6}
	var err error
	if r.prompt, err = whole(l, "n_prompt", fields["n_prompt"]); err != nil {
		return nil, err
	}
	if r.gen, err = whole(l, "n_gen", fields["n_gen"]); err != nil {
		return nil, err
	}
	if s, ok := fields["n_depth"]; ok {
		if r.depth, err = whole(l, "n_depth", s); err != nil {
			return nil, err
		}
	}
	if r.avg, err = number(l, "avg_ts", fields["avg_ts"]); err != nil {
		return nil, err
	}
	r.stddev, err = number(l, "stddev_ts", fields["stddev_ts"])
	return r, err
}

// measurement checks the row against itself. With samples in nanoseconds the value is their mean at full precision.
func (r *benchRow) measurement() (Measurement, error) {
	m := Measurement{
		Metric: TokensPerSecond, Unit: UnitTokensPerSecond,
		Value: r.avg, StdDev: ptr(r.stddev), Rounding: 0.5 * math.Pow10(-r.decimals),
		Counted: r.counted, Labels: r.labels(),
	}
	if r.prompt+r.gen == 0 {
		return m, contradiction(r.line, "tokens processed or generated", "n_prompt and n_gen both 0")
	}
	if r.avg <= 0 || r.stddev < 0 {
		return m, contradiction(r.line, "a positive mean and a deviation not below 0", fmt.Sprintf("%v and %v", r.avg, r.stddev))
	}
	if len(r.samplesNS) == 0 {
		return m, nil
	}
	if err := r.fromSamples(&m); err != nil {
		return m, err
	}
	return m, nil
}

// fromSamples recomputes throughput from the nanoseconds and compares it with everything printed.
func (r *benchRow) fromSamples(m *Measurement) error {
	for i, ns := range r.samplesNS {
		if ns < 1 {
			return contradiction(r.line, "samples of at least 1 ns", formatFloat(ns))
		}
		ts := 1e9 * float64(r.prompt+r.gen) / ns
		m.Samples = append(m.Samples, ts)
		if i < len(r.samplesTS) && math.Abs(r.samplesTS[i]-ts) > 1e-5*ts {
			return contradiction(r.line, fmt.Sprintf("sample %d of %v tokens/s, from its %v ns", i+1, ts, ns), formatFloat(r.samplesTS[i]))
		}
	}
	if n := len(r.samplesTS); n != 0 && n != len(r.samplesNS) {
		return contradiction(r.line, fmt.Sprintf("%d samples in samples_ts, as in samples_ns", len(r.samplesNS)), strconv.Itoa(n))
	}
	mean, _ := stats.Mean(m.Samples)
	if !agrees(r.avg, mean, r.decimals) {
		return contradiction(r.line, fmt.Sprintf("avg_ts %v, the mean of the samples", mean), formatFloat(r.avg))
	}
	m.Value, m.Rounding, m.StdDev = mean, 0, nil
	if n := len(m.Samples); n > 1 {
		sd, _ := stats.StandardDeviationSample(m.Samples)
		m.StdDev, m.StdErr = ptr(sd), ptr(sd/math.Sqrt(float64(n)))
	}
	return nil
}

func (r *benchRow) labels() map[string]string {
	out := map[string]string{}
	for name, v := range r.fields {
		if !results[name] {
			out[name] = v
		}
	}
	out["n_prompt"], out["n_gen"], out["n_depth"] = strconv.Itoa(r.prompt), strconv.Itoa(r.gen), strconv.Itoa(r.depth)
	out["test"] = testName(r.prompt, r.gen, r.depth)
	return out
}

// testName is llama-bench's name of a test: pp512, tg128, pp512+tg128, with " @ d1024" behind a depth.
func testName(prompt, gen, depth int) string {
	var parts []string
	if prompt > 0 {
		parts = append(parts, fmt.Sprintf("pp%d", prompt))
	}
	if gen > 0 {
		parts = append(parts, fmt.Sprintf("tg%d", gen))
	}
	s := strings.Join(parts, "+")
	if depth > 0 {
		s += fmt.Sprintf(" @ d%d", depth)
	}
	return s
}

func measurements(rows []*benchRow) ([]Measurement, error) {
	if len(rows) == 0 {
		return nil, truncated(0, "at least one result", "none")
	}
	out := make([]Measurement, len(rows))
	for i, r := range rows {
		m, err := r.measurement()
		if err != nil {
			return nil, err
		}
		out[i] = m
	}
	return out, nil
}
