package sweep

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/internal/settings"
	"onering/report"
)

// results holds the results of a sweep.
type results struct {
	Table    *sweepTable
	Runs     []*report.Run // the runs with a result
	name     string        // the title; it also names the block and the figures of a Markdown page
	dynamics []string      // the variants that the second figure shows
	family   family
}

// Collect reads the folders of a sweep's runs and compares the variants. At least one
// run must have succeeded. The tables of the family's other sweeps are looked for in the
// Markdown page, or without one in the folders beside out. The error is a *settings.Error if
// a run lacks the metric to compare by.
func (p *Plan) Collect(runs []*Run, page, out string) (*results, error) {
	r := &results{name: Name(p.File), dynamics: p.Dynamics, family: p.family}
	var outcomes []outcome
	for _, one := range runs {
		if one.Failed != nil {
			outcomes = append(outcomes, outcome{Variant: one.Variant, Seed: one.Seed, Failed: true})
			continue
		}
		run, values, err := p.results(one)
		if err != nil {
			return nil, err
		}
		r.Runs = append(r.Runs, run)
		outcomes = append(outcomes, outcome{Variant: one.Variant, Seed: one.Seed, Values: values})
	}
	var names []string
	for _, v := range p.Variants {
		names = append(names, v.Name)
	}
	texts, err := p.family.pages(page, out)
	if err != nil {
		return nil, err
	}
	r.Table, err = newTable(slices.Concat(p.compared(), resultColumns), len(p.Metrics), names, outcomes, p.Comparisons)
	if err == nil {
		r.Table.tuning = p.tuned
		r.Table.correct(p.family.tests(r.name, texts...))
	}
	return r, err
}

// results reads the folder of a run. It settles the default metric.
func (p *Plan) results(one *Run) (*report.Run, map[string]float64, error) {
	run, err := report.ReadRun(one.Dir)
	if err != nil {
		return nil, nil, err
	}
	run.Group, run.Name = one.Variant, fmt.Sprintf("%s, seed %d", one.Variant, one.Seed)
	p.Metrics[0] = cmp.Or(p.Metrics[0], run.Metric())
	values := run.Results()
	for _, name := range p.Metrics {
		if _, ok := values[name]; !ok {
			return nil, nil, fmt.Errorf("%s: %w", p.File, &settings.Error{Key: "sweep.metric", Remedy: fmt.Sprintf("%s has no %q in metrics.jsonl", one.Dir, name)})
		}
	}
	return run, values, nil
}

// compared returns the metrics by which variants are compared.
func (p *Plan) compared() (metrics []sweepMetric) {
	for _, name := range p.Metrics {
		metrics = append(metrics, sweepMetric{Name: name, Title: strings.TrimPrefix(name, "eval/"), Percent: strings.Contains(name, "pass@")})
	}
	return metrics
}

// resultColumns are the columns of the results after the metric by which the variants
// are compared.
var resultColumns = []sweepMetric{
	{Name: "reward", Title: "last reward"},
	{Name: "grad_norm/median", Title: "grad norm, median"},
	{Name: "grad_norm/max", Title: "grad norm, max"},
	{Name: "p/mean", Title: "p"},
	{Name: "clipped", Title: "clipped"},
	{Name: "entropy", Title: "last entropy"},
	{Name: "share/weights", Title: "time in the objective", Percent: true},
}

// WriteReport writes a page about all runs, with the tables of results, into a folder, and
// beside it the tables as the sweeps of the family read them.
func (r *results) WriteReport(dir string) error {
	block := "<!-- " + r.name + " -->\n" + r.Table.Markdown() + "<!-- end -->\n"
	if err := files.WriteFile(filepath.Join(dir, "tables.md"), files.Content(block)); err != nil {
		return err
	}
	return report.WriteFile(filepath.Join(dir, "report.html"), r.Runs, report.Options{Title: r.name, Tables: r.Table.tables()})
}

// panelMetrics are the metrics that the second figure shows over the steps.
var panelMetrics = []struct{ name, title string }{
	{"reward", "reward"}, {"grad_norm", "gradient norm"}, {"entropy", "entropy, nats"},
	{"log_ratio/mean", "mean log-importance ratio"}, {"delta/std", "log-ratio of tokens, std"}, {"clipped", "share clipped"},
}

// panelPoints is the largest number of points of a line in the second figure.
const panelPoints = 200

// panels returns the panels of the second figure: each metric over the steps, averaged
// over the runs of each variant in r.dynamics.
func (r *results) panels() []panel {
	var list []panel
	for _, m := range panelMetrics {
		p := panel{Title: m.title, X: "step"}
		for _, v := range r.dynamics {
			runs := slices.DeleteFunc(slices.Clone(r.Runs), func(run *report.Run) bool { return run.Group != v })
			if points := report.Average(runs, m.name, panelPoints); points != nil {
				p.Lines = append(p.Lines, line{Variant: v, Points: points})
			}
		}
		if len(p.Lines) > 0 {
			list = append(list, p)
		}
	}
	return list
}

// UpdatePage replaces the block of a Markdown page that has the name of the results
// (see replaceBlock) by the tables, corrects those of the family, and writes the figures.
func (r *results) UpdatePage(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	writeNextToPage := func(name string, write func(io.Writer) error) error {
		return files.WriteFile(filepath.Join(filepath.Dir(path), name), write)
	}
	figure := r.name + ".svg"
	block := fmt.Sprintf("![%s by variant: seeds, means and 95 %% intervals](%s)\n\n%s", r.Table.Metrics[0].Title, figure, r.Table.Markdown())
	if panels := r.panels(); len(panels) > 0 {
		dynamicsFigure := r.name + "-dynamics.svg"
		block += fmt.Sprintf("\n![Training dynamics of %s, means over seeds](%s)\n", strings.Join(r.dynamics, ", "), dynamicsFigure)
		if err := writeNextToPage(dynamicsFigure, func(w io.Writer) error { return sweepDynamics(w, r.dynamics, panels) }); err != nil {
			return err
		}
	}
	updated, err := replaceBlock(string(text), r.name, func(string) string { return block })
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := writeNextToPage(figure, r.Table.Figure); err != nil {
		return err
	}
	return files.WriteFile(path, files.Content(r.family.correct(updated)))
}
