package summary

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"attnbudget/plan"
	"attnbudget/summary/stat"

	"github.com/montanaflynn/stats"
)

// Marks in cells.
const (
	missingText   = "—"
	undecidedText = "~"
	equalText     = "="
)

// write fills in the texts. The digits of a level depend on the whole table: a paired comparison supports more of them
// than the level's own interval, on both of its sides.
func (l *layout) write(cells [][]TableCell) {
	finest := l.pairedWidths(cells)
	for c := range all(cells) {
		c.Text = l.text(c, finest)
	}
}

// pairedWidths is the narrowest half-width of a paired difference that a level takes part in, in the metric's unit.
func (l *layout) pairedWidths(cells [][]TableCell) map[spot]float64 {
	out := map[spot]float64{}
	keep := func(s spot, half float64) {
		if old, ok := out[s]; half > 0 && (!ok || half < old) {
			out[s] = half
		}
	}
	for c := range all(cells) {
		if c.Against == "" || c.Against == c.Arm {
			continue
		}
		e := l.compare(c)
		if e.Difference != nil && e.Difference.Bounded {
			half := (e.Difference.Hi - e.Difference.Lo) / 2
			keep(spot{place{c.Arm, c.Condition}, c.Metric}, half)
			keep(spot{place{c.Against, c.Condition}, c.Metric}, half)
		}
	}
	return out
}

func (l *layout) text(c *TableCell, finest map[spot]float64) string {
	if c.Value == nil {
		return missingText + marks(c.Notes)
	}
	s := l.level(c, finest[spot{place{c.Arm, c.Condition}, c.Metric}])
	var inside []string
	if c.Effect != nil {
		inside = append(inside, effectText(c, l.effectOf(c.Metric), l.displays[c.Metric]))
	}
	if c.OK < c.Planned {
		inside = append(inside, fmt.Sprintf("n %d/%d", c.OK, c.Planned))
	}
	if len(inside) > 0 {
		s += " (" + strings.Join(inside, ", ") + ")"
	}
	return s + marks(c.Notes)
}

// level writes the value with the digits that its interval, or the paired one, supports.
func (l *layout) level(c *TableCell, paired float64) string {
	d, half := l.displays[c.Metric], 0.0
	cell := l.cells[place{c.Arm, c.Condition}][c.Metric]
	switch {
	case c.Interval != nil && c.Interval.Bounded:
		half = (c.Interval.Hi - c.Interval.Lo) / 2
	case cell.StdDev != nil && *cell.StdDev > 0:
		half = meanHalf(cell)
	}
	if paired > 0 && (half == 0 || paired < half) && !timed(l.ds.conditions[c.Condition].Stage) {
		half = paired
	}
	v := d.scale * *c.Value
	half *= d.scale
	switch {
	case half > 0:
		return fixed(v, decimalsOf(half))
	case d.decimals >= 0:
		return fixed(v, d.decimals)
	case v == math.Trunc(v):
		return fixed(v, 0) // cells are exact
	}
	return significant(v, 3)
}

// meanHalf is the half-width of the t interval of the cell's mean, for medians of fewer values than have an interval.
func meanHalf(c *Cell) float64 {
	x := make(stats.Float64Data, len(c.Values))
	for i, v := range c.Values {
		x[i] = v.Value
	}
	i := stat.MeanT(x, Level)
	return (i.Hi - i.Lo) / 2
}

// effectText writes a ratio as 1.31× [1.28, 1.34], a difference as +0.18 [+0.12, +0.24]. What cannot be told from
// noise has no number: it is in the CSV form, with its interval.
func effectText(c *TableCell, effect string, d display) string {
	switch c.Verdict {
	case Equal:
		return equalText
	case Undecided:
		return undecidedText
	}
	i, neutral, sign, unit := *c.Effect, 1.0, "", "×"
	if effect == plan.EffectDifference {
		neutral, sign, unit = 0, "+", d.points
		i.Est, i.Lo, i.Hi = d.scale*i.Est, d.scale*i.Lo, d.scale*i.Hi
	}
	half := min(i.Hi-i.Est, i.Est-i.Lo) // of a ratio the lower side is the narrower one
	if half <= 0 {
		return signed(i.Est, exactDecimals(i.Est), sign) + unit
	}
	n := decidedDecimals(i, neutral, decimalsOf(half))
	return fmt.Sprintf("%s%s [%s, %s]", signed(i.Est, n, sign), unit, signed(i.Lo, n, sign), signed(i.Hi, n, sign))
}

// decidedDecimals adds digits while rounding would move an end onto the neutral value that the interval excludes.
func decidedDecimals(i stat.Interval, neutral float64, d int) int {
	at := fixed(neutral, max(d, 0))
	for ; d < 12 && !i.Contains(neutral) && (fixed(i.Lo, d) == at || fixed(i.Hi, d) == at || fixed(i.Est, d) == at); d++ {
		at = fixed(neutral, max(d+1, 0))
	}
	return d
}

// decimalsOf is how many decimals a half-width supports, by the rounding rule of the Particle Data Group (Review of
// Particle Physics, introduction, 5.3): two digits of it when they are up to 35, else one. It may be negative.
func decimalsOf(half float64) int {
	place := int(math.Floor(math.Log10(half)))
	if half/math.Pow10(place) < 3.55 {
		return 1 - place
	}
	return -place
}

// exactDecimals is how many decimals an exact ratio needs, at most four.
func exactDecimals(v float64) int {
	for d := range 4 {
		if math.Abs(v-math.Round(v*math.Pow10(d))/math.Pow10(d)) < 1e-9 {
			return d
		}
	}
	return 4
}

// fixed rounds to so many decimals; negative ones round before the point.
func fixed(v float64, decimals int) string {
	if decimals < 0 {
		scale := math.Pow10(-decimals)
		v, decimals = math.Round(v/scale)*scale, 0
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(s, "-0.") == "" {
		return strings.TrimPrefix(s, "-")
	}
	return s
}

func signed(v float64, decimals int, plus string) string {
	s := fixed(v, decimals)
	if plus != "" && !strings.HasPrefix(s, "-") && strings.Trim(s, "0.") != "" {
		return plus + s
	}
	return s
}

// significant rounds to so many digits, for a value of whose noise nothing is known.
func significant(v float64, digits int) string {
	if v == 0 {
		return "0"
	}
	return fixed(v, digits-1-int(math.Floor(math.Log10(math.Abs(v)))))
}

// letters mark footnotes: a number would read as a power.
var letters = []rune("ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ")

// mark is the letter of a footnote, from 1; beyond the alphabet there are two.
func mark(n int) string {
	if n > len(letters) {
		return mark((n-1)/len(letters)) + mark((n-1)%len(letters)+1)
	}
	return string(letters[n-1])
}

func marks(notes []int) string {
	out := make([]string, len(notes))
	for i, n := range notes {
		out[i] = mark(n)
	}
	return strings.Join(out, " ")
}
