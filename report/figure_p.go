package report

import (
	"fmt"
	"math"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// exponents draws p against the effective sample size that it came to, a point
// for each optimizer step and sign of the advantage: the run's own counterpart
// of the paper's figure of the relation between p and ESS.
func exponents(groups []*group) (figure, bool) {
	f := figure{
		ID: "p-ess", Title: "p against ESS", X: "p", Kind: "scatter",
		Note: "Means of each optimizer step. Filled: positive advantage. Hollow: negative. One vertical line: p never moved.",
	}
	runs := 0
	for _, g := range groups {
		runs += len(g.runs)
	}
	limit := max(fewPoints, 4000/max(1, runs))
	for k, g := range groups {
		for _, part := range []struct{ suffix, label, symbol string }{{"/pos", "A > 0", "circle"}, {"/neg", "A < 0", "emptyCircle"}} {
			var p points
			for _, r := range g.runs {
				all := pairs(r.Steps.Column("p/mean"+part.suffix), r.Steps.Column("ess"+part.suffix))
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
	if len(f.series) == 0 {
		return f, false
	}
	right := 1.0
	for _, s := range f.series {
		for _, xy := range s.Data.(points) {
			right = max(right, math.Ceil(xy[0]))
		}
	}
	c := charts.NewScatter()
	c.SetGlobalOptions(
		charts.WithAnimation(false),
		charts.WithTooltipOpts(opts.Tooltip{Show: opts.Bool(true), Trigger: "item"}),
		charts.WithLegendOpts(opts.Legend{Show: opts.Bool(false)}),
		charts.WithXAxisOpts(opts.XAxis{Type: "value", Name: "p", Min: 0, Max: right}),
		charts.WithYAxisOpts(opts.YAxis{Type: "value", Name: "ESS", Scale: opts.Bool(true)}),
	)
	c.MultiSeries = f.series
	f.Chart = c.JSON()
	return f, true
}

// pairs joins two columns, leaving out rows where either is no number.
func pairs(x, y []float64) points {
	var p points
	for i := range min(len(x), len(y)) {
		if !math.IsNaN(x[i]) && !math.IsNaN(y[i]) {
			p = append(p, [2]float64{x[i], y[i]})
		}
	}
	return p
}

// spread draws how the gradient is spread over the tokens of a response: the
// share of sum |w| that the heaviest tenth, two tenths, ... of them hold, a mean
// over the run's steps.
func spread(groups []*group) (figure, bool) {
	f := figure{
		ID: "grad-share", Title: "Where the gradient lies", X: "heaviest tokens, %", Kind: "line",
		Note: "Share of the gradient weight in a response's heaviest tokens. Dashed: negative advantage. Diagonal: all weigh alike.",
	}
	for k, g := range groups {
		for _, t := range []trace{{"/pos", "A > 0", ""}, {"/neg", "A < 0", "dashed"}} {
			p := points{{0, 0}}
			for top := 10; top <= 90; top += 10 {
				sum, n := 0.0, 0
				for _, r := range g.runs {
					for _, v := range r.Steps.Column(fmt.Sprintf("grad_share/top%d%s", top, t.metric)) {
						if !math.IsNaN(v) {
							sum += v
							n++
						}
					}
				}
				if n > 0 {
					p = append(p, [2]float64{float64(top), sum / float64(n)})
				}
			}
			if len(p) > 1 {
				f.add(g.name, t, append(p, [2]float64{100, 1}), k, false)
			}
		}
	}
	if len(f.series) == 0 {
		return f, false
	}
	c := newLine(shares)
	c.MultiSeries = f.series
	f.Chart = c.JSON()
	return f, true
}
