package report

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// phaseOrder lists the phases of a round in their order. The page shows other phases after these.
var phaseOrder = []string{"rollout", "score", "weights", "backward", "optimizer", "other"}

// secondsTable returns the table with the seconds: the rounds, or the steps of a supervised run.
func secondsTable(r *Run) *table {
	if r.supervised() {
		return r.Steps
	}
	return r.Rounds
}

// Seconds returns the run's phases in the order of a round, the seconds spent in each, and their sum.
func (r *Run) Seconds() (names []string, seconds map[string]float64, total float64) {
	seconds = map[string]float64{}
	table := secondsTable(r)
	for _, name := range table.Names {
		if phase, ok := strings.CutPrefix(name, "seconds/"); ok {
			seconds[phase] = sum(table.Column(name))
			total += seconds[phase]
		}
	}
	for _, phase := range slices.Concat(phaseOrder, slices.Sorted(maps.Keys(seconds))) {
		if _, ok := seconds[phase]; ok && !slices.Contains(names, phase) {
			names = append(names, phase)
		}
	}
	return names, seconds, total
}

// maxBars is the largest number of configurations in the figure of seconds.
const maxBars = 40

// phaseSeconds draws a bar for each configuration: the seconds of a round, stacked by phase.
func phaseSeconds(groups []*group) figure {
	unit := "step"
	if slices.ContainsFunc(groups, func(g *group) bool { return !g.runs[0].supervised() }) {
		unit = "round"
	}
	f := figure{
		ID: "phases", Title: "Seconds by phase", X: "seconds a " + unit, Kind: "bar", Wide: true,
		Note: "Mean seconds of a " + unit + ", by phase.",
	}
	shown := groups[:min(len(groups), maxBars)]
	if len(shown) < len(groups) {
		f.Note += " The first 40 configurations."
	}
	var names []string // of the phases
	for _, g := range shown {
		phases, _, _ := g.runs[0].Seconds()
		for _, p := range phases {
			if !slices.Contains(names, p) {
				names = append(names, p)
			}
		}
	}
	var labels []string
	for _, g := range slices.Backward(shown) { // ECharts draws the first category at the bottom
		labels = append(labels, g.name)
	}
	for k, phase := range names {
		var data []number
		for _, g := range slices.Backward(shown) {
			sum, units := 0.0, 0
			for _, r := range g.runs {
				_, seconds, _ := r.Seconds()
				sum += seconds[phase]
				units += secondsTable(r).Len()
			}
			data = append(data, number(sum/float64(max(1, units))))
		}
		f.Labels = append(f.Labels, phase)
		f.series = append(f.series, charts.SingleSeries{Name: phase, Type: "bar", Stack: "seconds", Data: data, Color: color(k), BarMaxWidth: "22"})
	}
	return f.draw("axis", opts.Legend{Show: opts.Bool(true), Bottom: "0", Type: "scroll"}, opts.XAxis{Type: "value"}, opts.YAxis{Type: "category", Data: labels})
}
