package summary

import (
	"math"

	"attnbudget/plan"
)

// display is how texts write the numbers of a metric.
type display struct {
	label    string  // what people call the metric
	unit     string  // of the numbers; empty where the label says it
	scale    float64 // from the metric's own unit
	decimals int     // of exact levels; -1: as many as noise allows
	points   string  // unit of differences, where they have one of their own
}

// heading is label and unit, for the head of a column.
func (d display) heading() string {
	if d.unit == "" {
		return d.label
	}
	return d.label + " (" + d.unit + ")"
}

// newDisplay is the display of a metric with these values.
func newDisplay(metric string, values []float64) display {
	d := display{label: label(metric), scale: 1, decimals: -1}
	switch {
	case isFraction(metric):
		d.unit, d.scale, d.points = "%", 100, " pp"
	case isBytes(metric):
		d.unit, d.scale = byteUnit(values)
		d.decimals = commonDecimals(values, d.scale)
	case metric == plan.MetricNLL || metric == plan.MetricMeanKLD || isPercentile(metric):
		d.unit = "nats"
	}
	return d
}

func label(metric string) string {
	switch metric {
	case plan.MetricTokensPerSecond:
		return "t/s"
	case plan.MetricKVBytes:
		return "KV"
	case plan.MetricKVBytesK:
		return "K"
	case plan.MetricKVBytesV:
		return "V"
	case plan.MetricKVCells:
		return "KV cells"
	case plan.MetricRecurrentBytes:
		return "recurrent state"
	case plan.MetricPerplexity:
		return "PPL"
	case plan.MetricNLL:
		return "NLL"
	case plan.MetricHellaSwagAccuracy:
		return "HellaSwag"
	case plan.MetricWinograndeAccuracy:
		return "Winogrande"
	case plan.MetricWinograndeCorrected:
		return "Winogrande, corrected"
	case plan.MetricChoiceAccuracy:
		return "multiple choice"
	case plan.MetricMeanKLD:
		return "KLD"
	case plan.MetricMedianKLD:
		return "median KLD"
	case plan.MetricP99KLD:
		return "99 % KLD"
	case plan.MetricMaxKLD:
		return "maximum KLD"
	case plan.MetricSameTop:
		return "same top token"
	case plan.MetricMeanDeltaP:
		return "Δp"
	case plan.MetricRMSDeltaP:
		return "RMS Δp"
	}
	return metric
}

// isFraction tells whether people write a metric in per cent.
func isFraction(metric string) bool {
	switch metric {
	case plan.MetricHellaSwagAccuracy, plan.MetricWinograndeAccuracy, plan.MetricWinograndeCorrected, plan.MetricChoiceAccuracy,
		plan.MetricSameTop, plan.MetricMeanDeltaP, plan.MetricRMSDeltaP:
		return true
	}
	return false
}

// isPercentile tells whether a metric is one value of many, which has no error from which a difference could be told.
func isPercentile(metric string) bool {
	return metric == plan.MetricMedianKLD || metric == plan.MetricP99KLD || metric == plan.MetricMaxKLD
}

// chance is the accuracy of guessing: one of four endings, one of two names. It is 0 for other metrics, and for tasks that
// differ in how many answers they have.
func chance(metric string) float64 {
	switch metric {
	case plan.MetricHellaSwagAccuracy:
		return 1.0 / 4
	case plan.MetricWinograndeAccuracy, plan.MetricWinograndeCorrected:
		return 1.0 / 2
	}
	return 0
}

func isBytes(metric string) bool {
	switch metric {
	case plan.MetricKVBytes, plan.MetricKVBytesK, plan.MetricKVBytesV, plan.MetricRecurrentBytes:
		return true
	}
	return false
}

// byteUnit is the largest binary unit of which no value but 0 is a fraction.
func byteUnit(values []float64) (unit string, scale float64) {
	least := math.Inf(1)
	for _, v := range values {
		if v > 0 {
			least = min(least, v)
		}
	}
	unit, scale = "B", 1
	if math.IsInf(least, 1) {
		return unit, scale
	}
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if least*scale < 1024 {
			break
		}
		unit, scale = larger, scale/1024
	}
	return unit, scale
}

// maxByteDecimals is how many decimals sizes get that have no end of their own: from 1.000 on, four digits or more.
const maxByteDecimals = 3

// commonDecimals is the fewest decimals that write all values exactly, at most maxByteDecimals.
func commonDecimals(values []float64, scale float64) int {
	d := 0
	for _, v := range values {
		d = max(d, min(exactDecimals(v*scale), maxByteDecimals))
	}
	return d
}

// valuesOf collects the levels of a metric in a table.
func valuesOf(cells [][]TableCell, metric string) []float64 {
	var out []float64
	for c := range all(cells) {
		if c.Metric == metric && c.Value != nil {
			out = append(out, *c.Value)
		}
	}
	return out
}
