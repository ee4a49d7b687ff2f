package calibrate

import (
	"bytes"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var (
	ink   = color.RGBA{R: 0x2b, G: 0x5c, B: 0x8a, A: 0xff}
	other = color.RGBA{R: 0xc7, G: 0x6b, B: 0x29, A: 0xff}
	grey  = color.RGBA{R: 0x80, G: 0x80, B: 0x80, A: 0xff}
)

// points are estimates with their standard errors, for the plotters.
type points struct {
	plotter.XYs
	plotter.YErrors
}

func (p *points) add(x float64, e Estimate) {
	p.XYs = append(p.XYs, plotter.XY{X: x, Y: e.Mean})
	p.YErrors = append(p.YErrors, struct{ Low, High float64 }{e.SE, e.SE})
}

// BarsSVG is the picture of what each unit does alone: bars by layer with one standard error. The same report gives the same bytes.
func BarsSVG(r *Report) ([]byte, error) {
	p := plot.New()
	p.Title.Text = "Damage of dropping attention, layer by layer"
	p.X.Label.Text = "layer"
	p.Y.Label.Text = "nats a token, ± one standard error"
	units := slices.Clone(r.Units)
	slices.SortFunc(units, func(a, b UnitResult) int { return slices.Compare(a.Layers, b.Layers) })
	var values plotter.Values
	var errors points
	var labels []string
	for i, u := range units {
		values = append(values, u.Search.NLL.Mean)
		errors.add(float64(i), u.Search.NLL)
		labels = append(labels, fmt.Sprint(u.Layers[0]))
		if n := len(u.Layers); n > 1 {
			labels[i] += fmt.Sprintf("+%d", n-1)
		}
	}
	bars, err := plotter.NewBarChart(values, vg.Points(min(24, 360/float64(len(units)))))
	if err != nil {
		return nil, err
	}
	bars.Color, bars.LineStyle.Width = ink, 0
	whiskers, err := plotter.NewYErrorBars(errors)
	if err != nil {
		return nil, err
	}
	p.Add(bars, whiskers)
	p.NominalX(labels...)
	p.X.Min, p.X.Max = -0.6, float64(len(units))-0.4
	return svg(p)
}

// CurveSVG is the picture of held-out damage against layers dropped, with the quality budget, and with greedy's curve where
// another search was asked for.
func CurveSVG(r *Report) ([]byte, error) {
	p := plot.New()
	p.Title.Text = "Held-out damage of dropping attention"
	p.X.Label.Text = "layers dropped"
	p.Y.Label.Text = "nats a token, ± one standard error"
	last := 1.0
	for _, c := range []struct {
		name  string
		steps []StepResult
		color color.Color
	}{{string(r.Settings.Strategy), r.Steps, ink}, {string(Greedy), r.Greedy, other}} {
		if len(c.steps) == 0 {
			continue
		}
		var curve points
		curve.add(0, Estimate{})
		for _, s := range c.steps {
			last = max(last, float64(len(s.Layers)))
			curve.add(float64(len(s.Layers)), s.Heldout.NLL)
		}
		if err := addCurve(p, c.name, curve, c.color); err != nil {
			return nil, err
		}
	}
	budget, err := plotter.NewLine(plotter.XYs{{X: 0, Y: r.Settings.Budget}, {X: last, Y: r.Settings.Budget}})
	if err != nil {
		return nil, err
	}
	budget.Color, budget.Dashes = grey, []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(budget)
	p.Legend.Add("quality budget", budget)
	p.Legend.Top, p.Legend.Left = true, true
	return svg(p)
}

func addCurve(p *plot.Plot, name string, c points, ink color.Color) error {
	line, dots, err := plotter.NewLinePoints(c.XYs)
	if err != nil {
		return err
	}
	line.Color, dots.Color, dots.Shape = ink, ink, draw.CircleGlyph{}
	whiskers, err := plotter.NewYErrorBars(c)
	if err != nil {
		return err
	}
	whiskers.Color = ink
	p.Add(line, dots, whiskers)
	p.Legend.Add(name, line, dots)
	return nil
}

func svg(p *plot.Plot) ([]byte, error) {
	canvas := vgsvg.New(16*vg.Centimeter, 10*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var buf bytes.Buffer
	_, err := canvas.WriteTo(&buf)
	return buf.Bytes(), err
}
