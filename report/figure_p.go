package report

import (
	"fmt"
	"math"
	"onering/internal/stat"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// exponentAndESS draws a point at (p, effective sample size) for each optimizer step
// and each sign of the advantage. The PMPO paper has a figure of the same relation.
func exponentAndESS(groups []*group) figure {
	f := figure{
		ID: "p-ess", Title: "p against ESS", X: "p", Kind: "scatter",
		Note: "Means of each optimizer step. Filled: positive advantage. Hollow: negative advantage.",
	}
	runs := 0
	for _, g := range groups {
		runs += len(g.runs)
	}
	const mostDots = 4000 // points of all runs for each sign, unless there are very many runs
	limit := max(minLinePoints, mostDots/max(1, runs))
	for k, g := range groups {
		for _, part := range []struct{ suffix, label, symbol string }{{"/pos", "A > 0", "circle"}, {"/neg", "A < 0", "emptyCircle"}} {
			var p points
			for _, r := range g.runs {
				all := pairColumns(r.Steps.Column("p/mean"+part.suffix), r.Steps.Column("ess"+part.suffix))
				stride := max(1, len(all)/limit)
				for i := 0; i < len(all); i += stride {
					p = append(p, all[i])
				}
			}
			if len(p) == 0 {
				continue
			}
			f.Labels = append(f.Labels, part.label)
			f.series = append(f.series, charts.SingleSeries{
				Name: g.name, Type: "scatter", Data: p, Color: color(k), Symbol: part.symbol, SymbolSize: 6,
				ItemStyle: &opts.ItemStyle{Opacity: opts.Float(0.55)},
			})
		}
	}
	least, most := f.extent(func(xy [2]float64) float64 { return xy[0] })
	if looksSame(least, most) {
		return f.replacedBy(fmt.Sprintf("p was %.3g in every step.", most))
	}
	return f.draw("item", noLegend, opts.XAxis{Type: "value", Name: "p", Min: 0, Max: max(1, math.Ceil(most))},
		opts.YAxis{Type: "value", Name: "ESS", Scale: opts.Bool(true)})
}

// pairColumns joins two columns. It omits rows in which either value is NaN.
func pairColumns(x, y []float64) points {
	var p points
	for i := range min(len(x), len(y)) {
		if !math.IsNaN(x[i]) && !math.IsNaN(y[i]) {
			p = append(p, [2]float64{x[i], y[i]})
		}
	}
	return p
}

// gradientShare draws how evenly the gradient is distributed over the tokens of a
// response: the share of sum |w| that belongs to the 10 %, 20 %, ... of the tokens
// with the largest weights, as a mean over the run's steps.
func gradientShare(groups []*group) figure {
	f := figure{
		ID: "grad-share", Title: "Where the gradient lies", X: "heaviest tokens, %", Kind: "line",
		Note: "Share of a response's gradient weight that its heaviest tokens have. Solid: positive advantage. Dashed: " +
			"negative advantage. A diagonal line means that all tokens have the same weight.",
	}
	for k, g := range groups {
		for _, t := range []trace{{"/pos", "A > 0", ""}, {"/neg", "A < 0", "dashed"}} { // the end of the metrics' names
			p := points{{0, 0}}
			for top := 10; top <= 90; top += 10 { // in percent of the tokens
				var all []float64
				for _, r := range g.runs {
					all = append(all, r.Steps.Column(fmt.Sprintf("grad_share/top%d%s", top, t.metric))...)
				}
				if mean := stat.Mean(all); !math.IsNaN(mean) {
					p = append(p, [2]float64{float64(top), mean})
				}
			}
			if len(p) > 1 {
				f.add(g.name, t, append(p, [2]float64{100, 1}), k, false)
			}
		}
	}
	aboveDiagonal := func(xy [2]float64) float64 { return xy[1] - xy[0]/100 }
	if least, most := f.extent(aboveDiagonal); most-least <= 0.01 {
		return f.replacedBy("Evenly on the tokens of a response: all of them had the same weight.")
	}
	return f.drawLines(zeroToOne)
}
