package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/internal/files"
	"onering/internal/settings"
	"onering/models"
	"onering/policy"
	"onering/report"
	"onering/runs"
	"onering/serve"
	"onering/train"
	"onering/train/metrics"
	"onering/train/ranks"
	"onering/train/rl"
)

// A runOptions has the flags of every run that are not settings.
type runOptions struct {
	Resume     bool   `help:"continue the run in --out from its last checkpoint"`
	JSON       bool   `help:"print the summary as one JSON object"`
	StatusAddr string `help:"serve health, Prometheus metrics and profiles at this address, such as localhost:9090"`
	Report     bool   `help:"keep report.html and tensorboard/ in the run folder up to date"`
}

// A job is what train, sft and dpo hand to runTraining; S is the type of a run's summary.
type job[S any] struct {
	runOptions
	command   string        // the command that continues the run
	dir       *string       // the run folder; runTraining sets it to that of the first rank
	sink      []string      // output.sink: a program that receives the figures of the run
	showEvery int           // rounds between two responses that are shown; 0 shows none
	pushing   train.Pushing // where checkpoints go
	profile   string        // the folder of --profile
	baseFD    int           // the descriptor of --base-fd; 0 without it
	rounds    int           // the number of rounds; 0 if the run has none
	// prepare checks and reads what the run needs before ONNX Runtime is opened, and says which model is trained.
	prepare   func() (trainedModel, error)
	config    any                                   // the configuration that run.toml states, as prepare leaves it
	open      func(train.Setup) (trainer[S], error) // opens the run itself, with the model in the Setup
	beforeRun func(ctx context.Context) error       // comes between open and the run; may be nil
}

// A trainer is an opened run.
type trainer[S any] interface {
	Run(ctx context.Context, resume bool) (S, error)
	Close()
}

// trainedModel says which model a run trains, and how it is opened.
type trainedModel struct {
	path, name, dtype string // its folder, its name in the adapter's files, and model.dtype
	lora              train.LoRAConfig
	runtime           policy.RuntimeConfig
	rate              float64 // the learning rate, for messages
	seed              int64   // of a new adapter's weights
}

// A training is a run that is about to begin, with everything that it needs.
type training[S any] struct {
	job[S]
	ctx          context.Context
	caughtSignal func() os.Signal
	trainer      trainer[S]
	live         report.Live
	pusher       *train.Pusher // nil if no checkpoint is pushed
	closers      []func()
}

// runTraining carries out a job on all ranks until its end or a signal: it opens everything, trains, and shows and
// pushes the result on the first rank. After a signal its error is a cli.Interrupted that says how to continue.
func runTraining[S any](c *cobra.Command, t *ranks.Group, j job[S]) (end S, err error) {
	if *j.dir, err = ranks.Tell(t, *j.dir); err != nil { // the first rank's name counts, as a new name contains the time
		return end, err
	}
	x := &training[S]{job: j}
	defer x.close()
	if err := t.InTurn(func() error { return x.start(c, t) }); err != nil {
		return end, err
	}
	if j.beforeRun != nil {
		err = j.beforeRun(x.ctx)
	}
	if err == nil {
		end, err = x.trainer.Run(x.ctx, j.Resume)
	}
	if t.First() {
		x.live.Finish(end, err)
		if err == nil && x.pusher != nil {
			err = finishPushing(x.pusher, *j.dir)
		}
	}
	caught := x.caughtSignal()
	if launcher, _ := ranks.Launcher(); caught == nil && launcher != "" {
		caught = syscall.SIGTERM // if the run was canceled, the signal came to another rank
	}
	if caught != nil && errors.Is(err, context.Canceled) {
		next := "to continue from the last checkpoint: "
		if saved, _ := os.ReadDir(filepath.Join(*j.dir, "checkpoints")); len(saved) == 0 {
			next = "there is no checkpoint yet, and what the first round had sampled is lost; to begin again with the same settings: "
		}
		return end, cli.Interrupted{Signal: caught, Next: next + "onering " + j.command + " --resume --out " + cli.ShellQuoted(cli.Nearest(*j.dir))}
	}
	return end, err
}

// close closes what the run has opened, the last first.
func (x *training[S]) close() {
	for _, f := range slices.Backward(x.closers) {
		f()
	}
}

// start opens everything that the run needs, and on the first rank begins its folder: at once for a new run, and for
// a resumed one when its folder is found to belong to it.
func (x *training[S]) start(c *cobra.Command, t *ranks.Group) error {
	if t.First() && !x.Resume {
		if err := checkVacant(*x.dir, toContinue); err != nil {
			return err
		}
	}
	model, err := x.prepare()
	if err != nil {
		return err
	}
	var stop func()
	x.ctx, x.caughtSignal, stop = cli.CatchSignals(c.Context())
	x.closers = append(x.closers, stop)
	s := train.Setup{Ranks: t, Observer: &x.live}
	if t.First() {
		options, _ := hubOptions(c)
		if x.pusher, err = newPusher(x.ctx, x.pushing, options); err != nil {
			return err
		}
		if x.pusher != nil { // a nil *Pusher would be a Follower that is not nil
			s.Follower = x.pusher
		}
	}
	if change, ok := c.Context().Value(setupKey{}).(func(*train.Setup)); ok { // from replayStep
		change(&s)
	}
	if err := x.openModel(c, t, model, &s); err != nil {
		return err
	}
	nothing := func() error { return nil }
	begin := nothing
	if t.First() {
		// Opening the trainer finds all errors before the folder is made.
		if err := x.observe(c); err != nil {
			return err
		}
		begin = x.begin
	}
	if x.Resume {
		s.Resumed, begin = begin, nothing // until the run is resumed, its folder keeps its own run.toml
	}
	s.Log = slog.Default()
	if x.trainer, err = x.open(s); err != nil {
		return err
	}
	x.closers = append(x.closers, x.trainer.Close)
	return begin()
}

// openModel opens ONNX Runtime, with --profile traced, and the model that is trained, for s. x.close closes them.
func (x *training[S]) openModel(c *cobra.Command, t *ranks.Group, m trainedModel, s *train.Setup) error {
	profile, endProfile, err := startProfile(c, x.profile)
	if err != nil {
		return err
	}
	x.closers = append(x.closers, endProfile)
	t.Place(&m.runtime.Device, &m.runtime.Threads) // this rank's device, and its share of the host's cores
	options := m.runtime.Options()
	options.Profile = profile
	env, err := openRuntime(c, options, m.dtype)
	if err != nil {
		return err
	}
	x.closers = append(x.closers, func() {
		if err := env.Close(); err != nil {
			slog.Warn("closing", "reason", err)
		}
	})
	var base *os.File
	if x.baseFD > 2 { // 0 to 2 are the standard streams
		base = os.NewFile(uintptr(x.baseFD), "shared base")
	}
	if s.Policy, err = train.OpenPolicy(env, m.path, m.dtype, m.lora, m.name, m.seed, base); err != nil {
		return err
	}
	x.closers = append(x.closers, s.Policy.Close)
	announceAdapter(s.Policy, m.rate)
	return nil
}

// observe opens the observers that the flags ask for: the terminal, the report and the status server. It checks the
// program of output.sink. Only begin, once the folder is made, starts that program and log.txt.
func (x *training[S]) observe(c *cobra.Command) error {
	x.live.Watch(c.ErrOrStderr(), isQuiet(c)) // it also keeps log messages until begin opens log.txt
	x.closers = append(x.closers, x.live.Close)
	x.live.ShowSamples(x.showEvery)
	if x.Report {
		x.live.KeepPage(*x.dir)
	}
	if addr := x.StatusAddr; addr != "" {
		address, err := serve.Address(addr)
		if err != nil {
			return usagef("--status-addr %q: write localhost:PORT", addr)
		}
		status, err := serve.Start(address, x.rounds)
		if err != nil {
			return fmt.Errorf("--status-addr %s: %w", addr, err)
		}
		x.live.Observers = append(x.live.Observers, status)
		x.closers = append(x.closers, status.Close)
	}
	return checkSink(x.sink)
}

// checkSink returns an error if the program of output.sink is missing.
func checkSink(sink []string) error {
	if len(sink) > 0 {
		if _, err := exec.LookPath(sink[0]); err != nil {
			return usagef("output.sink: %v; name a program that is there, or leave output.sink out", err)
		}
	}
	return nil
}

// begin makes the run folder, writes run.toml into it, and starts the observers that write there.
func (x *training[S]) begin() error {
	dir := *x.dir
	text, err := encodeConfig(x.config)
	if err != nil {
		return err
	}
	if err := files.MakeFolder(dir); err != nil {
		return fmt.Errorf("the run folder: %w; choose another with --out", err)
	}
	if err := files.WriteFile(filepath.Join(dir, "run.toml"), files.Content(text)); err != nil {
		return err
	}
	return x.live.Start(dir, x.sink, text)
}

// baseFlag is the hidden flag with which sweep passes the weights of a model to runs that train adapters to it.
const baseFlag = "base-fd"

// announceAdapter logs which adapter is trained beside a model, if one is.
func announceAdapter(policy *policy.Policy, rate float64) {
	if a := policy.Adapter; a != nil {
		slog.Info("training a LoRA adapter", "rank", a.Rank, "scale", a.Scale,
			"parameters", policy.Ring.Adapter.Parameters(), "learning_rate", rate)
	}
}

// toContinue is what to do where the folder of a new run is not empty.
const toContinue = "continue the run in it with --resume, or choose another folder with --out"

// checkVacant returns an error if dir exists and is not empty. remedy says in the error what to do then.
func checkVacant(dir, remedy string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return cli.Unreadable("the folder", dir, err, "choose another with --out")
	}
	// a process that was killed early leaves hidden files behind
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return files.Temporary(e.Name()) })
	if len(entries) > 0 {
		return usagef("%s is not empty: %s", dir, remedy)
	}
	return nil
}

// startProfile begins a CPU profile in the folder of --profile. It returns the prefix of the files for ONNX Runtime's
// traces, and a function that ends the profile. Where dir is "", without the flag, both are empty.
func startProfile(c *cobra.Command, dir string) (prefix string, stop func(), err error) {
	if dir == "" {
		return "", func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", nil, cli.Unreadable("--profile", dir, err, "name a folder")
	}
	file := filepath.Join(dir, "cpu.pprof")
	if err := checkOutput(c, "profile", file); err != nil {
		return "", nil, err
	}
	f, err := os.Create(file)
	if err != nil {
		return "", nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return "", nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	stop = func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			slog.Warn("the profile is incomplete", "error", err)
		}
	}
	return filepath.Join(dir, "onnxruntime"), stop, nil
}

// smallName is the name of the recipe small in messages.
const smallName = "the recipe small"

// small returns the settings of the recipe small.
func small() (settings.Source, error) { return settings.File(smallName, runs.Small) }

// fitRecipe fits the sizes that the recipe small states and the user does not to this machine, and logs them.
func (r *resolved) fitRecipe(c *cobra.Command, split rl.Split) error {
	if r.recipe != "small" {
		return nil
	}
	config, _, model, err := foreseen(c, r.Config)
	if err != nil {
		return err
	}
	stated := r.Runtime.Device
	r.Runtime.Device = config.Runtime.Device // Fit has to know the device, and run.toml states auto
	set, err := r.Config.Fit(model, split, func(key string) bool {
		place := r.Decided(key).Place // of the source that states the setting; "" if none does
		return place == "" || strings.HasPrefix(place, smallName)
	})
	r.Runtime.Device = stated
	if len(set) > 0 {
		slog.Info(smallName+" is fitted to this machine", "settings", strings.Join(set, ", "))
	}
	return err
}

// longRound is how many seconds a round takes at least for which it is said how long it takes.
const longRound = 120

// sayTime logs how long a round and the run will take here if seconds, those of a round, are many or the sizes are
// those of the paper, and whether --recipe small would be much faster. 0 seconds are unknown.
func sayTime(config rl.Config, model models.Model, split rl.Split, seconds float64) {
	paper := rl.Default().Rollout
	ofPaper := config.Rollout.PromptsPerRound >= paper.PromptsPerRound && config.Rollout.MaxNewTokens >= paper.MaxNewTokens
	if seconds == 0 || seconds < longRound && !ofPaper {
		return
	}
	text := fmt.Sprintf("a round is %s: about %s here, and the %d rounds of the run about %s", sizes(config), metrics.About(seconds),
		config.Train.Rounds, metrics.About(seconds*float64(config.Train.Rounds)))
	if recipe, err := small(); err == nil {
		less := config // with the sizes of the recipe, fitted to this machine
		noSize := func(s settings.Setting) bool { return s.Section != "rollout" && s.Section != "train" }
		_, err = settings.Resolve(&less, settings.Command{}, slices.DeleteFunc(recipe, noSize))
		if err == nil {
			_, err = less.Fit(model, split, func(string) bool { return true })
		}
		if lessTime := less.RoundSeconds(model, split, nil); err == nil && lessTime < seconds/2 { // nil: by no plan of a GPU
			text += fmt.Sprintf("; --recipe small is meant for such a machine: %s, about %s a round", sizes(less), metrics.About(lessTime))
		}
	}
	slog.Info(text)
}

// sizes says how large a round is.
func sizes(c rl.Config) string {
	return fmt.Sprintf("%d responses of up to %d tokens", c.Rollout.PromptsPerRound*c.Rollout.SamplesPerPrompt, c.Rollout.MaxNewTokens)
}
