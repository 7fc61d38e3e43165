package report

import (
	"fmt"
	"maps"
	"math"
	"onering/internal/stat"
	"slices"
	"strings"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// A figure is one chart of the page.
type figure struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Note  string `json:"note"` // tells the reader how to read the chart
	X     string `json:"x"`
	Kind  string `json:"kind"`           // line, scatter or bar
	Wide  bool   `json:"wide,omitempty"` // the chart takes the whole width of the page
	// Chart holds the options of ECharts. It is nil if the figure has nothing to show but what Note says.
	Chart map[string]any `json:"chart,omitempty"`
	// Labels name each series of the chart, such as "mean". A faint line has an
	// empty label and does not appear in tooltips.
	Labels []string `json:"labels"`

	series []charts.SingleSeries
}

// A trace is one metric of a figure. dash is "" for a solid line, "dashed" or "dotted".
type trace struct {
	metric, label, dash string
}

// A plot describes a figure that shows metrics over optimizer steps. table selects
// the records that hold the metrics.
type plot struct {
	id, title, note string
	table           func(*Run) *table
	traces          []trace
	axis            axis
}

// An axis sets the range of a figure's y axis.
type axis int

const (
	dataRange axis = iota // from the smallest to the largest value
	fromZero              // from 0 to the largest value
	zeroToOne             // from 0 to 1, for shares
)

func steps(r *Run) *table  { return r.Steps }
func rounds(r *Run) *table { return r.Rounds }
func evals(r *Run) *table  { return r.Evals }

// dynamics are the panels of the PMPO paper's figure of training dynamics, and a
// few more of the same kind. The page omits a panel if no run has data for it.
var dynamics = []plot{
	{"grad_norm", "Gradient norm", "Norm before clipping. Look at the steps that have isolated spikes.", steps, []trace{{"grad_norm", "norm", ""}}, fromZero},
	{"p", "Exponent p", "Solid: mean over responses. Dashed: largest. Dotted: share at p_max.", steps, []trace{{"p/mean", "mean", ""}, {"p/max", "max", "dashed"}, {"p/share_at_max", "share at p_max", "dotted"}}, fromZero},
	{"entropy", "Entropy", "Mean entropy of the policy per sampled token, in nats.", rounds, []trace{{"entropy", "mean", ""}}, fromZero},
	{"log_ratio", "Log-importance ratio", "Log-prob now minus log-prob at sampling, mean over a response. Dashed: largest and smallest in the step.", steps, []trace{{"log_ratio/mean", "mean", ""}, {"log_ratio/max", "max", "dashed"}, {"log_ratio/min", "min", "dashed"}}, dataRange},
	{"length", "Response length", "Tokens. Solid: mean. Dashed: longest.", rounds, []trace{{"response_length/mean", "mean", ""}, {"response_length/max", "max", "dashed"}}, fromZero},
	{"clip", "Clip fraction", "Solid: share f of tokens whose log-ratio is beyond eps_ess. Dashed: share of tokens that the clip cuts.", steps, []trace{{"clip_fraction", "f", ""}, {"clipped", "clipped", "dashed"}}, fromZero},
	{"ess", "Effective sample size", "Solid: at the chosen p. Dashed: target. Dotted: at p_max. If the target is far below the dotted line, no p reaches it.", steps, []trace{{"ess", "ESS", ""}, {"target_ess", "target", "dashed"}, {"ess_at_p_max", "at p_max", "dotted"}}, zeroToOne},
	{"loss", "Loss", "Loss of each optimizer step. Its level says little, because it starts at 0 in every round.", steps, []trace{{"loss", "loss", ""}}, dataRange},
	{"learning_rate", "Learning rate", "The learning rate of each optimizer step.", steps, []trace{{"learning_rate", "rate", ""}}, fromZero},
	{"groups", "Signal", "Solid: share of groups whose rewards are all equal, so that they give no signal. Dashed: share of truncated responses. Dotted: share of responses without an answer where the reward looks for it.", rounds, []trace{{"frac_reward_zero_std", "equal rewards", ""}, {"truncated_share", "truncated", "dashed"}, {"no_answer_share", "no answer", "dotted"}}, zeroToOne},
	{"turns", "Turns", "Turns of the policy in an episode, as a mean.", rounds, []trace{{"turns/mean", "mean", ""}}, fromZero},
	{"failed", "Failed episodes", "Episodes of a round that the environment could not go on with. They have no grade.", rounds, []trace{{"environment/failed", "failed", ""}}, fromZero},
	{"gap", "Sampler against learner", "Largest difference between the sampler's and the learner's log-prob of a token, by round.", rounds, []trace{{"logp_gap_max", "max", ""}}, fromZero},
}

// Limits on the number of points, which bound the size of the page.
const (
	totalPoints   = 500_000 // on all lines of the page
	maxLinePoints = 1000    // on one line
	minLinePoints = 64      // on one line of many; such lines may exceed totalPoints together
)

// maxRunLines is the largest number of runs for which the page draws a line for
// each run. If there are more, it draws only the mean of each configuration.
const maxRunLines = 60

// figures describes all charts of a page, in their order.
func figures(runs []*Run) []figure {
	groups := groupRuns(runs)
	plots := slices.Concat(suitePlots(runs), lossPlots(runs), []plot{rewardPlot(runs)}, componentPlots(runs), dynamics)
	if len(lossPlots(runs)) > 0 { // the plots of losses replace it
		plots = slices.DeleteFunc(plots, func(p plot) bool { return p.id == "loss" })
	}
	lines := 0
	for _, p := range plots {
		lines += len(p.traces) * len(runs)
	}
	limit := max(minLinePoints, min(maxLinePoints, totalPoints/max(1, lines)))

	var list []figure
	for _, p := range plots {
		list = append(list, p.figure(groups, limit, len(runs)))
	}
	list = append(list, gradientShare(groups), exponentAndESS(groups), essOverExponent(groups), phaseSeconds(groups))
	return slices.DeleteFunc(list, func(f figure) bool { return len(f.series) == 0 })
}

// suitePlots returns a plot of pass@1 for each evaluation suite.
func suitePlots(runs []*Run) []plot {
	var plots []plot
	for _, name := range evalNames(runs) {
		suite := strings.TrimSuffix(strings.TrimPrefix(name, "eval/"), "/pass@1")
		plots = append(plots, plot{
			"eval-" + suite, "Held-out " + suite, "pass@1. Dashed: its 95 % interval.", evals,
			[]trace{{name, "pass@1", ""}, {name + "_low", "low", "dashed"}, {name + "_high", "high", "dashed"}}, zeroToOne,
		})
	}
	return plots
}

// evalNames returns the names of pass@1 metrics, such as eval/arithmetic/pass@1.
func evalNames(runs []*Run) []string { return metricNames(runs, evals, "", "/pass@1") }

// metricNames returns the names with a prefix and a suffix that a table of at least one run has, sorted.
func metricNames(runs []*Run, table func(*Run) *table, prefix, suffix string) []string {
	found := map[string]bool{}
	for _, r := range runs {
		for _, name := range table(r).Names {
			if strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix) {
				found[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// linesOf returns the line of a metric of each run that has it.
func linesOf(runs []*Run, table func(*Run) *table, metric string) (lines []points) {
	for _, r := range runs {
		if l := pointsOf(table(r).Step, table(r).Column(metric)); len(l) > 0 {
			lines = append(lines, l)
		}
	}
	return lines
}

// figure draws the traces of every group, at most limit points per line. runs is how many runs all groups have.
func (p plot) figure(groups []*group, limit, runs int) figure {
	f, drawn := figure{ID: p.id, Title: p.title, Note: p.note, X: "step", Kind: "line"}, make([]bool, len(p.traces))
	for k, g := range groups {
		for ti, t := range p.traces {
			if ti > 0 && runs > 12 { // of so many only the first trace stays readable
				break
			}
			lines, several := linesOf(g.runs, p.table, t.metric), len(g.runs) > 1
			if len(lines) == 0 {
				continue
			}
			drawn[ti] = true
			if !several || runs <= maxRunLines && ti == 0 {
				for _, l := range lines {
					f.add(g.name, t, thin(l, limit), k, several) // faint if the mean of several is drawn, too
				}
			}
			if several {
				f.add(g.name, t, thin(meanLine(lines), limit), k, false)
			}
		}
	}
	for ti, style := range []string{"Solid: ", "Dashed: ", "Dotted: "}[:min(3, len(drawn))] {
		before, sentence, found := strings.Cut(f.Note, style)
		_, after, _ := strings.Cut(sentence, ". ")
		if found && !drawn[ti] { // it explains a line that is not there
			f.Note = strings.TrimSpace(before + after)
		}
	}
	if text, ok := p.unchanged(groups); ok {
		return f.replacedBy(text)
	}
	return f.drawLines(p.widened(groups))
}

// unchanged returns a sentence in place of the figure if each trace has one and the same value throughout, as p
// has if it is always at its bound. Two points or fewer are drawn all the same: they may still change.
func (p plot) unchanged(groups []*group) (string, bool) {
	var parts []string
	for _, t := range p.traces {
		var all []float64
		for _, g := range groups {
			for _, r := range g.runs {
				all = append(all, stat.Finite(p.table(r).Column(t.metric))...)
			}
		}
		switch {
		case len(all) == 0:
			continue
		case len(all) < 3 || !looksSame(slices.Min(all), slices.Max(all)):
			return "", false
		}
		parts = append(parts, fmt.Sprintf("%s %.3g", t.label, all[0]))
	}
	return "The same from the first step to the last: " + strings.Join(parts, ", ") + ".", true
}

// looksSame reports whether a chart would show two values, the smaller first, as one.
func looksSame(least, most float64) bool {
	return most-least <= 1e-4*max(math.Abs(least), math.Abs(most))
}

// replacedBy returns the figure with a sentence in place of the chart.
func (f figure) replacedBy(text string) figure {
	return figure{ID: f.ID, Title: f.Title, Note: text, series: f.series}
}

// draw makes the chart of the added series, whose kind is the chart's.
func (f figure) draw(tooltip string, legend opts.Legend, x opts.XAxis, y opts.YAxis, more ...charts.GlobalOpts) figure {
	c := charts.NewLine()
	c.SetGlobalOptions(charts.WithAnimation(false), charts.WithTooltipOpts(opts.Tooltip{Show: opts.Bool(true), Trigger: tooltip}),
		charts.WithLegendOpts(legend), charts.WithXAxisOpts(x), charts.WithYAxisOpts(y))
	c.SetGlobalOptions(more...)
	c.MultiSeries = f.series
	f.Chart = c.JSON()
	return f
}

// noLegend hides the legend of charts below the page's legend.
var noLegend = opts.Legend{Show: opts.Bool(false)}

// drawLines makes a chart with the axes that all line charts share.
func (f figure) drawLines(a axis) figure {
	y := opts.YAxis{Type: "value", Scale: opts.Bool(true)}
	switch a {
	case fromZero:
		y.Min = 0
	case zeroToOne:
		y.Min, y.Max = 0, 1
	}
	return f.draw("axis", noLegend, opts.XAxis{Type: "value", Min: "dataMin", Max: "dataMax"}, y,
		charts.WithDataZoomOpts(opts.DataZoom{Type: "inside", FilterMode: "none"}))
}

// add draws one line in the colour of group k. A faint line is a single run, drawn
// behind the mean of its group.
func (f *figure) add(name string, t trace, p points, k int, faint bool) {
	width, opacity, label := float32(1.8), float32(1), t.label
	if t.dash != "" {
		width, opacity = 1.1, 0.8
	}
	if faint {
		width, opacity, label = 1, 0.22, ""
	}
	f.Labels = append(f.Labels, label)
	f.series = append(f.series, charts.SingleSeries{
		Name: name, Type: "line", Data: p, Color: color(k),
		// A line of one to three points is hard to see without symbols.
		ShowSymbol: opts.Bool(len(p) <= 3 && t.dash == ""), Symbol: "circle", SymbolSize: 6,
		LineStyle: &opts.LineStyle{Width: width, Type: t.dash, Opacity: opts.Float(opacity)},
	})
}

// palette has colours that readers with most kinds of colour blindness can tell
// apart, on a light and on a dark background.
var palette = []string{
	"#3b82c4", "#e07b39", "#2f9e75", "#b75fb3", "#c9a227",
	"#d1495b", "#5b7f95", "#7a6ff0", "#4aa8c9", "#8c6d46",
	"#86b34a", "#d77fa1", "#3f6f5c", "#a3572b", "#8f8fb8", "#6e3b6e",
}

func color(k int) string { return palette[k%len(palette)] }
