package report

import (
	"slices"
	"strings"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// A figure is one chart of the page.
type figure struct {
	ID    string         `json:"id"`
	Title string         `json:"title"`
	Note  string         `json:"note"` // how to read it
	X     string         `json:"x"`
	Kind  string         `json:"kind"` // line, scatter or bar
	Wide  bool           `json:"wide,omitempty"`
	Chart map[string]any `json:"chart"` // what ECharts draws
	// Labels say what each series of the chart is, such as "mean"; those of
	// faint lines are empty and tooltips leave them out.
	Labels []string `json:"labels"`

	series []charts.SingleSeries
}

// A trace is one metric of a figure: a solid line, or a dashed or dotted one
// next to it.
type trace struct {
	metric, label, dash string
}

// A plot is a figure of metrics over optimizer steps.
type plot struct {
	id, title, note string
	table           func(*Run) *Table
	traces          []trace
	axis            axis
}

// An axis says which values the y axis of a figure shows.
type axis int

const (
	fitted axis = iota // those that occur
	zero               // from 0
	shares             // 0 to 1
)

func steps(r *Run) *Table  { return r.Steps }
func rounds(r *Run) *Table { return r.Rounds }
func evals(r *Run) *Table  { return r.Evals }

// dynamics are the panels of the paper's figure of training dynamics, and what
// belongs next to them. A panel that no run has data for is left out.
var dynamics = []plot{
	{"reward", "Reward", "Mean reward of the sampled responses, by round.", rounds, []trace{{"reward", "mean", ""}}, shares},
	{"grad_norm", "Gradient norm", "Before clipping. Isolated spikes are steps to look at.", steps, []trace{{"grad_norm", "norm", ""}}, zero},
	{"p", "Exponent p", "Solid: mean over responses. Dashed: largest. Dotted: share at p_max.", steps, []trace{{"p/mean", "mean", ""}, {"p/max", "max", "dashed"}, {"p/share_at_max", "share at p_max", "dotted"}}, zero},
	{"entropy", "Entropy", "Mean entropy of the policy per sampled token, in nats.", rounds, []trace{{"entropy", "mean", ""}}, zero},
	{"log_ratio", "Log-importance ratio", "Log-prob now less that when sampled, mean over a response. Dashed: largest and smallest in the step.", steps, []trace{{"log_ratio/mean", "mean", ""}, {"log_ratio/max", "max", "dashed"}, {"log_ratio/min", "min", "dashed"}}, fitted},
	{"length", "Response length", "Tokens. Solid: mean. Dashed: longest.", rounds, []trace{{"response_length/mean", "mean", ""}, {"response_length/max", "max", "dashed"}}, zero},
	{"clip", "Clip fraction", "Solid: share f of tokens beyond eps_ess. Dashed: share that the clip cuts.", steps, []trace{{"clip_fraction", "f", ""}, {"clipped", "clipped", "dashed"}}, zero},
	{"ess", "Effective sample size", "At the chosen p. Dashed: target. Dotted: at p_max; a target far below it is out of reach.", steps, []trace{{"ess", "ESS", ""}, {"target_ess", "target", "dashed"}, {"ess_at_p_max", "at p_max", "dotted"}}, shares},
	{"loss", "Loss", "Of each optimizer step. Its level says little: it begins at 0 in every round.", steps, []trace{{"loss", "loss", ""}}, fitted},
	{"groups", "Signal", "Solid: share of groups whose rewards are all equal; they teach nothing. Dashed: share of truncated responses.", rounds, []trace{{"frac_reward_zero_std", "equal rewards", ""}, {"truncated_share", "truncated", "dashed"}}, shares},
	{"gap", "Sampler against learner", "Largest gap between the log-prob that the sampler saw and the learner's, by round.", rounds, []trace{{"logp_gap_max", "max", ""}}, zero},
}

// totalPoints bounds the points of all lines of a page, thinPoints those of one.
const (
	totalPoints = 500_000
	thinPoints  = 1000
	fewPoints   = 64
)

// manyRuns is the number of runs beyond which a configuration's runs are drawn
// as their mean alone.
const manyRuns = 60

// figures describes the charts of a page.
func figures(runs []*Run) []figure {
	groups := groupRuns(runs)
	plots := append(suites(runs), dynamics...)
	lines := 0
	for _, p := range plots {
		lines += len(p.traces) * len(runs)
	}
	limit := max(fewPoints, min(thinPoints, totalPoints/max(1, lines)))

	var list []figure
	for _, p := range plots {
		if f, ok := p.figure(groups, limit, len(runs)); ok {
			list = append(list, f)
		}
	}
	for _, f := range []func([]*group) (figure, bool){spread, exponents, reach, phases} {
		if f, ok := f(groups); ok {
			list = append(list, f)
		}
	}
	return list
}

// suites are the plots of the evaluations, one per suite.
func suites(runs []*Run) []plot {
	var plots []plot
	for _, name := range evalNames(runs) {
		suite := strings.TrimSuffix(strings.TrimPrefix(name, "eval/"), "/pass@1")
		plots = append(plots, plot{
			"eval-" + suite, "Held-out " + suite, "pass@1. Dashed: its 95 % interval.", evals,
			[]trace{{name, "pass@1", ""}, {name + "_low", "low", "dashed"}, {name + "_high", "high", "dashed"}}, shares,
		})
	}
	return plots
}

// evalNames are the metrics pass@1 that any run has.
func evalNames(runs []*Run) []string {
	var names []string
	for _, r := range runs {
		for _, name := range r.Evals.Names() {
			if strings.HasSuffix(name, "/pass@1") && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// figure draws the traces of every group; false if there is no data.
func (p plot) figure(groups []*group, limit, runs int) (figure, bool) {
	f := figure{ID: p.id, Title: p.title, Note: p.note, X: "step", Kind: "line"}
	for k, g := range groups {
		for ti, t := range p.traces {
			// With many lines only the first trace is readable.
			if ti > 0 && runs > 12 {
				break
			}
			var lines []points
			for _, r := range g.runs {
				table := p.table(r)
				if l := pointsOf(table.Step, table.Column(t.metric)); len(l) > 0 {
					lines = append(lines, l)
				}
			}
			if len(lines) == 0 {
				continue
			}
			several := len(g.runs) > 1
			if !several || runs <= manyRuns && ti == 0 {
				for _, l := range lines {
					f.add(g.name, t, thin(l, limit), k, several)
				}
			}
			if several {
				f.add(g.name, t, thin(average(lines), limit), k, false)
			}
		}
	}
	if len(f.series) == 0 {
		return f, false
	}
	chart := newLine(p.axis)
	chart.MultiSeries = f.series
	f.Chart = chart.JSON()
	return f, true
}

// newLine is an empty chart with the axes of all line charts.
func newLine(a axis) *charts.Line {
	c := charts.NewLine()
	y := opts.YAxis{Type: "value", Scale: opts.Bool(true)}
	switch a {
	case zero:
		y.Min = 0
	case shares:
		y.Min, y.Max = 0, 1
	}
	c.SetGlobalOptions(
		charts.WithAnimation(false),
		charts.WithTooltipOpts(opts.Tooltip{Show: opts.Bool(true), Trigger: "axis"}),
		charts.WithLegendOpts(opts.Legend{Show: opts.Bool(false)}), // one legend for all charts stands above them
		charts.WithXAxisOpts(opts.XAxis{Type: "value", Min: "dataMin", Max: "dataMax"}),
		charts.WithYAxisOpts(y),
		charts.WithDataZoomOpts(opts.DataZoom{Type: "inside", FilterMode: "none"}),
	)
	return c
}

// add draws one line of group k. A faint one is a single run behind the mean.
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
		// A short line is told by its points.
		ShowSymbol: opts.Bool(len(p) <= 3 && t.dash == ""), Symbol: "circle", SymbolSize: 6,
		LineStyle: &opts.LineStyle{Width: width, Type: t.dash, Opacity: opts.Float(opacity)},
	})
}

// palette tells colours apart for most kinds of colour blindness, on light and
// on dark ground.
var palette = []string{
	"#3b82c4", "#e07b39", "#2f9e75", "#b75fb3", "#c9a227",
	"#d1495b", "#5b7f95", "#7a6ff0", "#4aa8c9", "#8c6d46",
	"#86b34a", "#d77fa1", "#3f6f5c", "#a3572b", "#8f8fb8", "#6e3b6e",
}

func color(k int) string { return palette[k%len(palette)] }
