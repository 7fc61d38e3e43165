package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/eval"
	"onering/internal/cli"
	"onering/internal/settings"
	"onering/policy"
	"onering/reward"
	"onering/sampler"
	"onering/train/ranks"
	"onering/train/rl"
)

// newEval makes the command eval, which samples and grades suites of problems.
func newEval() *cobra.Command {
	o := evalOptions{SuitesDir: "."}
	s := modelSettings(withTrainDefaults, "eval", "reward", "environment", "rollout.max_new_tokens", "rollout.max_prompt_tokens")
	c := newCommand("eval", &o, func(c *cobra.Command, args []string) error {
		if o.Compare != "" {
			return compareReports(c, args, o, s)
		}
		if len(args) > 0 {
			return usagef("unexpected argument %q: name suites with --suite", args[0])
		}
		r, err := s.resolveModel(c, folderOfSettings)
		if err != nil {
			return err
		}
		if !c.Flags().Changed("seed") && r.fileStatesSampling() {
			o.Seed = eval.TrainingSeed // that of the run's own evaluations
		}
		parts, err := o.parts(r)
		if err != nil {
			return err
		}
		t, err := joinTeam(c, r.Distributed)
		if err != nil {
			return err
		}
		for _, x := range parts {
			var report eval.Report
			if report, err = x.evaluate(c, t); err == nil && t.First() {
				err = o.write(c, report)
			}
			if err != nil {
				break
			}
		}
		return t.End(errors.Join(err, reward.Close(r.Environment.Settings)))
	})
	c.Args = cobra.MaximumNArgs(1) // the report that --compare compares
	s.addModelFlags(c, append(templateKeys, adapterFlag, "eval.samples", "eval.extract", "eval.grade_truncated",
		"eval.temperature", "eval.top_p", "eval.top_k", "eval.min_p", "eval.max_new_tokens",
		"eval.prompt", "eval.answer", "eval.id", "eval.split", "eval.expansion", "rollout.slots", "reward.name=reward")...)
	s.addShortcut(c, "greedy", "eval.temperature", 0.0, "take the likeliest token")
	must(c.RegisterFlagCompletionFunc("suite", cobra.FixedCompletions(benchmarkNames(), cobra.ShellCompDirectiveDefault)))
	offer(c, reward.ExtractRules, "extract")
	c.MarkFlagsMutuallyExclusive("json", "markdown")
	c.MarkFlagsMutuallyExclusive("greedy", "temperature")
	return c
}

func benchmarkNames() (names []string) {
	for _, b := range eval.Benchmarks {
		names = append(names, b.Name)
	}
	return names
}

type evalOptions struct {
	Suites    []string `flag:"suite" split:"," help:"benchmarks or files of problems; repeatable"`
	SuitesDir string   `help:"folder of the benchmarks" complete:"dir"`
	Limit     int      `range:"[0,)" note:"0 is all" help:"measure the first so many problems of each suite"`
	Seed      uint64   `help:"seed of the sampling; that of the run's own evaluations if there is a run"`
	Out       string   `help:"file for every response" complete:"jsonl"`
	Resume    bool     `help:"sample only what the file of --out still lacks, if there is one"`
	JSON      bool     `help:"print one JSON object in place of a table"`
	Markdown  bool     `help:"print the table in Markdown"`
	Compare   string   `help:"compare this measurement with a second one"`
}

// An evaluation is the suites that are sampled alike, and what is needed to sample and grade them.
type evaluation struct {
	evalOptions
	eval.Settings // how they are sampled, for the report
	run           *resolved
	config        rl.Config    // the run's, with the settings of these suites in [eval]
	openedSuites  []eval.Suite // by Suites
	policy        *policy.Policy
	evaluator     eval.Evaluator
}

// parts divides the suites of --suite, or else of the run file, into evaluations, each of suites that are sampled
// alike: all of one evaluation go into one report.
func (o evalOptions) parts(r *resolved) (parts []*evaluation, err error) {
	if o.Resume && o.Out == "" {
		return nil, usagef("--resume needs --out, the file to go on with")
	}
	ofRun := r.Eval.Suites.Paths()
	if len(o.Suites) == 0 {
		o.Suites = ofRun
	}
	for _, path := range o.Suites {
		x := &evaluation{evalOptions: o, run: r, config: r.forSuite(slices.Index(ofRun, path))}
		if err := r.check(x.config); err != nil {
			return nil, err
		}
		e := x.config.Eval
		x.Suites = []string{path}
		x.Settings = eval.Settings{Samples: e.Samples, GradeTruncated: e.GradeTruncated, Sampling: e.OrGreedy(), Seed: o.Seed}
		x.MaxNewTokens = cmp.Or(e.MaxNewTokens, r.Rollout.MaxNewTokens) // a field of x.Sampling
		like := slices.IndexFunc(parts, func(p *evaluation) bool {
			return p.Samples == x.Samples && p.Sampling == x.Sampling && p.GradeTruncated == x.GradeTruncated
		})
		if like >= 0 {
			parts[like].Suites = append(parts[like].Suites, path)
			continue
		}
		parts = append(parts, x)
	}
	switch {
	case len(parts) == 0:
		return nil, usagef("name what to measure with --suite: a file of problems, or one of %s", strings.Join(benchmarkNames(), ", "))
	case len(parts) > 1 && o.Out != "":
		return nil, usagef("--out holds responses that are sampled alike, and the run samples its suites in %d ways: name some of them with --suite", len(parts))
	}
	return parts, nil
}

// fileStatesSampling says whether a run file states how responses are sampled: that of a run, or one like it.
func (r *resolved) fileStatesSampling() bool {
	return slices.ContainsFunc(settings.Sections(&r.Config), func(t settings.Section) bool {
		return (t.Name == "eval" || t.Name == "rollout") && slices.ContainsFunc(t.Fields,
			func(f settings.Field) bool { return r.Decided(t.Name + "." + f.Key).InFile() })
	})
}

// forSuite returns the configuration for the suite with index suite in [eval], -1 for one that is not there. What the
// command line states wins over what the suite states. Several responses or a filter without a temperature are drawn
// at 0.6, since greedy ones are equal; for greedy ones what draws responses is turned off.
func (r *resolved) forSuite(suite int) rl.Config {
	config := r.Config
	if suite >= 0 {
		config.Eval = config.Eval.Alone(suite)
	}
	e := &config.Eval
	typed := func(key string) bool { s := r.Decided("eval." + key); return s.Key != "" && !s.InFile() }
	values := settings.Fields(&r.Config.Eval) // of all suites: here what is typed has not been replaced by the suite's own
	for i, f := range settings.Fields(e) {
		if typed(f.Key) {
			f.Value.Set(values[i].Value)
		}
	}
	asksToDraw := typed("samples") && e.Samples > 1 || typed("top_p") || typed("top_k") || typed("min_p")
	off := settings.Fields(&sampler.Sampling{TopP: 1}) // values with which no filter acts
	switch {
	case typed("temperature") && e.Temperature == 0: // filters do not count, unless they are typed too
		for i, f := range settings.Fields(&e.Sampling) {
			if !typed(f.Key) && f.Key != "max_new_tokens" {
				f.Value.Set(off[i].Value)
			}
		}
		if !typed("samples") {
			e.Samples = 1
		}
	case e.Temperature == 0 && asksToDraw:
		e.Temperature = 0.6
		if !typed("top_p") {
			e.TopP = 0.95
		}
	case typed("temperature") && !typed("top_p") && !r.fileStatesSampling(): // the usual filter goes with a temperature
		e.TopP = 0.95
	}
	return config
}

// open opens the reward, the suites and the model, and notes in x.Settings, for the report, how all are set.
func (x *evaluation) open(c *cobra.Command) (err error) {
	if x.evaluator.Reward, err = reward.WithExtract(x.config.Reward.Rule, x.config.Eval.Extract); err != nil {
		return usageError{err}
	}
	x.Reward, x.Extract = x.config.Reward.Describe(), reward.Extract(x.evaluator.Reward)
	specs := slices.Clone(x.Suites)
	for i := range specs {
		if specs[i], err = localSuite(c, specs[i]); err != nil {
			return err
		}
	}
	if x.openedSuites, err = eval.Open(specs, x.SuitesDir, func(spec string) data.Options {
		o := x.config.Eval.Options()
		o.Input, o.Keep = inputOf(c, spec), x.run.prompt.Columns
		return reward.Reading(x.evaluator.Reward, o)
	}); err != nil {
		return err
	}
	for i, s := range x.openedSuites {
		x.openedSuites[i] = s.First(x.Limit)
		for _, warning := range x.openedSuites[i].Warnings() {
			slog.Warn(warning)
		}
	}
	if x.policy, err = x.run.open(c, noNamedAdapters); err != nil {
		return err
	}
	x.evaluator.EOS = x.policy.Model.EOS
	template := x.run.prompt
	if x.evaluator.Prompter, err = x.policy.Prompter(template); err != nil {
		return err
	}
	if warning := x.evaluator.Prompter.Warning(); warning != "" {
		slog.Warn(warning)
	}
	x.evaluator.Player, x.Environment = x.config.Environment.Player(x.evaluator.Prompter, x.evaluator.EOS), x.config.Environment.Describe()
	x.Template, x.System, x.Args, x.Stops = template.Name, template.System, template.Args, template.Stops
	x.Model, x.Weights = x.run.modelAsNamed, x.policy.Fingerprint()
	if dtype := x.config.Model.DType; dtype != "float32" { // the report leaves the usual type out
		x.DType = dtype
	}
	return nil
}

func (x *evaluation) close() {
	if x.policy != nil {
		x.policy.Close()
	}
	if x.evaluator.Reward != nil {
		reward.Close(x.evaluator.Reward)
	}
}

// evaluate opens the suites and the model on every rank, samples and grades the suites, and returns the report.
func (x *evaluation) evaluate(c *cobra.Command, t *ranks.Group) (none eval.Report, err error) {
	defer x.close()
	t.Place(&x.run.Runtime.Device, &x.run.Runtime.Threads) // this rank's device, and its share of the host's cores
	if err := t.InTurn(func() error { return x.open(c) }); err != nil {
		return none, err
	}
	if err := t.Same("model", x.Weights); err != nil {
		return none, err
	}
	responses, err := x.openResponses(t)
	if err != nil {
		return none, err
	}
	err = errors.Join(x.sample(c, t, responses), responses.Close())
	if err := t.AgreeOn(err); err != nil {
		return none, err
	}
	return responses.Report(reward.SameAnswer(x.evaluator.Reward))
}

// openResponses opens the file of responses on the first rank, with --resume also to read it, and tells the other
// ranks, which keep theirs in memory, which responses it has.
func (x *evaluation) openResponses(t *ranks.Group) (responses *eval.Responses, err error) {
	plan := x.Settings.Plan(x.openedSuites)
	if t.First() {
		responses, err = plan.Open(x.Out, x.Resume)
	} else {
		responses, err = plan.Open("", false) // without a file, in memory
	}
	var own []eval.Response
	if err == nil && t.Size() > 1 {
		own = responses.Seen()
	}
	return responses, addOthers(t, own, err, func(r eval.Response) error { return responses.Add(r) })
}

// sample samples and grades what is missing in responses, and adds it. With several ranks each takes its share of the
// problems, and receives the shares of the others at the end, also after an error or a signal: the others wait for
// it, and what was sampled is kept. After a signal the error is a cli.Interrupted.
func (x *evaluation) sample(c *cobra.Command, t *ranks.Group, responses *eval.Responses) error {
	have, total := responses.Count()
	if have > 0 {
		slog.Info("sampling what the file still lacks", "file", x.Out, "have", have, "of", total)
	}
	ctx, caughtSignal, stop := cli.CatchSignals(c.Context())
	defer stop()
	ctx, end := t.Context(ctx) // ends on all ranks if one is told to stop
	defer end()
	var added []eval.Response
	err := x.sampleOwn(ctx, c, t, responses, &added)
	err = errors.Join(err, addOthers(t, added, nil, responses.Add)) // nil in place of err, with which no rank would get what was sampled
	if caught := caughtSignal(); caught != nil && err != nil {
		again := "what there was is lost; with --out it would be kept"
		if x.Out != "" {
			again = "the same command with --resume goes on with " + x.Out
		}
		return cli.Interrupted{Signal: caught, Next: again}
	}
	return err
}

// sampleOwn samples and grades this rank's share of what is missing, adds it to responses and, if there are several
// ranks, also appends it to added, for the others.
func (x *evaluation) sampleOwn(ctx context.Context, c *cobra.Command, t *ranks.Group, responses *eval.Responses, added *[]eval.Response) error {
	have, total := responses.Count()
	longest, err := eval.Longest(x.evaluator.Prompter, x.openedSuites)
	if err != nil {
		return err
	}
	if x.evaluator.Player != nil { // the environment may open with a longer prompt
		longest = max(longest, x.config.Rollout.MaxPromptTokens)
	}
	slots := min(x.config.Rollout.Slots, total) + 1                                             // Evaluate keeps a slot to itself
	decoder, free, err := x.policy.Decoder(slots, longest+x.MaxNewTokens, sampler.NoInvariance) // Evaluate makes it invariant
	if err != nil {
		return err
	}
	defer free()
	bar := cli.StartProgress(c.ErrOrStderr(), isQuiet(c), "eval", "responses", int64(total))
	defer bar.Finish()
	bar.Set(int64(have), int64(total))
	x.evaluator.Decoders, x.evaluator.Progress = sampler.Lane(decoder), func(int) { bar.Add(1) }
	if t.Size() > 1 {
		x.evaluator.Mine = func(task int) bool { return task%t.Size() == t.Rank() }
		x.evaluator.Added = func(r eval.Response) { *added = append(*added, r) }
	}
	return x.evaluator.Evaluate(ctx, x.openedSuites, responses)
}

// write prints a report or a comparison as asked for.
func (o evalOptions) write(c *cobra.Command, r interface {
	Print(w io.Writer, markdown bool) error
}) error {
	return show(c, o.JSON, r, func(w io.Writer) error { return r.Print(w, o.Markdown) })
}

// compareReports compares the measurement that --compare names with the one that the argument names, and prints the
// comparison. Each is a report or a file of responses; [reward] says when two answers are the same.
func compareReports(c *cobra.Command, args []string, o evalOptions, s *commandSettings) error {
	if len(args) != 1 {
		return usagef("--compare takes two files: eval --compare A B")
	}
	a, b := o.Compare, args[0]
	r, err := s.resolve(c, nil) // no run states settings
	if err == nil {
		err = asUsage(r.Locate(r.Reward.Validate()))
	}
	if err != nil {
		return err
	}
	same := reward.SameAnswer(r.Reward.Rule)
	var reports [2]eval.Report
	for i, path := range []string{a, b} {
		if reports[i], err = eval.ReadReport(path, same); err != nil {
			return err
		}
	}
	comparison, err := reports[0].Compare(reports[1])
	if err != nil {
		return fmt.Errorf("%s and %s: %w", a, b, err)
	}
	for _, warning := range comparison.Warnings {
		slog.Warn(warning)
	}
	return o.write(c, comparison)
}
