package sweep

import (
	"cmp"
	"fmt"
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
	Table *sweepTable
	Runs  []*report.Run // the runs with a result
	name  string        // the title; it also names the block and the figure of a Markdown page
}

// Collect reads the folders of a sweep's runs and compares the variants. At least one run must
// have succeeded. The error is a *settings.Error if a run lacks the metric to compare by.
func (p *Plan) Collect(runs []*Run) (*results, error) {
	r := &results{name: Name(p.File)}
	var outcomes []outcome
	for _, one := range runs {
		if one.Failed != nil {
			outcomes = append(outcomes, outcome{Variant: one.Variant, Seed: one.Seed, Failed: true})
			continue
		}
		run, values, err := p.readResults(one)
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
	var err error
	r.Table, err = newTable(slices.Concat(p.comparedMetrics(), resultColumns), len(p.Metrics), names, outcomes, p.Comparisons)
	return r, err
}

// readResults reads the folder of a run. It settles the default metric.
func (p *Plan) readResults(one *Run) (*report.Run, map[string]float64, error) {
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

// comparedMetrics returns the metrics by which variants are compared.
func (p *Plan) comparedMetrics() (metrics []sweepMetric) {
	for _, name := range p.Metrics {
		metrics = append(metrics, sweepMetric{Name: name, Title: strings.TrimPrefix(name, "eval/"), Percent: strings.Contains(name, "pass@")})
	}
	return metrics
}

// resultColumns are the columns of the results after the metric by which the variants are compared.
var resultColumns = []sweepMetric{
	{Name: "reward", Title: "last reward"},
	{Name: "grad_norm/median", Title: "grad norm, median"},
	{Name: "grad_norm/max", Title: "grad norm, max"},
	{Name: "p/mean", Title: "p"},
	{Name: "clipped", Title: "clipped"},
	{Name: "entropy", Title: "last entropy"},
	{Name: "share/weights", Title: "time in the objective", Percent: true},
}

// WriteReport writes a page about all runs, with the tables of results, into a folder.
func (r *results) WriteReport(dir string) error {
	return report.WriteFile(filepath.Join(dir, "report.html"), r.Runs, report.Options{Title: r.name, Tables: r.Table.tables()})
}

// UpdatePage replaces the block of a Markdown page that has the name of the results
// (see replaceBlock) by the tables, and writes the figure.
func (r *results) UpdatePage(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	figure := r.name + ".svg"
	block := fmt.Sprintf("![%s by variant: seeds, means and 95 %% intervals](%s)\n\n%s", r.Table.Metrics[0].Title, figure, r.Table.Markdown())
	updated, err := replaceBlock(string(text), r.name, block)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := files.WriteFile(filepath.Join(filepath.Dir(path), figure), r.Table.Figure); err != nil {
		return err
	}
	return files.WriteFile(path, files.Content(updated))
}
