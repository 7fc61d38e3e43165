package cmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"onering/models"
	"onering/report"
	"onering/runtime"
	"onering/runtime/provision"
	"onering/train/sweep"
)

func newSweep() *cobra.Command {
	var out, page string
	var jobs int
	var sets []string
	var plan, markdown bool
	c := &cobra.Command{
		Use:   "sweep FILE.toml",
		Short: "Run variants over seeds, and compare them",
		Long: `Train every variant of a sweep with every seed, then print the means with
their standard errors and the comparisons that the file states. Seeds are
paired: a comparison is over the differences on the same seed, with the exact
sign-flip test and Holm's correction for the number of comparisons.

The file names a run file, seeds and variants:

  [sweep]
  base = "hard.toml"
  seeds = [1, 2, 3]
  baseline = "GRPO"

  [[variant]]
  name = "GRPO"
  objective = { name = "grpo" }

  [[variant]]
  name = "PMPO"
  objective = { name = "pmpo", eps_ess = 0.2 }

or a grid of values, of which it takes the product, also with the variants:

  [grid]
  "optimizer.learning_rate" = [1e-4, 2e-4]

Runs that are through are not run again, so that a sweep which was stopped goes
on where it was. Each leaves its run folder in --out, with report.html over all.`,
		Example: `  onering sweep runs/paper/main.toml
  onering sweep -j 2 --plan runs/paper/main.toml`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if jobs < 1 {
				return usagef("-j %d: want at least 1", jobs)
			}
			p, err := readSweep(args[0])
			if err != nil {
				return err
			}
			name := strings.TrimSuffix(filepath.Base(args[0]), ".toml")
			if out == "" {
				out = filepath.Join("runs", "out", name)
			}
			runs, err := p.resolve(c, out, sets, jobs)
			if err != nil {
				return err
			}
			if plan {
				for _, r := range runs {
					fmt.Fprintf(c.OutOrStdout(), "%s\tseed %d\t%s\n", r.variant, r.seed, r.dir)
				}
				return nil
			}
			if err := runSweep(c, runs, jobs); err != nil {
				return err
			}
			return p.finish(c, runs, out, page, name, markdown)
		},
	}
	flags := c.Flags()
	flags.StringVar(&out, "out", "", "folder of the runs; default: runs/out and the file's name")
	flags.IntVarP(&jobs, "jobs", "j", 1, "runs at a time; they share the cores")
	flags.StringArrayVar(&sets, "set", nil, "section.key=value for all runs; repeatable")
	flags.BoolVar(&plan, "plan", false, "print the runs, and run none")
	flags.BoolVar(&markdown, "markdown", false, "print the tables as Markdown")
	flags.StringVar(&page, "update", "", "Markdown page in which to put the tables, between <!-- NAME --> and <!-- end -->; NAME is the file's")
	must(c.MarkFlagDirname("out"))
	return c
}

// resolve makes the configuration of every run; one that is wrong is known
// before the first begins.
func (p *sweepPlan) resolve(c *cobra.Command, out string, sets []string, jobs int) ([]*sweepRun, error) {
	var base layer
	if p.base == "" {
		var err error
		if base, err = parseFile("default.toml", defaultRun); err != nil {
			return nil, err
		}
	}
	var runs []*sweepRun
	for _, v := range p.variants {
		for _, seed := range v.seeds {
			dir := filepath.Join(out, slug(v.name), fmt.Sprintf("seed-%d", seed))
			all := append(append([]string{}, sets...), v.sets...)
			all = append(all, fmt.Sprintf("train.seed=%d", seed), fmt.Sprintf("data.seed=%d", seed), setText("output.dir", dir))
			flags := configFlags{file: p.base, sets: all}
			r, err := flags.resolve(c, base)
			if err == nil {
				err = r.validate()
			}
			if err != nil {
				return nil, usagef("%s: variant %q: %w", p.file, v.name, err)
			}
			if r.Runtime.Threads == 0 && jobs > 1 {
				r.Runtime.Threads = threadsFor(jobs)
			}
			runs = append(runs, &sweepRun{variant: v.name, seed: seed, dir: dir, config: r.Config})
		}
	}
	return runs, nil
}

// runSweep does the runs that are not through, jobs at a time. One that fails
// is reported and does not keep the others from running.
func runSweep(c *cobra.Command, runs []*sweepRun, jobs int) error {
	var todo []*sweepRun
	for _, r := range runs {
		done, err := r.done()
		if err != nil {
			return err
		}
		if !done {
			todo = append(todo, r)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	ctx, stopped, stop := catchSignals(c.Context())
	defer stop()
	// The library is fetched once, before the runs ask for it at the same time.
	env, err := openRuntime(c, runtime.Options{Options: provision.Options{Library: todo[0].config.Runtime.Library}, Threads: 1}, todo[0].config.Model.DType)
	if err != nil {
		return err
	}
	env.Close()
	bar := newProgress(c.ErrOrStderr(), isQuiet(c), "sweep", "runs", int64(len(todo)))
	defer bar.finish()
	queue := make(chan *sweepRun)
	var wait sync.WaitGroup
	for range min(jobs, len(todo)) {
		wait.Go(func() {
			for r := range queue {
				r.failed = r.run(ctx)
				bar.add(1)
			}
		})
	}
	for _, r := range todo {
		select {
		case queue <- r:
		case <-ctx.Done(): // nobody may be left to take it
		}
	}
	close(queue)
	wait.Wait()
	if s := stopped(); s != nil {
		return interrupted{s, "the same command goes on with the runs that are left"}
	}
	return ctx.Err()
}

// finish reads the run folders, prints the tables and writes report.html.
func (p *sweepPlan) finish(c *cobra.Command, runs []*sweepRun, out, page, name string, markdown bool) error {
	var outcomes []sweep.Outcome
	var read []*report.Run
	var failures []error
	metrics := []sweep.Metric{{Name: p.metric}}
	for _, r := range runs {
		o := sweep.Outcome{Variant: r.variant, Seed: r.seed}
		if r.failed != nil {
			o.Failed = r.failed.Error()
			failures = append(failures, r.failed)
			outcomes = append(outcomes, o)
			continue
		}
		run, err := report.ReadRun(r.dir)
		if err != nil {
			return err
		}
		run.Group, run.Name = r.variant, fmt.Sprintf("%s, seed %d", r.variant, r.seed)
		if metrics[0].Name == "" {
			metrics[0].Name = run.Metric()
		}
		o.Values = run.Results()
		if _, ok := o.Values[metrics[0].Name]; !ok {
			return usagef("%s: sweep.metric: %s has no %q in metrics.jsonl", p.file, r.dir, metrics[0].Name)
		}
		read = append(read, run)
		outcomes = append(outcomes, o)
	}
	if len(read) == 0 {
		return errors.Join(failures...)
	}
	metrics[0].Percent = strings.Contains(metrics[0].Name, "pass@")
	metrics[0].Title = strings.TrimPrefix(metrics[0].Name, "eval/")
	metrics = append(metrics, sweepColumns...)
	var names []string
	for _, v := range p.variants {
		names = append(names, v.name)
	}
	table, err := sweep.New(metrics, names, outcomes, p.comparisons)
	if err != nil {
		return err
	}
	if err := writeReport(filepath.Join(out, "report.html"), read, report.Options{Title: name, Tables: sweepTables(table)}); err != nil {
		return err
	}
	if page != "" {
		if err := updatePage(page, name, table, sweep.Values(outcomes, metrics[0].Name), p.dynamics, panels(read, p.dynamics)); err != nil {
			return err
		}
	}
	if markdown {
		_, err = io.WriteString(c.OutOrStdout(), table.Markdown())
	} else {
		err = table.Print(c.OutOrStdout())
	}
	return errors.Join(append(failures, err)...)
}

// sweepColumns are shown next to the metric that variants are compared by.
var sweepColumns = []sweep.Metric{
	{Name: "reward", Title: "last reward"},
	{Name: "grad_norm/median", Title: "grad norm, median"},
	{Name: "grad_norm/max", Title: "grad norm, max"},
	{Name: "p/mean", Title: "p"},
	{Name: "clipped", Title: "clipped"},
	{Name: "entropy", Title: "last entropy"},
	{Name: "share/weights", Title: "time in the objective", Percent: true},
}

// sweepTables are the sweep's tables for the page over its runs.
func sweepTables(t *sweep.Table) []report.Results {
	head, rows := t.Cells()
	tables := []report.Results{{Title: "Results", Note: "Means over seeds, the first with its standard error.", Columns: head, Rows: rows}}
	if len(t.Comparisons) > 0 {
		head, rows := t.ComparisonCells()
		tables = append(tables, report.Results{
			Title: "Comparisons", Columns: head, Rows: rows,
			Note: "Paired by seed: mean difference with its standard error, interval by Student's t, p-value of the exact sign-flip test and after Holm's correction.",
		})
	}
	return tables
}

// sweepPanels are the metrics whose course a sweep's second figure shows.
var sweepPanels = []struct{ name, title string }{
	{"reward", "reward"}, {"grad_norm", "gradient norm"}, {"entropy", "entropy, nats"},
	{"log_ratio/mean", "mean log-importance ratio"}, {"delta/std", "log-ratio of tokens, std"}, {"clipped", "share clipped"},
}

// panelPoints bounds the points of a line in it.
const panelPoints = 200

// panels average the course of the variants' runs; none without variants.
func panels(runs []*report.Run, variants []string) []sweep.Panel {
	var list []sweep.Panel
	for _, m := range sweepPanels {
		p := sweep.Panel{Title: m.title}
		for _, v := range variants {
			var of []*report.Run
			for _, r := range runs {
				if r.Group == v {
					of = append(of, r)
				}
			}
			if points := report.Average(of, m.name, panelPoints); points != nil {
				p.Lines = append(p.Lines, sweep.Line{Variant: v, Points: points})
			}
		}
		if len(p.Lines) > 0 {
			list = append(list, p)
		}
	}
	return list
}

// updatePage replaces a sweep's block in a Markdown page, and writes its figures
// beside the page.
func updatePage(path, name string, table *sweep.Table, values map[string][]float64, variants []string, panels []sweep.Panel) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	figure := name + ".svg"
	block := fmt.Sprintf("![%s by variant: seeds, means and 95 %% intervals](%s)\n\n%s", table.Metrics[0].Title, figure, table.Markdown())
	if len(panels) > 0 {
		course := name + "-dynamics.svg"
		block += fmt.Sprintf("\n![Training dynamics of %s, means over seeds](%s)\n", strings.Join(variants, ", "), course)
		err := models.WriteFile(filepath.Join(filepath.Dir(path), course), func(w io.Writer) error { return sweep.Dynamics(w, variants, panels) })
		if err != nil {
			return err
		}
	}
	updated, err := sweep.ReplaceBlock(string(text), name, block)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	err = models.WriteFile(filepath.Join(filepath.Dir(path), figure), func(w io.Writer) error { return table.Figure(w, values) })
	if err != nil {
		return err
	}
	return models.WriteFile(path, func(w io.Writer) error {
		_, err := io.WriteString(w, updated)
		return err
	})
}
