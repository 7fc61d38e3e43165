// Package train is the life of a run: what every task of training has in common.
package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"onering/internal/settings"
	"onering/models/lora"
	"onering/policy"
	"onering/train/doctor"
	"onering/train/metrics"
	"onering/train/ranks"
	"onering/train/rundir"
)

// A Plan is what a Run needs to know about its Task before it begins.
type Plan struct {
	Output     string // where the run folder goes
	Saving     Saving
	Stopping   Stopping
	CheckEvery int // steps between two comparisons of the ranks' weights; 0 is never

	// Objective names the task, or the objective of it, and Settings are all settings that
	// decide the course of the run, by key. A run is resumed with the same Objective.
	Objective string
	Settings  map[string]string
	// Former are the values that checkpoints had of settings that they do not state.
	Former map[string]string
	// Names are the names of settings in run files, where they are not their keys.
	Names map[string]string
	// Facts are what is known of the run before it begins, for its warnings.
	Facts doctor.Facts
	// Others are further settings that must be equal on all ranks.
	Others map[string]string
	// Problems is a digest of the training data, Things a word for them, and Changed the
	// message if a checkpoint has another digest.
	Problems, Things, Changed string
}

// Values returns the settings of the configuration that config points to, by key: of all
// sections, or of the named ones.
func Values(config any, sections ...string) map[string]string {
	values := make(map[string]string)
	for _, s := range settings.Sections(config) {
		if len(sections) > 0 && !slices.Contains(sections, s.Name) {
			continue
		}
		for _, f := range s.Fields {
			values[s.Name+"."+f.Key] = fmt.Sprint(f.Value)
		}
	}
	return values
}

// A Checkpoint is the state from which a run is resumed.
type Checkpoint struct {
	Dir     string
	State   rundir.State
	Round   *rundir.Round // the round in progress, or nil
	Changed changes       // settings that changed since it was written
}

// A change is a setting whose value was another one when a checkpoint was written.
// Different problems are a change of data.train, even if the file's name is the same.
type change struct{ Key, Text string }

type changes []change

// String puts the changes into one sentence.
func (c changes) String() string {
	var texts []string
	for _, x := range c {
		texts = append(texts, x.Text)
	}
	return strings.Join(texts, "; ")
}

// Changes lists the settings that differ from their earlier values, sorted by key.
func (p Plan) Changes(was map[string]string) (changed changes) {
	for _, key := range slices.Sorted(maps.Keys(p.Settings)) {
		before, known := was[key]
		if !known {
			before, known = p.Former[key]
		}
		if known && written(before) != written(p.Settings[key]) {
			changed = append(changed, change{key, fmt.Sprintf("%s was %s and is %s", cmp.Or(p.Names[key], key), before, p.Settings[key])})
		}
	}
	return changed
}

// written returns a number that is no whole one as a person writes it: earlier versions kept
// 9.999999999999999e-06 for ten times 1e-6, which is 1e-05.
func written(value string) string {
	if x, err := strconv.ParseFloat(value, 64); err == nil && strings.ContainsAny(value, ".e") {
		return fmt.Sprintf("%.15g", x)
	}
	return value
}

// Folder returns the run folder dir for reading the files of a run. It opens nothing, and
// methods that need a run in progress do not work on it.
func Folder(dir string) *rundir.Folder { return &rundir.Folder{Dir: dir} }

// open opens the folder of the run on the first rank, checks that all ranks have the same, and with resume restores
// the run from the newest checkpoint. It sets r.Folder, r.saver, r.at and r.configChanged.
func (r *Run) open(resume bool) error {
	if err := r.together(func() (err error) {
		if r.Ranks.First() {
			r.Folder, err = rundir.Open(r.plan.Output, resume)
		}
		return err
	}, r.checkSame); err != nil {
		return err
	}
	r.saver = newSaver(r, r.Folder, r.plan.Saving)
	if !resume {
		return nil
	}
	from, err := ranks.FromFirst(r.Ranks, func() (Checkpoint, error) { return newest(r.Folder, r.Log) })
	if err != nil {
		return err
	}
	if from.Dir == "" {
		level := slog.LevelInfo
		if info, err := os.Stat(filepath.Join(r.plan.Output, "metrics.jsonl")); err == nil && info.Size() > 0 {
			level = slog.LevelWarn // what the run had written is replaced
		}
		r.Log.Log(context.Background(), level, "there is no checkpoint: the run begins again at its first step", "folder", r.plan.Output)
	} else if err := r.together(func() error { return r.restore(from) }, func() error {
		same := r.plan.Settings["train.micro_tokens"] == from.State.Settings["train.micro_tokens"]
		return r.Learned.restore(from, same)
	}); err != nil {
		return err
	}
	if err := r.together(func() error { return r.take(from) }); err != nil {
		return err
	}
	// Whether the run goes on with another run.toml is not told within take: a rank whose take fails does not come here.
	changed, err := ranks.Tell(r.Ranks, r.Folder.Reconfigured())
	if r.configChanged = changed && from.Dir != ""; r.configChanged {
		r.saver.saved = neverSaved // so that the end is saved again, with the new run.toml
	}
	return err
}

// checkSame returns an error unless all ranks have the same program, settings, problems and
// model. Then it links the ranks' devices, if there is a link, and logs how they train together.
func (r *Run) checkSame() error {
	if r.Ranks.Size() == 1 {
		return nil
	}
	program := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		program = info.String()
	}
	values := maps.Clone(r.plan.Settings)
	maps.Copy(values, r.plan.Others)
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, key+" = "+values[key])
	}
	for _, x := range [][2]string{
		{"program", program}, {"configuration", strings.Join(lines, "\n")}, {"version of ONNX Runtime", r.Policy.Env.Version()},
		{"set of " + r.plan.Things, r.plan.Problems}, {"model", r.model},
	} {
		if err := r.Ranks.Same(x[0], x[1]); err != nil {
			return err
		}
	}
	how, err := r.Ranks.Link(r.Policy.Env, r.plan.Others["distributed.transport"])
	if err != nil {
		return err
	}
	r.Log.Info("ranks train together", "ranks", r.Ranks.Size(), "transport", how, "shard", r.plan.Others["distributed.shard"],
		"bytes_sent_per_step", r.predicted(), "parameters", r.Policy.Ring.Trained().Parameters())
	return nil
}

// restore restores the position, the score, the warnings and the task's state from a checkpoint, unless that belongs to
// another run; Learned.restore follows for weights and optimizer. It logs which settings have changed.
func (r *Run) restore(from Checkpoint) error {
	s := from.State
	if s.Objective != r.plan.Objective {
		return fmt.Errorf("train: resume: %s was trained with objective %q, not %q", from.Dir, s.Objective, r.plan.Objective)
	}
	if err := r.Policy.CheckBase(s.Base, from.Dir); err != nil {
		return err
	}
	from.Changed = r.plan.Changes(s.Settings)
	if s.Problems != r.plan.Problems {
		from.Changed = append(from.Changed, change{"data.train", r.plan.Changed})
	}
	if err := r.task.Restore(from); err != nil {
		return err
	}
	if len(from.Changed) > 0 {
		r.Log.Warn("settings have changed: the run will differ from one that was never stopped", "changed", from.Changed.String())
	}
	if err := r.doctor.Restore(s.Alarms); err != nil {
		return fmt.Errorf("train: resume: %s: %w", from.Dir, err)
	}
	r.at, r.score = positionOf(s), s.Score
	r.saver.saved = r.at
	return nil
}

// take restores the folder to its state at a checkpoint (without one it empties metrics.jsonl), calls Setup.Resumed, and
// shows the records that are left to the stop rule and the task.
func (r *Run) take(from Checkpoint) error {
	if err := r.Folder.Rewind(from.State, r.Log); err != nil { // on other ranks than the first Folder is nil and does nothing
		return err
	}
	if from.Dir != "" {
		place := []any{"checkpoint", from.Dir}
		if r.at.Round > 0 || r.at.Inside {
			place = append(place, "round", r.at.Round)
		}
		r.Log.Info("resuming", append(place, "step", r.at.Step)...)
	}
	if r.onResumed != nil {
		if err := errors.Join(r.onResumed(), r.Folder.ReadConfig()); err != nil { // onResumed may have written run.toml
			return err
		}
	}
	return r.Folder.Records(func(fields map[string]any) {
		record := metrics.RecordOf(fields)
		r.stop.see(record)
		r.task.Recall(record)
	})
}

// A LoRAConfig says whether an adapter is trained in place of the weights, and which.
type LoRAConfig struct {
	On bool `toml:"on" flag:"lora" help:"train a LoRA adapter in place of the weights; without a learning rate of its own, a run then has ten times the default one, at most 0.01"`
	// Adapter, if not empty, is the adapter that a run continues in place of a new one.
	Adapter string `toml:"adapter" flag:"lora-adapter" complete:"dir" help:"folder of an adapter to go on with in place of a new one, as PEFT and onering write it, or a run folder for its newest checkpoint; rank, alpha and targets are then its own. A model.path that is a run with an adapter means the run's model and this adapter" note:"KL then compares with the adapter as it was"`
	lora.Settings
	BaseDType string `toml:"base_dtype" flag:"base-dtype" needs:"-" choice:"float32 bfloat16 float16 int8 nf4" help:"type that the matrices of the model's layers are held in where they are not trained: beside an adapter, and with the head's to sample, chat, serve and evaluate; they are rounded to it, and widened as products read them; int8 has a scale for every 32 numbers of a row, and nf4 16 numbers and a scale for every 64" note:"types other than float32 are for the CPU, with model.dtype float32 or bfloat16; model.base_dtype is another name of the setting"`
}

// Trainable reports whether what a run trains is held in float32; NotTrainable says what to do.
func (c LoRAConfig) Trainable() bool { return c.BaseDType == "float32" || c.On }

// NotTrainable is the remedy of lora.base_dtype where nothing is Trainable.
const NotTrainable = "is for an adapter (lora.on): weights in fewer bits are not trained"

// Defaults are the settings of a run without an adapter, alone on a CPU.
func Defaults() (LoRAConfig, policy.RuntimeConfig, DistributedConfig) {
	return LoRAConfig{Settings: lora.Default(), BaseDType: "float32"}, policy.RuntimeConfig{Device: "cpu"},
		DistributedConfig{Shard: "none", Transport: "auto", CheckEvery: 100, Timeout: 60}
}

// A DistributedConfig says how several ranks train together.
type DistributedConfig struct {
	Shard      string  `toml:"shard" choice:"none optimizer" note:"optimizer has each rank keep its part of the moments, and of the float32 weights where layers compute in 16 bits, and update that part; it changes no bit" help:"what the ranks divide among them"`
	Transport  string  `toml:"transport" choice:"auto mpi nccl" note:"auto is nccl where each rank computes on a CUDA device of its own and NCCL 2 is found, and else mpi; the log says which, and why not; it changes no bit" help:"what brings gradients and weights from rank to rank: MPI through the host's memory, or NCCL from GPU to GPU"`
	CheckEvery int     `toml:"check_every" range:"[0,1000000000]" note:"0 is never" help:"optimizer steps between two comparisons of all ranks' weights"`
	Timeout    float64 `toml:"timeout" range:"[1,86400]" help:"seconds without a sign of life after which a rank is taken for dead"`
}
