package variants

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"onering/models"
	"onering/report"
	"onering/train/sweep"
)

// Results are what the runs of a sweep came to.
type Results struct {
	Table    *Table
	Runs     []*report.Run // those with a result
	name     string
	outcomes []Outcome
	dynamics []string
}

// A MetricError says that a run did not log the metric that a sweep compares by.
type MetricError struct{ File, Dir, Metric string }

func (e *MetricError) Error() string {
	return fmt.Sprintf("%s: sweep.metric: %s has no %q in metrics.jsonl", e.File, e.Dir, e.Metric)
}

// Collect reads the folders of a sweep's runs and compares the variants. It needs
// at least one run that did not fail. name is the title of the results.
func Collect(p *sweep.Plan, runs []*sweep.Run, name string) (*Results, error) {
	r := &Results{name: name, dynamics: p.Dynamics}
	metrics := append([]Metric{{Name: p.Metric}}, columns...)
	for _, one := range runs {
		o := Outcome{Variant: one.Variant, Seed: one.Seed}
		if one.Failed != nil {
			o.Failed = one.Failed.Error()
			r.outcomes = append(r.outcomes, o)
			continue
		}
		run, err := report.ReadRun(one.Dir)
		if err != nil {
			return nil, err
		}
		run.Group, run.Name = one.Variant, fmt.Sprintf("%s, seed %d", one.Variant, one.Seed)
		if metrics[0].Name == "" {
			metrics[0].Name = run.Metric()
		}
		o.Values = run.Results()
		if _, ok := o.Values[metrics[0].Name]; !ok {
			return nil, &MetricError{p.File, one.Dir, metrics[0].Name}
		}
		r.Runs = append(r.Runs, run)
		r.outcomes = append(r.outcomes, o)
	}
	metrics[0].Percent = strings.Contains(metrics[0].Name, "pass@")
	metrics[0].Title = strings.TrimPrefix(metrics[0].Name, "eval/")
	var names []string
	for _, v := range p.Variants {
		names = append(names, v.Name)
	}
	var err error
	r.Table, err = New(metrics, names, r.outcomes, p.Comparisons)
	return r, err
}

// columns are shown next to the metric that variants are compared by.
var columns = []Metric{
	{Name: "reward", Title: "last reward"},
	{Name: "grad_norm/median", Title: "grad norm, median"},
	{Name: "grad_norm/max", Title: "grad norm, max"},
	{Name: "p/mean", Title: "p"},
	{Name: "clipped", Title: "clipped"},
	{Name: "entropy", Title: "last entropy"},
	{Name: "share/weights", Title: "time in the objective", Percent: true},
}

// WriteReport writes the page over all runs, with the tables, to a file.
func (r *Results) WriteReport(path string) error {
	head, rows := r.Table.Cells()
	tables := []report.Results{{Title: "Results", Note: "Means over seeds, the first with its standard error.", Columns: head, Rows: rows}}
	if len(r.Table.Comparisons) > 0 {
		head, rows := r.Table.ComparisonCells()
		tables = append(tables, report.Results{
			Title: "Comparisons", Columns: head, Rows: rows,
			Note: "Paired by seed: mean difference with its standard error, interval by Student's t, p-value of the exact sign-flip test and after Holm's correction.",
		})
	}
	return report.WriteFile(path, r.Runs, report.Options{Title: r.name, Tables: tables})
}

// panelMetrics are the metrics whose course the second figure shows.
var panelMetrics = []struct{ name, title string }{
	{"reward", "reward"}, {"grad_norm", "gradient norm"}, {"entropy", "entropy, nats"},
	{"log_ratio/mean", "mean log-importance ratio"}, {"delta/std", "log-ratio of tokens, std"}, {"clipped", "share clipped"},
}

// panelPoints bounds the points of a line in the second figure.
const panelPoints = 200

// panels averages the course of the runs of each variant in r.dynamics.
func (r *Results) panels() []Panel {
	var list []Panel
	for _, m := range panelMetrics {
		p := Panel{Title: m.title}
		for _, v := range r.dynamics {
			var of []*report.Run
			for _, run := range r.Runs {
				if run.Group == v {
					of = append(of, run)
				}
			}
			if points := report.Average(of, m.name, panelPoints); points != nil {
				p.Lines = append(p.Lines, Line{Variant: v, Points: points})
			}
		}
		if len(p.Lines) > 0 {
			list = append(list, p)
		}
	}
	return list
}

// UpdatePage puts the tables into a Markdown page, as ReplaceBlock does for the
// name of the results, and writes the figures beside the page.
func (r *Results) UpdatePage(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	beside := func(name string, write func(io.Writer) error) error {
		return models.WriteFile(filepath.Join(filepath.Dir(path), name), write)
	}
	figure := r.name + ".svg"
	block := fmt.Sprintf("![%s by variant: seeds, means and 95 %% intervals](%s)\n\n%s", r.Table.Metrics[0].Title, figure, r.Table.Markdown())
	if panels := r.panels(); len(panels) > 0 {
		course := r.name + "-dynamics.svg"
		block += fmt.Sprintf("\n![Training dynamics of %s, means over seeds](%s)\n", strings.Join(r.dynamics, ", "), course)
		if err := beside(course, func(w io.Writer) error { return Dynamics(w, r.dynamics, panels) }); err != nil {
			return err
		}
	}
	updated, err := ReplaceBlock(string(text), r.name, block)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	values := Values(r.outcomes, r.Table.Metrics[0].Name)
	if err := beside(figure, func(w io.Writer) error { return r.Table.Figure(w, values) }); err != nil {
		return err
	}
	return models.WriteFile(path, func(w io.Writer) error {
		_, err := io.WriteString(w, updated)
		return err
	})
}
