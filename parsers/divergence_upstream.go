package parsers

import (
	"fmt"
	"math"
	"regexp"
	"strings"
)

// llama-perplexity --kl-divergence: a running table and, from 100 tokens on, statistics. Values and errors are rounded;
// of the chunks nothing is recovered, because the table has too few digits.

const (
	divergenceStatistics = "====== KL divergence statistics"
	statisticsFrom       = 100 // tokens
)

var (
	divergenceStart = regexp.MustCompile(`kl_divergence: computing over (\d+) chunks, n_ctx=(\d+),`)
	divergenceTable = regexp.MustCompile(`^\s*(\d+)\s+(\S+) ±\s+(\S+)\s+(\S+) ±\s+(\S+)\s+(\S+) ±\s+(\S+)\s+(\S+) ±\s+(\S+) %\s+(\S+) ±\s+(\S+) %$`)
)

// divergenceRow is a line of the running table: values over the chunks so far, without their errors; rms and sameTop in
// per cent.
type divergenceRow struct {
	line                             int
	ppl, logRatio, kld, rms, sameTop float64
}

func matchDivergenceUpstream(t *text) bool {
	return t.has(divergenceStatistics) || t.matches(divergenceTable) || t.matches(divergenceStart)
}

func announcedDivergence(t *text) (announcement, error) {
	m, l := t.first(divergenceStart)
	if m == nil {
		return announcement{}, nil
	}
	a := announcement{line: l}
	var err error
	if a.chunks, err = whole(l, "chunks", m[1]); err == nil {
		a.context, err = whole(l, "n_ctx", m[2])
	}
	return a, err
}

func divergenceRows(t *text) ([]divergenceRow, error) {
	var out []divergenceRow
	for _, l := range t.lines {
		m := divergenceTable.FindStringSubmatch(l.text)
		if m == nil {
			continue
		}
		n, err := whole(l.n, "chunk number", m[1])
		if err != nil {
			return nil, err
		}
		if n != len(out)+1 {
			return nil, contradiction(l.n, fmt.Sprintf("chunk %d", len(out)+1), fmt.Sprintf("chunk %d", n))
		}
		r := divergenceRow{line: l.n}
		for i, dst := range []*float64{&r.ppl, &r.logRatio, &r.kld, &r.rms, &r.sameTop} {
			if *dst, err = number(l.n, "a value of the table", m[2+2*i]); err != nil {
				return nil, err
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// divergenceMetrics are what the statistics say of each metric, in their order: the words that begin the line, and the
// decimals, of per cents where scale is 100.
var divergenceMetrics = []struct {
	metric, unit string
	line         *regexp.Regexp
	scale        float64
	decimals     int
}{
	{MeanKLD, UnitNats, regexp.MustCompile(`^Mean +KLD: +(\S+) ± +(\S+)$`), 1, 6},
	{MedianKLD, UnitNats, regexp.MustCompile(`^Median +KLD: +(-?\d+\.\d{6}|-?nan|-?inf)()$`), 1, 6},
	{P99KLD, UnitNats, regexp.MustCompile(`^99\.0% +KLD: +(-?\d+\.\d{6}|-?nan|-?inf)()$`), 1, 6},
	{MaxKLD, UnitNats, regexp.MustCompile(`^Maximum +KLD: +(-?\d+\.\d{6}|-?nan|-?inf)()$`), 1, 6},
	{SameTop, UnitFraction, regexp.MustCompile(`^Same top p: +(\S+) ± +(\S+) %$`), 100, 3},
	{MeanDeltaP, UnitFraction, regexp.MustCompile(`^Mean +Δp: +(\S+) ± +(\S+) %$`), 100, 3},
	{RMSDeltaP, UnitFraction, regexp.MustCompile(`^RMS Δp +: +(\S+) ± +(\S+) %$`), 100, 3},
}

func decodeDivergenceUpstream(t *text) ([]Measurement, error) {
	a, err := announcedDivergence(t)
	if err != nil {
		return nil, err
	}
	rows, err := divergenceRows(t)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 {
		if err := countChunks(a, len(rows), rows[len(rows)-1].line); err != nil {
			return nil, err
		}
	}
	ms, err := readStatistics(t)
	if err != nil || len(rows) == 0 {
		return ms, err
	}
	last := rows[len(rows)-1]
	for _, c := range []struct {
		row, statistic, slack float64
	}{{last.kld, ms[0].Value, 0.5e-5}, {last.sameTop / 100, ms[4].Value, 0.5e-5}, {last.rms / 100, ms[6].Value, 0.5e-5}} {
		if math.Abs(c.row-c.statistic) > c.slack*(1+1e-6)+0.5e-5 {
			return nil, contradiction(last.line, fmt.Sprintf("%v, as in the statistics", c.statistic), formatFloat(c.row))
		}
	}
	return ms, nil
}

// readStatistics reads the statistics as they are printed.
func readStatistics(t *text) ([]Measurement, error) {
	var out []Measurement
	for _, k := range divergenceMetrics {
		m, l := t.first(k.line)
		if m == nil {
			return nil, truncated(len(t.lines), "the statistics with "+k.metric+", printed at the end from "+fmt.Sprint(statisticsFrom)+" tokens on", "no such line")
		}
		v, err := number(l, k.metric, m[1])
		if err != nil {
			return nil, err
		}
		r := Measurement{Metric: k.metric, Unit: k.unit, Value: v / k.scale, Rounding: 0.5 * math.Pow10(-k.decimals) / k.scale}
		// Where all tokens agree, rounding makes upstream's variance negative, and its root is not a number.
		if m[2] != "" && !notANumber.MatchString(m[2]) {
			e, err := number(l, "the error of "+k.metric, m[2])
			if err != nil {
				return nil, err
			}
			r.StdErr = ptr(e / k.scale)
		}
		out = append(out, r)
	}
	return out, nil
}

// checkStatistics compares the statistics with what the chunks give.
func checkStatistics(t *text, ms []Measurement) error {
	printed, err := readStatistics(t)
	if err != nil {
		return err
	}
	for i, k := range divergenceMetrics {
		if exact := k.scale * ms[i].Value; !agrees(k.scale*printed[i].Value, exact, k.decimals) {
			_, l := t.first(k.line)
			return contradiction(l, fmt.Sprintf("%s %.*f, from the chunks", k.metric, k.decimals, exact), strings.TrimSpace(fmt.Sprintf("%.*f", k.decimals, k.scale*printed[i].Value)))
		}
	}
	return nil
}
