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

// newTrain makes the command train: reinforcement learning on all ranks that a launcher started, or a dry run.
func newTrain() *cobra.Command {
	o := trainOptions{runOptions: runOptions{Report: true}}
	s := newSettings(withTrainDefaults)
	s.allEffective, s.opensModel = true, true
	c := newCommand("train", &o, func(c *cobra.Command, _ []string) error {
		s.recipe = o.Recipe
		r, err := s.resolveRun(c, s.fromFlags.(*rl.Config).Output.Dir, o.Resume)
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
		if err = chooseSizes(c, t, r, o.Resume); err == nil {
			end, err = trainOn(c, t, &r.Config, o)
		}
		err, failedPush := splitUnpushed(err)
		if err := t.End(err); err != nil {
			return err
		}
		return errors.Join(show(c, o.JSON, end, func(w io.Writer) error { return printSummary(w, end, r.Config) }), failedPush)
	})
	s.addRunFlags(c, "model.path", "model.template", "data.train", "data.prompt", "data.answer", "objective.name=objective",
		"optimizer.learning_rate=lr", "output.dir", "lora.on")
	c.Args = cobra.ArbitraryArgs
	s.moreSources = append(s.moreSources, func() settings.Source {
		if o.Serve != "" { // --serve is also short for the environment that programs play
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

// resolveRun resolves the settings of train and chooses the run folder; out is that of --out. Below what the user
// states lie, for a new run, the run that made the model, such as its template, and below that embeddedRun; for a
// resumed run the sizes in its run.toml, which without --config is the run file, too.
func (s *commandSettings) resolveRun(c *cobra.Command, out string, resume bool) (*resolved, error) {
	if err := s.sortArguments(c); err != nil {
		return nil, err
	}
	weakest := func(others ...settings.Source) (settings.Source, error) {
		run, err := s.embeddedRun(others...)
		if err != nil {
			return nil, err
		}
		ofModel, _, err := s.settingsOfRun(folderOfSettings, others)
		return append(run, ofModel...), err // what is stated twice counts as stated last
	}
	if resume {
		if s.runFile == "" || out == "" { // without --out resumedFile is an error
			var err error
			if s.runFile, err = resumedFile(out, "train"); err != nil {
				return nil, err
			}
		}
		weakest = func(others ...settings.Source) (settings.Source, error) { return sizesOfRun(out, others) }
	}
	r, err := s.resolve(c, weakest)
	if err != nil {
		return nil, err
	}
	if err := checkIneffective(r.Resolved, resume); err != nil {
		return nil, err
	}
	logAdapterRate(r.Resolved, r.LoRA, r.Optimizer.LearningRate)
	if r.Output.Dir == "" {
		r.Output.Dir = filepath.Join("runs", "out", r.Objective.Name+"-"+time.Now().Format("20060102-150405"))
	}
	return r, nil
}

// resumedFile returns the run.toml of the folder out, whose run is to be resumed. It refuses a folder without one,
// and a run of another command than this one: train, sft or dpo.
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
	_, begunBy, err := savedRun(out)
	if err == nil && begunBy != command {
		err = usagef("%s is a run of %s: continue it with onering %s --resume --out %s", out, begunBy, begunBy, cli.ShellQuoted(out))
	}
	return file, err
}

// savedRun reads the run.toml of a run folder, and says which command wrote it: train, sft or dpo.
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

// savedConfig checks the settings in the run.toml of a run folder as those of a new run are, and returns them; nil
// without an error if they are right, but of sft or dpo.
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
	r, err := resolve(rl.Renew(run), settings.Environment(new(rl.Config), os.Environ())) // an earlier version may have written the file
	if err == nil {
		err = r.validate()
	}
	return r, err
}

// defaultName is the name of the embedded run file in messages.
const defaultName = "onering's default.toml"

// embeddedRun returns the settings that stand in for a run file: those of --recipe small, or without a recipe the
// embedded run, and none beside a run file or with --recipe paper, which is the defaults. others, which override
// them, decide what applies: where they name a model or data of the user, the defaults of docs/settings.md do, since
// the embedded run's lengths and learning rate suit only its tiny model. A model without data learns the embedded task.
func (s *commandSettings) embeddedRun(others ...settings.Source) (settings.Source, error) {
	switch {
	case s.runFile != "" && s.recipe != "":
		return nil, usagef("--recipe %s: %s is a recipe by itself; leave one of the two out", s.recipe, s.runFile)
	case s.runFile != "" || s.recipe == "paper":
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
	if files, ok := problems.(rl.TrainFiles); ok { // a flag states a value of the field's type
		problems = files.String()
	}
	if settings.Find("lora.adapter", others...).Key != "" { // an adapter that is continued has its own scale
		run = slices.DeleteFunc(run, func(s settings.Setting) bool { return s.Section == "lora" })
	}
	// data.Arithmetic is the name of the embedded model, and that of the embedded task.
	switch usersOwn := func(name any) bool { return name != nil && name != "" && name != data.Arithmetic }; {
	case usersOwn(model) && usersOwn(problems):
		return nil, nil
	case usersOwn(model): // only the embedded task is left of the embedded run
		return slices.DeleteFunc(run, func(s settings.Setting) bool { return s.Path() != "data.train" && s.Path() != "eval.suites" }), nil
	case usersOwn(problems) && (model == nil || model == ""):
		return nil, usagef("data.train is set and model.path is not: name the model's folder, or ORG/NAME on a hub "+
			"(--set model.path=...); the embedded model can only do sums (--set model.path=%s)", data.Arithmetic)
	}
	return run, nil
}

// trainOn trains one configuration to its end, or until a signal. A new run in one process whose rounds take minutes
// first samples some responses, and logs what they show.
func trainOn(c *cobra.Command, t *ranks.Group, config *rl.Config, o trainOptions) (rl.Summary, error) {
	var local rl.Config                               // the configuration with paths in place of names on a hub; prepare sets it
	var seconds float64                               // that a round may take, as prepare estimates
	var probe func(context.Context) (rl.Probe, error) // nil for no probe; open sets it
	return runTraining(c, t, job[rl.Summary]{
		command: "train", dir: &config.Output.Dir, sink: config.Output.Sink, runOptions: o.runOptions, profile: o.Profile,
		showEvery: config.Output.ShowEvery, pushing: config.Output.Pushing,
		baseFD: o.BaseFD, rounds: config.Train.Rounds, // baseFD is a file of the model's weights that a sweep shares, 0 for none
		prepare: func() (m trainedModel, err error) {
			local, seconds, err = checkRun(c, config, rl.Split{Ranks: t.Size(), OnHost: t.OnHost()})
			return modelOfRun(local, config.Model.Path), err // an adapter's files name the base model as run.toml does, not by a folder in a cache
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
		beforeRun: func(ctx context.Context) error {
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

// modelOfRun says which model a run trains; name is that of the model in an adapter's files.
func modelOfRun(c rl.Config, name string) trainedModel {
	return trainedModel{c.Model.Path, name, c.Model.DType, c.LoRA, c.Runtime, c.Optimizer.LearningRate, c.Train.Seed}
}

// probeRun opens a run without beginning its folder, samples some responses, and prints what they show: for --dry-run --probe.
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
	if err := x.openModel(c, t, modelOfRun(local, local.Model.Path), &setup); err != nil {
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

// servePrograms serves the policy to the programs that play the run's episodes, if the environment is theirs, and
// hands the server to that environment, which ends it when it is closed. A dry run only checks whether it could.
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
	model := filepath.Base(filepath.Clean(config.Model.Path)) // its name in requests
	d, err := serve.StartEpisodes(address, model, key, p.Command, slog.Default())
	if err != nil {
		return fmt.Errorf("--serve %s: %w", address, err)
	}
	p.Driver = d
	return nil
}

// checkRun checks what can be checked before ONNX Runtime is opened. It returns the configuration with paths in place
// of names on a hub, which it pins in config (see localConfig), and the seconds that a round may take, 0 if unknown.
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
	return printEnd(w, t, "train", s, nextCommands(s, c))
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

// printEnd prints the table of a run of command, with the diagnoses and the folder that s states, and then the
// commands to type next: one that trains again without what is wrong, if it is known how, and those of next.
func printEnd(w io.Writer, t cli.Table, command string, s rl.Summary, next []string) error {
	folder := cli.Nearest(s.Folder)
	again, sets := "onering "+command+" --config "+cli.ShellQuoted(filepath.Join(folder, "run.toml")), ""
	for _, f := range s.Diagnoses {
		t.Add("diagnosis", "%s", f.Text)
		if f.Set != "" { // such as train.seed=1
			sets += " --set " + cli.ShellQuoted(f.Set)
		}
	}
	if sets != "" {
		next = append([]string{again + sets + " --out " + cli.ShellQuoted(folder+"-again")}, next...)
	}
	t.Add("run folder", "%s", folder)
	failed := t.Write(w)
	_, err := fmt.Fprintf(w, "next\n%s\n", strings.Join(next, "\n")) // each command has its own line, to be copied
	return cmp.Or(failed, err)
}

// nextCommands returns commands that show what was learned, which take the template and other settings from the run.
func nextCommands(s rl.Summary, c rl.Config) []string {
	model, tokenizer, suite := " --model "+cli.ShellQuoted(cli.Nearest(cmp.Or(s.Best, s.Folder))), s.Checkpoint, ""
	if c.LoRA.On { // a checkpoint of an adapter has no tokenizer
		tokenizer = c.Model.Path
	}
	if len(c.Eval.Suites) == 0 && len(c.Data.Train) > 0 { // eval takes the suites of the run
		suite = " --limit 10 --suite " + cli.ShellQuoted(c.Data.Train[0].Path)
	}
	chats := c.Model.Template == "chat" || c.Model.Template == tokenize.DefaultTemplate && canChat(tokenizer)
	switch {
	case c.Environment.Program() != nil: // programs play the episodes, and a server is what they ask
		return []string{"onering serve" + model}
	case c.Environment.Player(nil, nil) != nil: // there are episodes, which generate and chat do not play
		return []string{"onering eval" + model + suite}
	case c.Data.Train.Is(data.Arithmetic):
		return []string{askCommand(model, false, "417+385=")} // no chat: its prompts are sums
	}
	prompt := "What is 1+1?"
	if c.Model.Path == data.Arithmetic { // the embedded task's vocabulary has no letters
		prompt = "1+1="
	}
	next := []string{askCommand(model, chats, prompt)}
	if suite == "" {
		next = append(next, "onering eval"+model)
	}
	return next
}

// askCommand returns the command that asks a model something: chat, or generate with a prompt. model is its flag.
func askCommand(model string, chats bool, prompt string) string {
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

// dryRun prints how much memory each rank of a run needs, and checks on the first rank what a run checks before it
// samples. It returns an error if the memory does not suffice or a check fails. --ranks plans for so many ranks.
func dryRun(c *cobra.Command, r *resolved, o trainOptions) error {
	planned := o.Ranks // 0 without --ranks
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

// preflight checks what a run checks before it samples, but for what needs ONNX Runtime: the folder, the model, the
// data, the programs. With --probe it then opens the model and samples some responses, too.
func preflight(c *cobra.Command, t *ranks.Group, config rl.Config, split rl.Split, o trainOptions) (err error) {
	if !o.Resume {
		err = checkVacant(config.Output.Dir, toContinue)
	}
	local, _, wrongRun := checkRun(c, &config, split)
	if err := errors.Join(err, wrongRun, servePrograms(t, config, o), checkSink(config.Output.Sink)); err != nil {
		return err
	}
	template, _ := local.Model.PromptTemplate() // which is valid
	prompter, err := prompterOf(local.Model.Path, template)
	if err != nil {
		return err
	}
	log := slog.Default()
	if o.Probe { // probeRun opens the run, which logs the same
		log = slog.New(slog.DiscardHandler)
	}
	if err := rl.Preflight(c.Context(), local, prompter, log); err != nil || !o.Probe {
		return err
	}
	return probeRun(c, t, local, o)
}

// isUnset says whether no source states a setting, so that the program may choose it.
func (r *resolved) isUnset(path string) bool { return !r.Stated(path) }

// chooseSizes fits the recipe small to the machine, if that is the recipe. On a GPU it then sets the sizes that
// nothing states (rl.SizeKeys) by the GPU's free memory, equally on all ranks, and logs the plan. A resumed run has
// its own.
func chooseSizes(c *cobra.Command, t *ranks.Group, r *resolved, resume bool) error {
	split := rl.Split{Ranks: t.Size(), OnHost: t.OnHost()}
	if err := r.fitRecipe(c, split); err != nil || r.Runtime.Device == "cpu" {
		return err
	}
	mayChoose := func(key string) bool { return !resume && r.isUnset(key) }
	plans, err := ranks.FromFirst(t, func() ([]rl.Plan, error) {
		config := r.Config
		t.Place(&config.Runtime.Device, &config.Runtime.Threads) // this rank's device, and its share of the host's cores
		e, _, err := estimate(c, &config, split, mayChoose, thisCard)
		return e.Plans, err
	})
	if len(plans) > 0 && err == nil { // the first plan is that of this GPU
		plans[0].Apply(&r.Config)
		level := slog.LevelInfo
		if !plans[0].Fits {
			level = slog.LevelWarn
		}
		slog.Log(c.Context(), level, "the run on "+plans[0].Card, "plan", plans[0].String())
	}
	return err
}

// sizesOfRun returns the settings of rl.SizeKeys that the run.toml in a folder states, for resuming the run on a GPU
// with a run file that leaves them open; nothing on the CPU.
func sizesOfRun(dir string, others []settings.Source) (run settings.Source, err error) {
	file, device := filepath.Join(dir, "run.toml"), settings.Find("runtime.device", others...).Value
	if _, failed := os.Stat(file); failed != nil || device == nil || device == "cpu" {
		return nil, nil // the trainer reports a missing folder
	}
	run, err = readRunFile(file, nil) // it is not stdin
	return slices.DeleteFunc(run, func(s settings.Setting) bool { return !slices.Contains(rl.SizeKeys, s.Path()) }), err
}

// printEstimate prints how much memory a run needs, here and on other GPUs; more than there is here is an error.
func printEstimate(c *cobra.Command, r *resolved, split rl.Split, asJSON bool) error {
	config := r.Config
	e, model, err := estimate(c, &config, split, r.isUnset, allCards)
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

// foreseen returns config with the device that the run will use in place of auto (own), that with paths in place of
// names on a hub (local), and the model's shape. It reads no weights.
func foreseen(c *cobra.Command, config rl.Config) (own, local rl.Config, model models.Model, err error) {
	if config.Runtime.Device, err = foreseenDevice(c, config.Runtime, config.LoRA, config.Model.DType); err == nil {
		local, err = localConfig(c, &config)
	}
	if err == nil {
		model, err = policy.ReadModel(local.Model.Path)
	}
	return config, local, model, err
}

// For which cards estimate makes plans.
const (
	thisCard = false // this machine's GPU
	allCards = true
)

// estimate computes how much memory a run needs, for the device that it will use, which it sets in config. On a GPU
// it also plans how the run goes there and, with otherCards, on other GPUs (e.Plans; see rl.Config.Choose). It then
// counts with the first plan's values of those sizes that mayChoose allows; it plans nothing if mayChoose is nil.
func estimate(c *cobra.Command, config *rl.Config, split rl.Split, mayChoose func(key string) bool,
	otherCards bool) (e rl.MemoryEstimate, model models.Model, err error) {
	planned, local, model, err := foreseen(c, *config)
	config.Runtime.Device = planned.Runtime.Device
	if err != nil {
		return e, model, err
	}
	planned.Model.Reference, planned.Stream = local.Model.Reference, local.Stream // their folders are read for the models' sizes
	var plans []rl.Plan
	if mayChoose != nil {
		if plans, err = planned.Choose(model, split, mayChoose, otherCards); err != nil {
			return e, model, err
		}
	}
	e, err = planned.EstimateMemory(model, split)
	e.Plans = plans
	return e, model, err
}

// checkMemory refuses a run that cannot fit into memory, and warns of one that may not fit. It returns how many
// seconds a round takes, 0 if that is unknown, and logs it if it is long.
func checkMemory(c *cobra.Command, config rl.Config, split rl.Split) (seconds float64, err error) {
	e, model, err := estimate(c, &config, split, nil, thisCard) // nil: it chooses no sizes
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
