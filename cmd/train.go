package cmd

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"onering/data/arithmetic"
	"onering/internal/cli"
	"onering/internal/files"
	"onering/internal/settings"
	"onering/policy"
	"onering/report/live"
	"onering/runtime"
	"onering/serve"
	"onering/train/rl"
)

// defaultRun is the run file of "onering train" without --config.
//
//go:embed default.toml
var defaultRun []byte

// trainLong is the help of train.
const trainLong = `Train a model with group-based reinforcement learning. Each round samples
responses to a number of prompts, verifies them, and takes optimizer steps on
the weights that the objective gives each token.

Without --config a tiny model that comes with the program learns arithmetic on
the CPU; --set model.path=DIR and --set data.train=FILE make it your model and
data. --set section.key=value or ONERING_SECTION_KEY in the environment sets any
key of docs/settings.md. Flags win over the environment, it over the file.

A run writes a folder: run.toml, the resolved configuration; metrics.jsonl;
rollouts/; checkpoints/, which are Hugging Face folders; log.txt. --resume
continues a run that was interrupted.

mpirun -n N onering train divides the work among N processes, on one machine or
several.`

func newTrain() *cobra.Command {
	var config configFlags
	var out string
	var resume, asJSON, dry bool
	var planned int
	c := &cobra.Command{
		Use:   "train",
		Short: "Train a model: sample, verify, weigh, update",
		Long:  trainLong,
		Example: `  onering train
  onering train --objective=grpo --set train.rounds=8
  onering train --set model.path=DIR --set data.train=FILE.jsonl
  onering train --config runs/math.toml --set model.path=DIR --set data.train=FILE.jsonl
  onering train --resume --out runs/out/pmpo-20260102-030405`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := config.resolveRun(c, out, resume)
			if err != nil {
				return err
			}
			if err := r.validate(); err != nil {
				return err
			}
			if dry {
				return dryRun(c, r.Config, planned, asJSON)
			}
			if c.Flags().Changed("ranks") {
				return usagef("--ranks goes with --dry-run; to train with several ranks: mpirun -n %d onering train", max(2, planned))
			}
			t, err := joinTeam(c, r.Distributed)
			if err != nil {
				return err
			}
			end, err := runTraining(c, t, r.Config, resume)
			if err := t.leave(err); err != nil {
				return err
			}
			if asJSON {
				return cli.WriteLine(c.OutOrStdout(), summarize(end))
			}
			summarize(end).print(c.OutOrStdout(), r.Config)
			return nil
		},
	}
	config.registerObjective(c)
	flags := c.Flags()
	flags.StringVar(&out, "out", "", "run folder; default: a new one in runs/out")
	config.registerLoRA(c)
	flags.BoolVar(&resume, "resume", false, "continue the run in --out from its last checkpoint")
	flags.BoolVar(&asJSON, "json", false, "print the summary as one JSON object")
	flags.BoolVar(&dry, "dry-run", false, "print how much memory the run needs, and fail if it does not fit")
	flags.IntVar(&planned, "ranks", 0, "with --dry-run: plan for so many ranks, each on a machine or a GPU of its own")
	flags.String("status-addr", "", "serve health, Prometheus metrics and profiles at this address, such as localhost:9090")
	flags.String("profile", "", "folder for cpu.pprof (go tool pprof) and ONNX Runtime's traces (chrome://tracing)")
	flags.Bool("report", true, "keep report.html and tensorboard/ in the run folder up to date")
	markDirs(c, "out", "profile")
	return c
}

// markDirs lets the shell complete flags with folders.
func markDirs(c *cobra.Command, names ...string) {
	for _, name := range names {
		must(c.MarkFlagDirname(name))
	}
}

// resolveRun resolves the configuration of a run and chooses its folder. To resume
// without --config it reads the run.toml in the folder.
func (f *configFlags) resolveRun(c *cobra.Command, out string, resume bool) (*resolved, error) {
	if resume && out == "" {
		return nil, usagef("--resume needs --out, the folder of the run to continue")
	}
	if resume && f.file == "" {
		var err error
		if f.file, err = resumedFile(out, "train"); err != nil {
			return nil, err
		}
	}
	if out != "" {
		quoted, _ := json.Marshal(out) // a JSON string is a TOML string
		f.sets = append(f.sets, "output.dir="+string(quoted))
	}
	if f.lora {
		f.sets = append(f.sets, "lora.on=true")
	}
	r, err := f.resolve(c, embeddedRun)
	if err != nil {
		return nil, err
	}
	for _, set := range f.sets {
		if key, _, _ := strings.Cut(set, "="); strings.HasPrefix(key, "lora.") && key != "lora.on" && !r.LoRA.On {
			return nil, usagef("--set %s is about an adapter, and none is trained: add --lora, or leave it out", set)
		}
	}
	if r.Output.Dir == "" {
		r.Output.Dir = filepath.Join("runs", "out", r.Objective.Name+"-"+time.Now().Format("20060102-150405"))
	}
	return r, nil
}

// resumedFile returns the run file in the folder of a run of command, train or sft, that
// is to be resumed.
func resumedFile(out, command string) (string, error) {
	file := filepath.Join(out, "run.toml")
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return "", usagef("there is no run to resume in %s: it has no run.toml; name the folder that a run has written", out)
	} else if info, err := os.Stat(out); err == nil && !info.IsDir() {
		return "", usagef("there is no run to resume in %s: it is a file; name the folder that a run has written", out)
	} else if info, err := os.Lstat(file); err == nil && !info.Mode().IsRegular() {
		return "", usagef("%s is not a regular file", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	run, err := settings.File(file, text)
	if err != nil {
		return file, nil // who reads it says where it is wrong
	}
	of := "sft"
	if slices.ContainsFunc(run, func(s settings.Setting) bool { return s.Section == "rollout" }) {
		of = "train"
	}
	if of != command {
		return "", usagef("%s is a run of %s: continue it with onering %s --resume --out %s", out, of, of, out)
	}
	return file, nil
}

// defaultName is what messages call the embedded run file.
const defaultName = "onering's default.toml"

// embeddedRun returns the layer that stands in for a run file: what others, the
// environment and flags, leave of the embedded run. Who names a model or data gets
// the defaults of docs/settings.md instead, since the embedded run's lengths and
// learning rate suit only its tiny model. A model without data learns the embedded
// task.
func embeddedRun(others ...settings.Source) (settings.Source, error) {
	run, err := settings.File(defaultName, defaultRun)
	if err != nil {
		return nil, err
	}
	model, data := settings.Find("model.path", others...).Value, settings.Find("data.train", others...).Value
	switch own := func(name any) bool { return name != nil && name != "" && name != arithmetic.Name }; {
	case own(model) && own(data):
		return nil, nil
	case own(model):
		return slices.DeleteFunc(run, func(s settings.Setting) bool { return s.Path() != "data.train" && s.Path() != "eval.suites" }), nil
	case own(data) && (model == nil || model == ""):
		return nil, usagef("data.train is set and model.path is not: name the model's folder, or ORG/NAME on a hub (--set model.path=...); the embedded model can only do sums (--set model.path=%s)", arithmetic.Name)
	}
	return run, nil
}

// checkRun checks what can be checked before ONNX Runtime is opened, and returns
// the configuration with paths instead of names on a hub; see localConfig.
func checkRun(c *cobra.Command, config *rl.Config, split rl.Split, resume bool) (local rl.Config, err error) {
	if !resume {
		if err := checkVacant(config.Output.Dir, "continue the run in it with --resume, or choose another folder with --out"); err != nil {
			return local, err
		}
	}
	if local, err = localConfig(c, config); err != nil {
		return local, err
	}
	// Report a wrong folder before fetching a library.
	if err := checkModel(local.Model.Path); err != nil {
		return local, err
	}
	if local.Model.Reference != "" {
		if err := checkModel(local.Model.Reference); err != nil {
			return local, err
		}
	}
	return local, checkMemory(c, *config, split)
}

// A training is a run that is about to begin, with all that it needs.
type training struct {
	config, local rl.Config // as the run folder has it, and with paths in place of names
	ctx           context.Context
	stopped       func() os.Signal
	trainer       *rl.Trainer
	log           *cli.LogFile
	feed          *sinkFeed // nil on all ranks but the first
	finishReport  func()
	closers       []func() error
}

// runTraining trains one configuration to its end, or until a signal.
func runTraining(c *cobra.Command, t team, config rl.Config, resume bool) (rl.Summary, error) {
	dir, err := t.Tell([]byte(config.Output.Dir)) // a new name has the time in it
	if err != nil {
		return rl.Summary{}, err
	}
	config.Output.Dir = string(dir)
	x := &training{config: config}
	defer x.close()
	if err := t.inTurn(func() error { return x.open(c, t, resume) }); err != nil {
		return rl.Summary{}, err
	}
	end, err := x.trainer.Run(x.ctx, resume)
	if t.First() {
		x.finishReport()
		x.feed.finish(summarize(end), err)
	}
	s := x.stopped()
	if s == nil && t.world != nil {
		s = syscall.SIGTERM // came to another rank
	}
	if s != nil && errors.Is(err, context.Canceled) {
		return end, cli.Interrupted{Signal: s, Next: "to continue from the last checkpoint: onering train --resume --out " + config.Output.Dir}
	}
	return end, err
}

// open opens everything that the run needs, and begins its folder on the first rank.
func (x *training) open(c *cobra.Command, t team, resume bool) (err error) {
	if x.local, err = checkRun(c, &x.config, t.split(), resume || !t.First()); err != nil {
		return err
	}
	var stop func()
	x.ctx, x.stopped, stop = cli.CatchSignals(c.Context())
	x.closers = append(x.closers, func() error { stop(); return nil })

	profile, endProfile, err := startProfile(c)
	if err != nil {
		return err
	}
	x.closers = append(x.closers, func() error { endProfile(); return nil })
	where := x.config.Runtime
	t.place(&where)
	options := where.Options()
	options.Profile = profile
	env, err := openRuntime(c, options, x.config.Model.DType)
	if err != nil {
		return err
	}
	x.closers = append(x.closers, env.Close)
	policy, err := rl.OpenPolicy(env, x.local, x.config.Model.Path, sharedBase(c))
	if err != nil {
		return err
	}
	x.closers = append(x.closers, func() error { policy.Close(); return nil })
	announceAdapter(policy, x.config.Optimizer.LearningRate)
	if !t.First() {
		return x.newTrainer(t, env, policy, unobserved{})
	}
	return x.openFirst(c, t, env, policy, resume)
}

// openFirst is the end of open on the rank that writes and prints.
func (x *training) openFirst(c *cobra.Command, t team, env *runtime.Env, policy *policy.Policy, resume bool) error {
	// rl.New finds everything that is wrong before the folder is made.
	x.log = new(cli.LogFile)
	leave := x.log.Join()
	x.closers = append(x.closers, func() error { leave(); return nil })
	watch := &watcher{stderr: c.ErrOrStderr(), quiet: isQuiet(c), rounds: x.config.Train.Rounds, log: x.log}
	x.closers = append(x.closers, func() error { watch.close(); return nil })
	observer, finishReport, closeStatus, err := addObservers(c, watch, x.config.Output.Dir, x.config.Train.Rounds)
	if err != nil {
		return err
	}
	x.finishReport = finishReport
	x.closers = append(x.closers, func() error { closeStatus(); return nil })
	if x.feed, err = newSinkFeed(x.config.Output.Sink, observer); err != nil {
		return err
	}
	if err := x.newTrainer(t, env, policy, x.feed); err != nil {
		return err
	}
	begin := func() error { return beginRun(x.config.Output.Dir, &x.config, x.log, x.feed) }
	if resume {
		// Until the run is resumed, its folder keeps its run.toml.
		x.trainer.Resumed = begin
		return nil
	}
	return begin()
}

func (x *training) newTrainer(t team, env *runtime.Env, policy *policy.Policy, observer rl.Observer) (err error) {
	if x.trainer, err = rl.NewOn(x.ctx, t.Group, x.local, env, policy, slog.Default(), observer); err != nil {
		return err
	}
	x.closers = append(x.closers, func() error { x.trainer.Close(); return nil })
	return nil
}

// close closes what was opened, the last first.
func (x *training) close() {
	for _, f := range slices.Backward(x.closers) {
		if err := f(); err != nil {
			slog.Warn("closing", "reason", err)
		}
	}
}

// baseFlag is the hidden flag with which sweep hands the weights of a model to runs that
// train adapters of it.
const baseFlag = "base-fd"

// registerLoRA adds the flags for training an adapter.
func (f *configFlags) registerLoRA(c *cobra.Command) {
	c.Flags().BoolVar(&f.lora, "lora", false, "train a LoRA adapter, as --set lora.on=true does")
	c.Flags().Int(baseFlag, 0, "descriptor of a file that sweep has made of the model's weights")
	must(c.Flags().MarkHidden(baseFlag))
}

// sharedBase is the file that the flag names; nil without it.
func sharedBase(c *cobra.Command) *os.File {
	if fd, _ := c.Flags().GetInt(baseFlag); fd > 2 {
		return os.NewFile(uintptr(fd), "shared base")
	}
	return nil
}

// announceAdapter logs what is trained beside a model, if anything is.
func announceAdapter(policy *policy.Policy, rate float64) {
	if a := policy.Adapter; a != nil {
		slog.Info("training a LoRA adapter; the learning rate's default is ten times that of full training", "rank", a.Rank, "scale", a.Scale,
			"parameters", policy.Ring.Adapter.Parameters(), "learning_rate", rate)
	}
}

// beginRun writes what a run folder begins with, config as run.toml, and starts what
// observes the run.
func beginRun(dir string, config any, log *cli.LogFile, feed *sinkFeed) error {
	text, err := encodeConfig(config)
	if err != nil {
		return err
	}
	if err := writeRun(dir, text); err != nil {
		return err
	}
	if err := log.Open(filepath.Join(dir, "log.txt")); err != nil {
		return err
	}
	return feed.start(dir, text, slog.Default())
}

// addObservers returns watch with the observers that the flags ask for: one that
// keeps the report up to date, which finish writes a last time, and one that
// serves the status until closeStatus.
func addObservers(c *cobra.Command, watch rl.Observer, dir string, rounds int) (observer rl.Observer, finish, closeStatus func(), err error) {
	observer, finish, closeStatus = watch, func() {}, func() {}
	if on, _ := c.Flags().GetBool("report"); on {
		reporter := live.NewReporter(dir, observer)
		observer, finish = reporter, reporter.Finish
	}
	if addr, _ := c.Flags().GetString("status-addr"); addr != "" {
		status, err := startStatus(addr, rounds, observer)
		if err != nil {
			return nil, nil, nil, err
		}
		observer, closeStatus = status, status.Close
	}
	return observer, finish, closeStatus, nil
}

// startStatus serves the status of a run at the address of --status-addr.
func startStatus(addr string, rounds int, next rl.Observer) (*serve.Status, error) {
	address, err := serve.Address(addr)
	if err != nil {
		return nil, usagef("--status-addr %q: write localhost:PORT", addr)
	}
	status, err := serve.Start(address, rounds, next)
	if err != nil {
		return nil, fmt.Errorf("--status-addr %s: %w", addr, err)
	}
	return status, nil
}

// checkVacant returns an error unless dir does not exist or is empty.
func checkVacant(dir, remedy string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return cli.Unreadable("the folder", dir, err, "choose another with --out")
	}
	// A process that was killed early leaves hidden files.
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return files.Temporary(e.Name()) })
	if len(entries) > 0 {
		return usagef("%s is not empty: %s", dir, remedy)
	}
	return nil
}

// writeRun makes the run folder and writes run.toml.
func writeRun(dir string, text []byte) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("the run folder: %w; choose another with --out", err)
	}
	return files.WriteFile(filepath.Join(dir, "run.toml"), files.Content(text))
}
