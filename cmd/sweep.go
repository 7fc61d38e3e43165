package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/internal/settings"
	"onering/policy"
	"onering/report/sweep"
	"onering/train/rl"
)

func newSweep() *cobra.Command {
	o := sweepOptions{Jobs: 1}
	return newCommand("sweep", &o, func(c *cobra.Command, args []string) error { return o.each(c, args) })
}

// A sweepOptions has the flags of sweep.
type sweepOptions struct {
	Out      string   `help:"folder of the runs; default: runs/out and the file's name" complete:"dir"`
	Jobs     int      `short:"j" range:"[1,1024]" help:"runs at a time; they share the cores"`
	Set      []string `help:"section.key=value for all runs"`
	List     bool     `flag:"plan" help:"print the runs, and run none"`
	Markdown bool     `help:"print the tables as Markdown"`
	Update   string   `help:"Markdown page to put the tables into, between <!-- NAME --> and <!-- end -->; NAME is the file's"`
}

// each runs the sweep files at paths, one after the other, once all of them are found able to begin. Among several
// files, it skips those that are not sweeps, and --out is the folder above theirs.
func (o sweepOptions) each(c *cobra.Command, paths []string) error {
	named := map[string]string{} // the sweeps by the names of their folders
	var sweeps []*openedSweep
	var errs []error
	for _, path := range paths {
		if len(paths) > 1 && sweep.Lacks(path) { // run reports other errors of a file
			fmt.Fprintf(c.ErrOrStderr(), "%s has no [sweep] and is left out\n", path)
			continue
		}
		name := sweep.Name(path)
		if named[name] != "" {
			return usagef("%s and %s would both have the folder %s: rename one, or sweep them apart with --out", named[name], path, name)
		}
		named[name] = path
		one := o
		if o.Out != "" && len(paths) > 1 {
			one.Out = filepath.Join(o.Out, name)
		}
		s, err := one.open(c, path)
		sweeps, errs = append(sweeps, s), append(errs, err)
	}
	if len(sweeps) == 0 {
		return usagef("none of the %d files is a sweep: name one with [sweep], such as runs/paper/sweep-main.toml", len(paths))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, s := range sweeps {
		if !o.List && len(paths) > 1 {
			fmt.Fprintf(c.OutOrStdout(), "%s\n", s.plan.File)
		}
		if err := s.run(c); err != nil {
			return err
		}
	}
	return nil
}

// An openedSweep is a sweep file whose runs can begin.
type openedSweep struct {
	sweepOptions
	plan        *sweep.Plan
	runs        []*sweep.Run
	todo        []*sweep.Run // runs without a result
	todoConfigs []rl.Config  // the configurations of todo
}

// open reads the sweep file at path and finds what is wrong before the first run. --plan needs no models.
func (o sweepOptions) open(c *cobra.Command, path string) (*openedSweep, error) {
	p, err := readPlan(path)
	if err != nil {
		return nil, err
	}
	o.Out = cmp.Or(o.Out, filepath.Join("runs", "out", sweep.Name(path)))
	if _, err := os.Stat(filepath.Join(o.Out, "run.toml")); err == nil {
		return nil, usagef("--out %s: it is the folder of a run, whose report.html would be replaced: name another", o.Out)
	}
	s := &openedSweep{sweepOptions: o, plan: p, runs: p.Runs(o.Out)}
	configs, err := resolveRuns(c, p, s.runs, o.Set, o.Jobs)
	if err != nil || o.List { // List is --plan
		return s, err
	}
	if err := s.keepUndone(configs); err != nil {
		return nil, err
	}
	return s, s.checkModels(c)
}

// keepUndone sets todo to those of runs that have no result, and todoConfigs to theirs among configs, which belong to
// runs. It is an error if a run has a result of other settings.
func (s *openedSweep) keepUndone(configs []rl.Config) error {
	for i, r := range s.runs {
		done, err := r.Done(completeConfig)
		if _, conflict := errors.AsType[*sweep.ConflictError](err); conflict {
			err = usageError{err}
		}
		if err != nil {
			return err
		}
		if !done {
			s.todo, s.todoConfigs = append(s.todo, r), append(s.todoConfigs, configs[i])
		}
	}
	return nil
}

// checkModels returns an error if a model or a reference model of the runs does not exist: they would fail.
func (s *openedSweep) checkModels(c *cobra.Command) error {
	seen := map[string]bool{"": true} // most runs have no reference model
	for i, x := range s.todoConfigs {
		for _, name := range []string{x.Model.Path, x.Model.Reference} {
			if seen[name] {
				continue
			}
			seen[name] = true
			dir, err := newestModel(c, name)
			if err == nil {
				_, err = policy.ReadModel(dir)
			}
			if errors.Is(err, fs.ErrNotExist) && s.plan.Base != "" {
				err = fmt.Errorf("%w; if something makes it, the head of %s says what", err, s.plan.Base)
			}
			if err != nil {
				return fmt.Errorf("%s: variant %q: %w", s.plan.File, s.todo[i].Variant, err)
			}
		}
	}
	return nil
}

// run trains the runs that are left and prints the results of all; with --plan it only prints the runs.
func (s *openedSweep) run(c *cobra.Command) error {
	if s.List {
		for _, r := range s.runs {
			fmt.Fprintf(c.OutOrStdout(), "%s\tseed %d\t%s\n", r.Variant, r.Seed, r.Dir)
		}
		return nil
	}
	if err := runSweep(c, s.todo, s.todoConfigs, s.Jobs); err != nil {
		return err
	}
	return printSweep(c, s.plan, s.runs, s.sweepOptions)
}

// readPlan reads a sweep file. All of its errors are usage errors.
func readPlan(path string) (*sweep.Plan, error) {
	p, err := sweep.ReadPlan(path)
	if err == nil {
		return p, nil
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		err = cli.Unreadable("sweep", path, err, "name a sweep file, such as runs/paper/sweep-main.toml")
	}
	return nil, usageError{err}
}

// resolveRuns returns the configuration of every run, which it also writes into run.Config as a run file, so that a
// wrong one is reported before the first run begins. sets are those of --set. Runs that go on at once, jobs of them,
// share the cores.
func resolveRuns(c *cobra.Command, p *sweep.Plan, runs []*sweep.Run, sets []string, jobs int) ([]rl.Config, error) {
	var configs []rl.Config
	for _, run := range runs {
		s := newSettings(withTrainDefaults)
		s.allEffective = true // as in train
		s.runFile, s.sets = p.Base, append(slices.Clone(sets), run.Settings...)
		r, err := s.resolve(c, s.embeddedRun) // without a run file the embedded one states what nothing else does
		if err == nil {
			err = r.validate()
		}
		if err != nil {
			return nil, usagef("%s: variant %q: %w", p.File, run.Variant, err)
		}
		if r.Runtime.Threads == 0 && jobs > 1 {
			r.Runtime.Threads = max(1, runtime.NumCPU()/jobs)
		}
		if run.Config, err = encodeConfig(&r.Config); err != nil {
			return nil, err
		}
		configs = append(configs, r.Config)
	}
	return configs, nil
}

// runSweep trains runs, jobs at a time. configs[i] is the configuration of runs[i].
func runSweep(c *cobra.Command, runs []*sweep.Run, configs []rl.Config, jobs int) error {
	if len(runs) == 0 {
		return nil
	}
	ctx, caughtSignal, stop := cli.CatchSignals(c.Context())
	defer stop()
	// Fetch the library once, before the runs ask for it at the same time.
	config := configs[0]
	env, err := openRuntime(c, policy.RuntimeConfig{Library: config.Runtime.Library, Threads: 1}.Options(), config.Model.DType)
	if err != nil {
		return err
	}
	env.Close()
	// Parallel runs that train adapters to one model read its weights once.
	unshare, err := shareBases(c, runs, configs, jobs)
	if err != nil {
		return err
	}
	defer unshare()
	bar := cli.StartProgress(c.ErrOrStderr(), isQuiet(c), "sweep", "runs", int64(len(runs)))
	defer bar.Finish()
	sweep.TrainAll(ctx, runs, jobs, func() { bar.Add(1) }) // it notes in each run why that failed
	if caught := caughtSignal(); caught != nil {
		return cli.Interrupted{Signal: caught, Next: "to continue with the runs that are left, give the same command again"}
	}
	return ctx.Err()
}

// shareBases reads each model to which several parallel runs train adapters once for all of them, and notes its file
// in these runs. unshare closes the files. Where the system cannot share memory, each run reads its own model.
func shareBases(c *cobra.Command, runs []*sweep.Run, configs []rl.Config, jobs int) (unshare func(), err error) {
	bases := map[[2]string]*os.File{}
	unshare = func() {
		for _, f := range bases {
			f.Close()
		}
	}
	count := map[[2]string]int{}
	key := func(x rl.Config) [2]string { return [2]string{x.Model.Path, x.LoRA.BaseDType} }
	canShare := func(x rl.Config) bool { return x.LoRA.On && x.Runtime.Device == "cpu" }
	for _, x := range configs {
		if canShare(x) {
			count[key(x)]++
		}
	}
	for i, x := range configs {
		k := key(x)
		if jobs == 1 || count[k] < 2 || !canShare(x) {
			continue
		}
		if bases[k] == nil {
			var dir string
			if dir, err = newestModel(c, x.Model.Path); err == nil {
				bases[k], err = policy.ShareBase(dir, x.LoRA.BaseDType, x.Model.Path)
			}
			if err != nil {
				delete(bases, k) // it has no file to close
				if errors.Is(err, errors.ErrUnsupported) {
					return unshare, nil // then each run reads its own
				}
				unshare()
				return nil, err
			}
			slog.Info("the runs share the model in memory", "model", x.Model.Path, "runs", count[k])
		}
		runs[i].Base, runs[i].BaseFlag = bases[k], baseFlag
	}
	return unshare, nil
}

// completeConfig returns the run file at path, whose text is given, with every key, so that it can be compared.
func completeConfig(path string, text []byte) ([]byte, error) {
	run, err := settings.File(path, text)
	if err != nil {
		return nil, err
	}
	r, err := resolve(run)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return encodeConfig(&r.Config)
}

// printSweep writes report.html into the folder of the runs, updates the page of --update, and prints the tables. The
// errors of runs that failed come last; if all failed, there is nothing else.
func printSweep(c *cobra.Command, p *sweep.Plan, runs []*sweep.Run, o sweepOptions) error {
	var failures []error
	for _, r := range runs {
		if r.Failed != nil {
			failures = append(failures, r.Failed)
		}
	}
	if len(failures) == len(runs) {
		return errors.Join(failures...)
	}
	results, err := p.Collect(runs)
	if err != nil {
		return err
	}
	if err = results.WriteReport(o.Out); err == nil && o.Update != "" {
		err = results.UpdatePage(o.Update)
	}
	if err != nil {
		return err
	}
	if o.Markdown {
		_, err = io.WriteString(c.OutOrStdout(), results.Table.Markdown())
	} else {
		err = results.Table.Print(c.OutOrStdout())
	}
	return errors.Join(append(failures, err)...)
}
