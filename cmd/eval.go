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
	"onering/tokenize"
	"onering/train/ranks"
	"onering/train/rl"
)

func newEval() *cobra.Command {
	var e engineFlags
	o := evalOptions{SuitesDir: ".", Slots: 32}
	var around tokenize.TemplateSettings
	c := newCommand("eval", nil, func(c *cobra.Command, args []string) error {
		if o.Compare != "" {
			return compareReports(c, args, o)
		}
		if len(args) > 0 {
			return usagef("unexpected argument %q: name suites with --suite", args[0])
		}
		if err := o.adopt(c, &e, around); err != nil {
			return err
		}
		parts, err := o.parts(c)
		if err != nil {
			return err
		}
		t, err := joinTeam(c, rl.Default().Distributed)
		if err != nil {
			return err
		}
		for _, part := range parts {
			var report eval.Report
			if report, err = evaluate(c, t, &e, part); err == nil && t.First() {
				err = part.write(c, report)
			}
			if err != nil {
				break
			}
		}
		return t.End(errors.Join(err, reward.Close(o.run.Environment.Settings)))
	})
	c.Args = cobra.MaximumNArgs(1) // the report that --compare compares
	e.register(c, false)
	registerDType(c, &e.dtype)
	// --compare needs no model; evaluate asks for it.
	delete(c.Flags().Lookup("model").Annotations, cobra.BashCompOneRequiredFlag)
	addTemplate(c, &around, tokenize.DefaultTemplate, true)
	o.Sampling = sampler.Sampling{Temperature: 0.6, TopP: 0.95, MaxNewTokens: 3000}
	for _, options := range []any{&o, &o.Sampling, &o.columns} {
		addFlags(c, options)
	}
	flags := c.Flags()
	flags.IntVar(&o.Samples, "samples", 1, "responses to each problem")
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of the sampling")
	flags.BoolVar(&o.GradeTruncated, "grade-truncated", false, "grade responses that reached the limit of tokens, too; otherwise they are wrong")
	o.rewards.registerReward(c)
	must(c.RegisterFlagCompletionFunc("suite", cobra.FixedCompletions(benchmarkNames(), cobra.ShellCompDirectiveDefault)))
	offer(c, reward.ExtractRules, "extract")
	exclusive(c, "json", "markdown")
	return c
}

func benchmarkNames() []string {
	var names []string
	for _, b := range eval.Benchmarks {
		names = append(names, b.Name)
	}
	return names
}

type evalOptions struct {
	Suites    []string `flag:"suite" split:"," help:"benchmarks or files of problems; repeatable"`
	SuitesDir string   `help:"folder of the benchmarks" complete:"dir"`
	Limit     int      `help:"measure the first so many problems of each suite; 0 is all"`
	Slots     int      `help:"sequences that are decoded at once; it decides speed and memory"`
	AnswerIn  string   `flag:"extract" help:"where in a response the answer has to stand: {rules}; if not given tag for the template r1, else boxed"`
	Out       string   `help:"file for every response" complete:"jsonl"`
	Resume    bool     `help:"sample only what the file of --out still lacks, if there is one"`
	JSON      bool     `help:"print one JSON object in place of a table"`
	Markdown  bool     `help:"print the table in Markdown"`
	Compare   string   `help:"compare this measurement with a second one"`

	eval.Settings `toml:"-"`
	prompt        tokenize.Template
	columns       data.Columns
	rewards       configFlags
	run           *resolved // what a run file, flags and the environment variables state
	ofRun         bool      // a run file says how its run evaluates, and o follows it
}

// adopt reads the settings that no flag states from the run file: that of --config, or of
// the run whose folder is measured.
func (o *evalOptions) adopt(c *cobra.Command, f *engineFlags, around tokenize.TemplateSettings) (err error) {
	if o.run, err = o.rewards.resolve(c, func(others ...settings.Source) (settings.Source, error) {
		return runSource(cmp.Or(f.adapter, f.model), others...)
	}); err != nil {
		return err
	}
	own := c.Flags().Changed("template") // then the run's other settings of the template do not apply
	if !own {
		around = under(around, o.run.Model.TemplateSettings)
	}
	if o.prompt, err = parseTemplate(around); err != nil && !own && f.model != "" {
		err = fmt.Errorf("%w (from the run file, unless --template says another)", err)
	}
	for _, s := range settings.Sections(&o.run.Config) {
		for _, x := range s.Fields {
			o.ofRun = o.ofRun || (s.Name == "eval" || s.Name == "rollout") && o.run.Decided(s.Name+"."+x.Key).Key != ""
		}
	}
	return err
}

// parts returns the options of the suites that are sampled alike. A run file may have several.
func (o evalOptions) parts(c *cobra.Command) ([]evalOptions, error) {
	if !o.ofRun {
		return []evalOptions{o}, o.complete(c)
	}
	paths := o.run.Eval.Suites.Paths()
	if !c.Flags().Changed("suite") {
		o.Suites = paths
	}
	parts := []evalOptions{}
	for _, path := range o.Suites {
		part, config := o, o.run.Config
		if i := slices.Index(paths, path); i >= 0 {
			config.Eval = config.Eval.Alone(i)
		}
		part.take(c, config)
		part.Suites = []string{path}
		if err := part.complete(c); err != nil {
			return nil, err
		}
		like := slices.IndexFunc(parts, func(p evalOptions) bool {
			return p.Samples == part.Samples && p.Sampling == part.Sampling && p.GradeTruncated == part.GradeTruncated
		})
		if like < 0 {
			parts = append(parts, part)
			continue
		}
		parts[like].Suites = append(parts[like].Suites, path)
	}
	if len(parts) == 0 {
		return []evalOptions{o}, o.complete(c) // which reports that there is no suite
	}
	if len(parts) > 1 && o.Out != "" {
		return nil, usagef("--out holds responses that are sampled alike, and the run samples its suites in %d ways: name some of them with --suite", len(parts))
	}
	return parts, nil
}

// take copies the settings that no flag states from a configuration.
func (o *evalOptions) take(c *cobra.Command, config rl.Config) {
	from, flags := config.Eval, c.Flags()
	from.MaxNewTokens = cmp.Or(from.MaxNewTokens, config.Rollout.MaxNewTokens)
	run := from.OrGreedy()
	if run.Greedy && flags.Changed("samples") && o.Samples > 1 { // which asks for drawn responses
		drawn := o.Sampling
		drawn.MaxNewTokens = run.MaxNewTokens
		run = drawn
	}
	o.Sampling = withFlags(c, run, o.Sampling.OrGreedy())
	if o.Greedy {
		from.Samples = 1
	}
	if !flags.Changed("samples") {
		o.Samples = from.Samples
	}
	if !flags.Changed("seed") {
		o.Seed = eval.TrainingSeed
	}
	if !flags.Changed("grade-truncated") {
		o.GradeTruncated = from.GradeTruncated
	}
	o.AnswerIn = cmp.Or(o.AnswerIn, from.Extract)
	given := settings.Fields(&o.columns)
	for i, x := range settings.Fields(&from.Columns) {
		if !flags.Changed(x.Flag) {
			given[i].Value.Set(x.Value)
		}
	}
}

// runSource returns what the run file of a run folder, or of one of its checkpoints, states
// about evaluation. It returns nothing for other folders, and only the template for a run that
// samples nothing. If another source names a reward or an environment, the run's is left out.
func runSource(dir string, others ...settings.Source) (settings.Source, error) {
	of, err := policy.ReadRun(dir)
	if err != nil || of == nil {
		return nil, err
	}
	sampled := settings.Find("rollout.max_new_tokens", of.Settings).Key != ""
	named := map[string]bool{}
	for _, key := range []string{"reward.name", "reward.use", "environment.name"} {
		section, _, _ := strings.Cut(key, ".")
		named[section] = named[section] || settings.Find(key, others...).Key != ""
	}
	template := []string{"model.template", "model.system", "model.template_args", "model.stop"}
	return slices.DeleteFunc(of.Settings, func(s settings.Setting) bool {
		section, _, _ := strings.Cut(s.Section, ".")
		ofSampling := slices.Contains([]string{"eval", "reward", "environment"}, section) && !named[section] || s.Path() == "rollout.max_new_tokens" || s.Path() == "rollout.max_prompt_tokens"
		return !slices.Contains(template, s.Path()) && !(sampled && ofSampling)
	}), nil
}

// complete decides how responses are chosen and refuses impossible combinations.
func (o *evalOptions) complete(c *cobra.Command) error {
	drawn := "" // a flag that says how to draw
	for _, f := range o.Sampling.Drawing() {
		if c.Flags().Changed(f.Flag) && (f.Key != "temperature" || o.Temperature != 0) {
			drawn = f.Flag
		}
	}
	if o.Samples == 1 && drawn == "" && !o.ofRun || o.Temperature == 0 {
		o.Greedy = true
	}
	if o.Greedy {
		if drawn != "" {
			return usagef("--greedy goes without --%s, which has no effect on it", drawn)
		}
		if o.Samples > 1 {
			return usagef("--greedy --samples %d: the samples would all be the same", o.Samples)
		}
		o.Sampling = sampler.Greedy(o.MaxNewTokens)
	}
	if o.AnswerIn != "" && !slices.Contains(reward.ExtractRules, o.AnswerIn) {
		return usagef("--extract %q: must be one of %s", o.AnswerIn, strings.Join(reward.ExtractRules, ", "))
	}
	if o.Limit < 0 {
		return usagef("--limit %d: must be at least 0; 0 is all problems", o.Limit)
	}
	if o.Resume && o.Out == "" {
		return usagef("--resume needs --out, the file to go on with")
	}
	if len(o.Suites) == 0 {
		return usagef("name what to measure with --suite: a file of problems, or one of %s", strings.Join(benchmarkNames(), ", "))
	}
	return validateSampling(&o.Sampling, o.Samples, o.Slots)
}

// An evaluation is what is needed to sample and grade the suites.
type evaluation struct {
	evalOptions
	opened []eval.Suite
	policy *policy.Policy
	by     eval.Evaluator
}

// open opens the suites and the model.
func (x *evaluation) open(c *cobra.Command, f *engineFlags) (err error) {
	if f.model == "" {
		return usagef("--model is not set: %s", purpose(c.Flags().Lookup("model")))
	}
	if x.by.Reward, err = x.reward(c); err != nil {
		return err
	}
	if err := asUsage(x.run.Locate(x.run.Environment.Validate())); err != nil {
		return err
	}
	x.Extract = reward.Extract(x.by.Reward)
	specs := slices.Clone(x.Suites)
	for i := range specs {
		if specs[i], err = localSuite(c, specs[i]); err != nil {
			return err
		}
	}
	if x.opened, err = eval.Open(specs, x.SuitesDir, func(spec string) data.Options {
		o, _ := fileOptions(c, x.columns, "", spec) // without a filter, none can be wrong
		o.Keep = x.prompt.Columns
		return reward.Reading(x.by.Reward, o)
	}); err != nil {
		return err
	}
	for i, s := range x.opened {
		x.opened[i] = s.First(x.Limit)
		for _, warning := range x.opened[i].Warnings() {
			slog.Warn(warning)
		}
	}
	if x.policy, err = f.open(c); err != nil {
		return err
	}
	x.by.EOS = x.policy.Model.EOS
	if x.by.Prompter, err = x.policy.Prompter(x.prompt); err != nil {
		return err
	}
	if warning := x.by.Prompter.Warning(); warning != "" {
		slog.Warn(warning)
	}
	x.by.Player, x.Environment = x.run.Environment.Player(x.by.Prompter, x.by.EOS), x.run.Environment.Describe()
	x.Template, x.System, x.Args, x.Stops = x.prompt.Name, x.prompt.System, x.prompt.Args, x.prompt.Stops
	x.Model, x.Weights = f.model, x.policy.Fingerprint()
	if f.dtype != "float32" {
		x.DType = f.dtype
	}
	return nil
}

func (x *evaluation) close() {
	if x.policy != nil {
		x.policy.Close()
	}
	if x.by.Reward != nil {
		reward.Close(x.by.Reward)
	}
}

// evaluate samples and grades the suites.
func evaluate(c *cobra.Command, t *ranks.Group, f *engineFlags, o evalOptions) (eval.Report, error) {
	var none eval.Report
	x := evaluation{evalOptions: o}
	defer x.close()
	t.Place(&f.runtime.Device, &f.runtime.Threads)
	if err := t.InTurn(func() error { return x.open(c, f) }); err != nil {
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
	return responses.Report(reward.SameAnswer(x.by.Reward))
}

// openResponses opens the file of responses on the first rank, and tells the other ranks
// which responses it has.
func (x *evaluation) openResponses(t *ranks.Group) (responses *eval.Responses, err error) {
	plan := x.Settings.Plan(x.opened)
	if t.First() {
		responses, err = plan.Open(x.Out, x.Resume)
	} else {
		responses, err = plan.Open("", false)
	}
	if t.Size() == 1 {
		return responses, err
	}
	var own []eval.Response
	if err == nil {
		own = responses.Seen()
	}
	seen, err := gathered(t, own, err)
	if err != nil || t.First() {
		return responses, err
	}
	for _, r := range seen[0] {
		if err := responses.Add(r); err != nil {
			return nil, err
		}
	}
	return responses, nil
}

// reward returns the rule that grades responses, and adds it to the settings of o.
func (o *evalOptions) reward(c *cobra.Command) (reward.Reward, error) {
	reward.SetTemplate(o.run.Reward.Rule, o.prompt.Name)
	if err := asUsage(o.run.Locate(o.run.Config.Reward.Validate())); err != nil {
		return nil, err
	}
	config := o.run.Config
	o.Reward = describeReward(config)
	rule, err := reward.WithExtract(config.Reward.Rule, o.AnswerIn)
	return rule, asUsage(err)
}

// describeReward states the settings of a reward in a line; nothing for the default,
// wherever that looks for answers.
func describeReward(c rl.Config) string {
	text := func(c rl.Config) string {
		var list []string
		for _, s := range settings.Sections(&c) {
			for _, f := range s.Fields {
				if section, ok := strings.CutPrefix(s.Name+".", "reward."); ok {
					list = append(list, fmt.Sprintf("%s%s=%v", section, f.Key, f.Value))
				}
			}
		}
		return strings.Join(list, " ")
	}
	plain := rl.Default()
	if rule, err := reward.WithExtract(plain.Reward.Rule, reward.Extract(c.Reward.Rule)); err == nil {
		plain.Reward.Rule = rule
	}
	if s := text(c); s != text(plain) {
		return s
	}
	return ""
}

// sample samples and grades what is missing. With several ranks each takes its share of
// the problems, and receives the shares of the others at the end.
func (x *evaluation) sample(c *cobra.Command, t *ranks.Group, responses *eval.Responses) error {
	have, want := responses.Count()
	if have > 0 {
		slog.Info("sampling what the file still lacks", "file", x.Out, "have", have, "of", want)
	}
	ctx, stopped, stop := cli.CatchSignals(c.Context())
	defer stop()
	ctx, end := t.Context(ctx)
	defer end()
	var added []eval.Response
	err := x.sampleOwn(ctx, c, t, responses, &added)
	if t.Size() > 1 {
		all, failed := gathered(t, added, nil)
		if failed != nil {
			return errors.Join(err, failed)
		}
		for rank, list := range all {
			for i := 0; i < len(list) && rank != t.Rank() && failed == nil; i++ {
				failed = responses.Add(list[i])
			}
		}
		err = errors.Join(err, failed)
	}
	if s := stopped(); s != nil && err != nil {
		again := "what there was is lost; with --out it would be kept"
		if x.Out != "" {
			again = "the same command with --resume goes on with " + x.Out
		}
		return cli.Interrupted{Signal: s, Next: again}
	}
	return err
}

// sampleOwn samples and grades this rank's share of what is missing.
func (x *evaluation) sampleOwn(ctx context.Context, c *cobra.Command, t *ranks.Group, responses *eval.Responses, added *[]eval.Response) error {
	have, want := responses.Count()
	longest, err := eval.Longest(x.by.Prompter, x.opened)
	if err != nil {
		return err
	}
	if x.by.Player != nil { // the environment may open with a longer prompt
		longest = max(longest, x.run.Rollout.MaxPromptTokens)
	}
	// Evaluate keeps a slot to itself.
	decoder, free, err := x.policy.Decoder(min(x.Slots, want)+1, longest+x.MaxNewTokens, sampler.Loose)
	if err != nil {
		return err
	}
	defer free()
	bar := cli.StartProgress(c.ErrOrStderr(), isQuiet(c), "eval", "responses", int64(want))
	defer bar.Finish()
	bar.Set(int64(have), int64(want))
	x.by.Decoders, x.by.Progress = sampler.Lane(decoder), func(int) { bar.Add(1) }
	if t.Size() > 1 {
		x.by.Mine = func(task int) bool { return task%t.Size() == t.Rank() }
		x.by.Added = func(r eval.Response) { *added = append(*added, r) }
	}
	return x.by.Evaluate(ctx, x.opened, responses)
}

// write prints a report or a comparison as asked for.
func (o evalOptions) write(c *cobra.Command, r interface {
	Print(w io.Writer, markdown bool) error
}) error {
	if o.JSON {
		return cli.WriteLine(c.OutOrStdout(), r)
	}
	return r.Print(c.OutOrStdout(), o.Markdown)
}

// compareReports compares the measurement that --compare names with the argument.
func compareReports(c *cobra.Command, args []string, o evalOptions) error {
	if len(args) != 1 {
		return usagef("--compare takes two files: eval --compare A B")
	}
	a, b := o.Compare, args[0]
	rewards, err := o.rewards.resolveReward(c)
	if err != nil {
		return err
	}
	same := reward.SameAnswer(rewards.Reward.Rule)
	first, err := eval.ReadReport(a, same)
	if err != nil {
		return err
	}
	second, err := eval.ReadReport(b, same)
	if err != nil {
		return err
	}
	comparison, err := first.Compare(second)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", a, b, err)
	}
	for _, warning := range comparison.Warnings {
		slog.Warn(warning)
	}
	return o.write(c, comparison)
}
