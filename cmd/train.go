package cmd

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/internal/cli"
	"onering/internal/files"
	"onering/internal/settings"
	"onering/models"
	"onering/policy"
	"onering/reward"
	"onering/serve"
	"onering/tokenize"
	"onering/train"
	"onering/train/ranks"
	"onering/train/rl"
)

// defaultRun is the run file of "onering train" without --config.
//
//go:embed default.toml
var defaultRun []byte

// A trainOptions has the flags of train that are not settings.
type trainOptions struct {
	runOptions
	Dry       bool   `flag:"dry-run" help:"print how much memory the run needs and check what it checks before it samples, such as data and programs; fail where the run would"`
	Probe     bool   `help:"with --dry-run: also sample 8 responses to each of 8 problems and say what they show, in the run's template and in another; a run whose rounds take minutes does it by itself"`
	Ranks     int    `help:"with --dry-run: plan for so many ranks, each on a machine or a GPU of its own"`
	Serve     string `help:"serve the policy at this address, such as localhost:8000, to programs that play the episodes: environment.name = \"program\""`
	APIKeyEnv string `flag:"api-key-env" help:"with --serve: environment variable with the key that programs must have to begin an episode"`
	Profile   string `complete:"dir" help:"folder for cpu.pprof (go tool pprof) and ONNX Runtime's traces (chrome://tracing)"`
	Recipe    string `help:"in place of a run file: small is meant for one machine, and fitted to its cores and memory; paper is the PMPO paper's, and the default where a model and data are named"`
	BaseFD    int    `flag:"base-fd" help:"descriptor of a file that sweep has made of the model's weights"`
}

// newTrain makes the command train.
func newTrain() *cobra.Command {
	o := trainOptions{runOptions: runOptions{Report: true}}
	s := newChoice(asDefault)
	s.all, s.opens = true, true
	c := newCommand("train", &o, func(c *cobra.Command, _ []string) error {
		s.recipe = o.Recipe
		r, err := s.resolveRun(c, s.given.(*rl.Config).Output.Dir, o.Resume)
		if err != nil {
			return err
		}
		if err := r.validate(); err != nil {
			return err
		}
		if o.Dry {
			return dryRun(c, r, o)
		}
		if o.Probe {
			return usagef("--probe goes with --dry-run")
		}
		if c.Flags().Changed("ranks") {
			return usagef("--ranks goes with --dry-run; to train with several ranks: mpirun -n %d onering train", max(2, o.Ranks))
		}
		t, err := joinTeam(c, r.Distributed)
		if err != nil {
			return err
		}
		var end rl.Summary
		if err = takeSizes(c, t, r, o.Resume); err == nil {
			end, err = trainOn(c, t, &r.Config, o)
		}
		err, late := apart(err)
		if err := t.End(err); err != nil {
			return err
		}
		return errors.Join(show(c, o.JSON, end, func(w io.Writer) error { return printSummary(w, end, r.Config) }), late)
	})
	s.register(c, "model.path", "model.template", "data.train", "data.prompt", "data.answer", "objective.name=objective",
		"optimizer.learning_rate=lr", "output.dir", "lora.on")
	c.Args = cobra.ArbitraryArgs
	s.other = append(s.other, func() settings.Source {
		if o.Serve != "" {
			return settings.Source{settings.State("environment.name", "serve", "program")}
		}
		return nil
	})
	must(c.Flags().MarkHidden(baseFlag))
	offer(c, []string{"small", "paper"}, "recipe")
	c.MarkFlagsMutuallyExclusive("recipe", "config")
	c.MarkFlagsMutuallyExclusive("recipe", "resume")
	return c
}

// resolveRun resolves the configuration of a run and chooses its folder. The template is that of
// the run that made the model unless one is stated. To resume without --config it reads the
// run.toml in the folder.
func (s *choice) resolveRun(c *cobra.Command, out string, resume bool) (*resolved, error) {
	if err := s.take(c); err != nil {
		return nil, err
	}
	base := func(others ...settings.Source) (settings.Source, error) {
		run, err := s.embeddedRun(others...)
		if err != nil {
			return nil, err
		}
		of, _, err := s.ofRun("", others)
		return append(run, of...), err
	}
	if resume {
		if s.file == "" || out == "" {
			var err error
			if s.file, err = resumedFile(out, "train"); err != nil {
				return nil, err
			}
		}
		base = func(others ...settings.Source) (settings.Source, error) { return keptSizes(out, others) }
	}
	r, err := s.resolve(c, base)
	if err != nil {
		return nil, err
	}
	if err := checkIdle(r.Resolved, resume); err != nil {
		return nil, err
	}
	sayRate(r.Resolved, r.LoRA, r.Optimizer.LearningRate)
	if r.Output.Dir == "" {
		r.Output.Dir = filepath.Join("runs", "out", r.Objective.Name+"-"+time.Now().Format("20060102-150405"))
	}
	return r, nil
}

// resumedFile returns the run file of a folder whose run, of the command train, sft or dpo, is
// resumed.
func resumedFile(out, command string) (string, error) {
	if out == "" {
		return "", usagef("--resume needs --out, the folder of the run to continue")
	}
	file := filepath.Join(out, "run.toml")
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return "", usagef("there is no run to resume in %s: it has no run.toml; name the folder that a run has written", out)
	} else if info, err := os.Stat(out); err == nil && !info.IsDir() {
		return "", usagef("there is no run to resume in %s: it is a file; name the folder that a run has written", out)
	}
	_, of, err := savedRun(out)
	if err == nil && of != command {
		err = usagef("%s is a run of %s: continue it with onering %s --resume --out %s", out, of, of, cli.ShellQuoted(out))
	}
	return file, err
}

// savedRun reads the run.toml of a run folder, and says which command wrote it: train, sft or
// dpo.
func savedRun(dir string) (run settings.Source, command string, err error) {
	file := filepath.Join(dir, "run.toml")
	text, err := files.ReadIn(file, largestRunFile)
	if err == nil {
		run, err = settings.Saved(file, text)
	}
	has := func(section string) bool {
		return slices.ContainsFunc(run, func(s settings.Setting) bool { return s.Section == section })
	}
	switch {
	case has("rollout"):
		command = "train"
	case has("preference"):
		command = "dpo"
	default:
		command = "sft"
	}
	return run, command, asUsage(err)
}

// savedConfig checks the settings in the run.toml of a run folder as those of a new run
// are, and returns them if they are of onering train.
func savedConfig(dir string) (*resolved, error) {
	run, command, err := savedRun(dir)
	if err != nil {
		return nil, err
	}
	if command != "train" {
		config := newTuning(command, "")
		r, err := resolveTuning(config, settings.Command{Name: command}, run)
		if err == nil {
			err = asUsage(r.Locate(config.Validate()))
		}
		return nil, err
	}
	r, err := resolve(rl.Renew(run), settings.Environment(new(rl.Config), os.Environ()))
	if err == nil {
		err = r.validate()
	}
	return r, err
}

// defaultName is the name of the embedded run file in messages.
const defaultName = "onering's default.toml"

// embeddedRun returns the layer that stands in for a run file that is not given: the
// embedded run, overridden by the environment and flags. If a model or data is named, the
// defaults of docs/settings.md apply instead, since the embedded run's lengths and
// learning rate suit only its tiny model. A model without data learns the embedded task.
func (s *choice) embeddedRun(others ...settings.Source) (settings.Source, error) {
	switch {
	case s.file != "" && s.recipe != "":
		return nil, usagef("--recipe %s: %s is a recipe by itself; leave one of the two out", s.recipe, s.file)
	case s.file != "" || s.recipe == "paper":
		return nil, nil
	case s.recipe == "small":
		return small()
	case s.recipe != "":
		return nil, usagef("--recipe %q: must be one of small, paper", s.recipe)
	}
	run, err := settings.File(defaultName, defaultRun)
	if err != nil {
		return nil, err
	}
	model, problems := settings.Find("model.path", others...).Value, settings.Find("data.train", others...).Value
	if files, ok := problems.(rl.TrainFiles); ok { // of the flag
		problems = files.String()
	}
	if settings.Find("lora.adapter", others...).Key != "" { // which has its own scale
		run = slices.DeleteFunc(run, func(s settings.Setting) bool { return s.Section == "lora" })
	}
	switch own := func(name any) bool { return name != nil && name != "" && name != data.Arithmetic }; {
	case own(model) && own(problems):
		return nil, nil
	case own(model):
		return slices.DeleteFunc(run, func(s settings.Setting) bool { return s.Path() != "data.train" && s.Path() != "eval.suites" }), nil
	case own(problems) && (model == nil || model == ""):
		return nil, usagef("data.train is set and model.path is not: name the model's folder, or ORG/NAME on a hub "+
			"(--set model.path=...); the embedded model can only do sums (--set model.path=%s)", data.Arithmetic)
	}
	return run, nil
}

// trainOn trains one configuration to its end, or until a signal.
func trainOn(c *cobra.Command, t *ranks.Group, config *rl.Config, o trainOptions) (rl.Summary, error) {
	var local rl.Config // the configuration with paths in place of names on a hub
	var seconds float64 // that a round may take
	var probe func(context.Context) (rl.Probe, error)
	return runTraining(c, t, job[rl.Summary]{
		command: "train", dir: &config.Output.Dir, sink: config.Output.Sink, runOptions: o.runOptions, profile: o.Profile,
		show: config.Output.ShowEvery, push: config.Output.Pushing,
		base: o.BaseFD, rounds: config.Train.Rounds,
		prepare: func() (m trained, err error) {
			local, seconds, err = checkRun(c, config, rl.Split{Ranks: t.Size(), OnHost: t.OnHost()})
			return trained{local.Model.Path, config.Model.Path, local.Model.DType, local.LoRA, local.Runtime, config.Optimizer.LearningRate, local.Train.Seed}, err
		},
		config: config,
		open: func(s train.Setup) (trainer[rl.Summary], error) {
			if err := servePrograms(t, local, o); err != nil {
				return nil, err
			}
			x, err := rl.NewOn(c.Context(), local, s)
			if err == nil && seconds > longRound && !o.Resume && t.Size() == 1 && local.Environment.Program() == nil {
				probe = x.Probe
			}
			return x, err
		},
		before: func(ctx context.Context) error {
			if probe == nil {
				return nil
			}
			p, err := probe(ctx)
			for _, row := range p.Lines() {
				slog.Info("before the first round: " + row[0] + ": " + row[1])
			}
			for _, f := range p.Found {
				slog.Warn(f.Text, "cause", f.Cause, "round", 0)
			}
			return err
		},
	})
}

// probeRun probes a run that is not begun.
func probeRun(c *cobra.Command, t *ranks.Group, local rl.Config, o trainOptions) error {
	switch {
	case t.Size() > 1 || o.Ranks > 1:
		return usagef("--probe: a probe is of one process: leave --ranks and the launcher out")
	case local.Environment.Program() != nil:
		return usagef("--probe: programs play the episodes of the run, and there are none in a probe")
	}
	x := training[rl.Summary]{job: job[rl.Summary]{dir: &local.Output.Dir}}
	defer x.close()
	setup := train.Setup{Ranks: t, Observer: &x.live, Log: slog.Default()}
	x.live.Watch(c.ErrOrStderr(), isQuiet(c))
	x.closers = append(x.closers, x.live.Close)
	m := trained{local.Model.Path, local.Model.Path, local.Model.DType, local.LoRA, local.Runtime, local.Optimizer.LearningRate, local.Train.Seed}
	if err := x.openModel(c, t, m, &setup); err != nil {
		return err
	}
	r, err := rl.NewOn(c.Context(), local, setup)
	if err != nil {
		return err
	}
	defer r.Close()
	p, err := r.Probe(c.Context())
	if err != nil {
		return err
	}
	table := cli.Table(p.Lines())
	for _, f := range append(p.Planned, p.Found...) {
		table.Add("diagnosis", "%s", f.Text)
	}
	return show(c, o.JSON, p, table.Write)
}

// servePrograms serves the policy to the programs that play the run's episodes, if there
// are such programs, or in a dry run only checks whether it could. Closing the
// environment ends the server.
func servePrograms(t *ranks.Group, config rl.Config, o trainOptions) error {
	p := config.Environment.Program()
	if p == nil {
		if o.Serve+o.APIKeyEnv != "" {
			return usagef("--serve and --api-key-env are for programs that play the episodes, and the run has environment.name "+
				"= %q: leave them out, or set environment.name=program", config.Environment.Name)
		}
		return nil
	}
	if t.Size() > 1 {
		return usagef("environment.name = \"program\": programs play with a single rank")
	}
	if o.Serve == "" && len(p.Command) == 0 {
		return usagef("environment.name = \"program\": say where programs find the policy (--serve localhost:8000), or which program to run (environment.command)")
	}
	address, err := serve.Address(cmp.Or(o.Serve, "localhost:0"))
	if err != nil {
		return usagef("--serve %q: write localhost:PORT", o.Serve)
	}
	key, err := keyOf(o.APIKeyEnv)
	if err != nil || o.Dry {
		return err
	}
	d, err := serve.StartEpisodes(address, filepath.Base(filepath.Clean(config.Model.Path)), key, p.Command, slog.Default())
	if err != nil {
		return fmt.Errorf("--serve %s: %w", address, err)
	}
	p.Driver = d
	return nil
}

// checkRun checks what can be checked before ONNX Runtime is opened, and returns
// the configuration with paths instead of names on a hub, see localConfig, and how many seconds a
// round may take.
func checkRun(c *cobra.Command, config *rl.Config, split rl.Split) (local rl.Config, seconds float64, err error) {
	if local, err = localConfig(c, config); err != nil {
		return local, 0, err
	}
	// Report a wrong folder before fetching a library.
	for _, path := range []string{local.Model.Path, local.Model.Reference} {
		if err := checkModel(path); path != "" && err != nil {
			return local, 0, err
		}
	}
	seconds, err = checkMemory(c, *config, split)
	return local, seconds, err
}

// printSummary prints what was learned, where the result is and the next commands to type.
func printSummary(w io.Writer, s rl.Summary, c rl.Config) error {
	var t cli.Table
	switch {
	case s.Resumed == 0:
		t.Add("trained", "%d rounds, %d steps in %.1f s with %s", s.Rounds, s.Steps, s.Seconds, c.Objective.Name)
	case s.Resumed == s.Rounds:
		t.Add("trained", "%d rounds, %d steps with %s, all of them before it was resumed", s.Rounds, s.Steps, c.Objective.Name)
	default:
		t.Add("trained", "%d rounds, %d steps with %s; %.1f s since round %d", s.Rounds, s.Steps, c.Objective.Name, s.Seconds, s.Resumed)
	}
	if s.Reward != nil {
		form := ""
		if rule := reward.Extract(c.Reward.Rule); rule != "" { // the form in which answers were expected
			form = " (extract = " + rule + ")"
		}
		t.Add("reward", "%.3f in the first round, %.3f in the last%s", s.Reward[0], s.Reward[1], form)
	}
	for _, x := range s.Suites {
		before, on := "", ""
		if x.Before != nil {
			before = fmt.Sprintf("%.1f %% before, ", 100**x.Before)
		}
		if x.Problems > 0 {
			on = fmt.Sprintf(", on %d held-out problems", x.Problems)
		}
		t.Add(x.Suite, "pass@1 %s%.1f %%%s%s", before, 100*x.After, map[bool]string{true: " after"}[x.Before != nil], on)
	}
	if s.LogPGap > 0 { // otherwise no responses were compared
		t.Add("log-probs", "rollout and training differ by %.1e at most", s.LogPGap)
	}
	addEnding(&t, s.Ending)
	var sets []string
	for _, f := range s.Diagnoses {
		t.Add("diagnosis", "%s", f.Text)
		sets = append(sets, f.Set)
	}
	return printEnd(w, t, s.Folder, append(remedied("train", s.Folder, sets), nextCommands(s, c)...))
}

// addEnding says how train.stop_when ended the run.
func addEnding(t *cli.Table, e train.Ending) {
	if e.Early != "" {
		t.Add("ended early", "%s", e.Early)
	}
	if e.Best != "" {
		t.Add("best", "%s", cli.Nearest(e.Best))
	}
}

// printEnd prints the table of a run and its folder, and then the commands to type next.
func printEnd(w io.Writer, t cli.Table, folder string, next []string) error {
	t.Add("run folder", "%s", cli.Nearest(folder))
	failed := t.Write(w)
	_, err := fmt.Fprintf(w, "next\n%s\n", strings.Join(next, "\n")) // each command has its own line, to be copied
	return cmp.Or(failed, err)
}

// remedied returns the command that trains again with what was wrong in the run of a folder set to
// another value; nil if no value is known.
func remedied(command, folder string, sets []string) []string {
	if sets = slices.DeleteFunc(sets, func(s string) bool { return s == "" }); len(sets) == 0 {
		return nil
	}
	folder = cli.Nearest(folder)
	line := "onering " + command + " --config " + cli.ShellQuoted(filepath.Join(folder, "run.toml"))
	for _, set := range sets {
		line += " --set " + cli.ShellQuoted(set)
	}
	return []string{line + " --out " + cli.ShellQuoted(folder+"-again")}
}

// nextCommands returns commands that show what was learned. The commands take the
// template and other settings from the run.
func nextCommands(s rl.Summary, c rl.Config) []string {
	model, tokenizer, suite := " --model "+cli.ShellQuoted(cli.Nearest(cmp.Or(s.Best, s.Folder))), s.Checkpoint, ""
	if c.LoRA.On {
		tokenizer = c.Model.Path
	}
	if len(c.Eval.Suites) == 0 && len(c.Data.Train) > 0 { // eval takes the suites of the run
		suite = " --limit 10 --suite " + cli.ShellQuoted(c.Data.Train[0].Path)
	}
	chats := c.Model.Template == "chat" || c.Model.Template == tokenize.DefaultTemplate && canChat(tokenizer)
	switch {
	case c.Environment.Program() != nil: // programs play the episodes, and a server is what they ask
		return []string{"onering serve" + model}
	case c.Environment.Player(nil, nil) != nil: // generate and chat play no episodes
		return []string{"onering eval" + model + suite}
	case c.Data.Train.Is(data.Arithmetic):
		return []string{talk(model, false, "417+385=")}
	}
	prompt := "What is 1+1?"
	if c.Model.Path == data.Arithmetic { // the embedded task's vocabulary has no letters
		prompt = "1+1="
	}
	next := []string{talk(model, chats, prompt)}
	if suite == "" {
		next = append(next, "onering eval"+model)
	}
	return next
}

// talk returns the command that asks a model something.
func talk(model string, chats bool, prompt string) string {
	if chats {
		return "onering chat" + model
	}
	line, _ := json.Marshal(map[string]string{"prompt": prompt}) // texts are always encoded
	return "echo " + cli.ShellQuoted(string(line)) + " | onering generate" + model
}

// canChat reports whether the model in a folder has a chat template.
func canChat(dir string) bool {
	t, err := tokenize.Load(dir)
	return err == nil && t.CheckChat() == nil
}

// maxRanks is more than the number of processors in any cluster on which MPI was started.
const maxRanks = 1 << 20

// dryRun prints how much memory each rank of a run needs, and returns an error if that is
// more than there is.
func dryRun(c *cobra.Command, r *resolved, o trainOptions) error {
	planned := o.Ranks
	if c.Flags().Changed("ranks") && (planned < 1 || planned > maxRanks) {
		return usagef("--ranks %d: must be in [1, %d]", planned, maxRanks)
	}
	t, err := joinTeam(c, r.Distributed)
	if err != nil {
		return err
	}
	split := rl.Split{Ranks: t.Size(), OnHost: t.OnHost()}
	if planned > 0 {
		split.Ranks = planned
	}
	if launcher, _ := ranks.Launcher(); planned > 0 && launcher != "" {
		return t.End(usagef("--ranks %d: a launcher has started %d ranks, and the estimate is of those: leave one of the two out", planned, t.Size()))
	}
	_, err = ranks.FromFirst(t, func() (bool, error) {
		if err := r.fitRecipe(c, split); err != nil {
			return false, err
		}
		return true, cmp.Or(printEstimate(c, r, split, o.JSON), preflight(c, t, r.Config, split, o))
	})
	return t.End(err)
}

// preflight checks what a run checks before it samples, but for what needs ONNX Runtime.
func preflight(c *cobra.Command, t *ranks.Group, config rl.Config, split rl.Split, o trainOptions) (err error) {
	if !o.Resume {
		err = checkVacant(config.Output.Dir, toContinue)
	}
	local, _, failed := checkRun(c, &config, split)
	if err := errors.Join(err, failed, servePrograms(t, config, o), checkSink(config.Output.Sink)); err != nil {
		return err
	}
	template, _ := local.Model.PromptTemplate() // which is valid
	prompter, err := prompterOf(local.Model.Path, template)
	if err != nil {
		return err
	}
	log := slog.Default()
	if o.Probe { // which says the same
		log = slog.New(slog.DiscardHandler)
	}
	if err := rl.Preflight(c.Context(), local, prompter, log); err != nil || !o.Probe {
		return err
	}
	return probeRun(c, t, local, o)
}

// isOpen says whether no source sets a key.
func (r *resolved) isOpen(key string) bool { return !r.Stated(key) }

// takeSizes sets the open sizes of a run by the free memory of its GPU, equally on all
// ranks, and prints them. A resumed run keeps those that its folder states.
func takeSizes(c *cobra.Command, t *ranks.Group, r *resolved, resume bool) error {
	split := rl.Split{Ranks: t.Size(), OnHost: t.OnHost()}
	if err := r.fitRecipe(c, split); err != nil || r.Runtime.Device == "cpu" {
		return err
	}
	open := func(key string) bool { return !resume && r.isOpen(key) }
	plans, err := ranks.FromFirst(t, func() ([]rl.Plan, error) {
		config := r.Config
		t.Place(&config.Runtime.Device, &config.Runtime.Threads)
		e, _, err := estimate(c, &config, split, open, false)
		return e.Plans, err
	})
	if len(plans) > 0 && err == nil {
		plans[0].Apply(&r.Config)
		level := slog.LevelInfo
		if !plans[0].Fits {
			level = slog.LevelWarn
		}
		slog.Log(c.Context(), level, "the run on "+plans[0].Card, "plan", plans[0].String())
	}
	return err
}

// keptSizes returns the SizeKeys that the run in a folder states, for resuming it on a
// GPU with a run file that leaves them open.
func keptSizes(dir string, others []settings.Source) (run settings.Source, err error) {
	file, device := filepath.Join(dir, "run.toml"), settings.Find("runtime.device", others...).Value
	if _, failed := os.Stat(file); failed != nil || device == nil || device == "cpu" {
		return nil, nil // the trainer reports a missing folder
	}
	run, err = readRunFile(file, nil)
	return slices.DeleteFunc(run, func(s settings.Setting) bool { return !slices.Contains(rl.SizeKeys, s.Path()) }), err
}

// printEstimate prints how much memory a run needs, and returns an error if that is more
// than there is.
func printEstimate(c *cobra.Command, r *resolved, split rl.Split, asJSON bool) error {
	config := r.Config
	e, model, err := estimate(c, &config, split, r.isOpen, true)
	if err != nil {
		return err
	}
	if err := show(c, asJSON, e, cli.Table(e.Lines()).Write); err != nil {
		return err
	}
	if len(e.Plans) > 0 && e.Plans[0].Here && !e.Plans[0].Fits {
		return fmt.Errorf("train: the run does not fit what is free of %s and of the host: take a larger GPU or a "+
			"smaller model, set a smaller rollout.max_new_tokens, or train an adapter (--lora)", e.Plans[0].Card)
	}
	return e.Check(config, model)
}

// foreseen returns a configuration in which the device that the run will use replaces auto, and what
// localConfig makes of it, with the model.
func foreseen(c *cobra.Command, config rl.Config) (own, local rl.Config, model models.Model, err error) {
	if config.Runtime.Device, err = foreseenDevice(c, config.Runtime, config.LoRA, config.Model.DType); err == nil {
		local, err = localConfig(c, &config)
	}
	if err == nil {
		model, err = policy.ReadModel(local.Model.Path)
	}
	return config, local, model, err
}

// estimate computes how much memory a run needs. It sets config to the foreseen configuration
// with the open sizes chosen, and states how the run goes on GPUs (see rl.Config.Choose).
func estimate(c *cobra.Command, config *rl.Config, split rl.Split, open func(key string) bool, all bool) (e rl.MemoryEstimate, model models.Model, err error) {
	copied, local, model, err := foreseen(c, *config)
	config.Runtime.Device = copied.Runtime.Device
	if err != nil {
		return e, model, err
	}
	copied.Model.Reference, copied.Stream = local.Model.Reference, local.Stream
	var plans []rl.Plan
	if open != nil {
		if plans, err = copied.Choose(model, split, open, all); err != nil {
			return e, model, err
		}
	}
	e, err = copied.EstimateMemory(model, split)
	e.Plans = plans
	return e, model, err
}

// checkMemory refuses a run that cannot fit, and warns of one that may not fit. It says how long a
// long round takes.
func checkMemory(c *cobra.Command, config rl.Config, split rl.Split) (seconds float64, err error) {
	e, model, err := estimate(c, &config, split, nil, false)
	if err != nil {
		return 0, err
	}
	seconds = config.RoundSeconds(model, split, e.Plans)
	sayTime(config, model, split, seconds)
	if err := e.Refuse(config, model); err != nil {
		return seconds, err
	}
	if err := e.Check(config, model); err != nil {
		slog.Warn(err.Error())
	}
	return seconds, nil
}
