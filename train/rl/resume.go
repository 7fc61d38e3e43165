package rl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"onering/data"
	"onering/internal/settings"
	"onering/reward"
	"onering/train"
	"onering/train/rundir"
)

// Plan implements train.Task: it states which settings decide the run, what it saves, and when it stops. The data of
// streams decide it by their digest, which takes the place of their path.
func (t *trainer) Plan() train.Plan {
	c, decides := t.Config, decisive(t.Config)
	for _, s := range t.learner.streams {
		if s.Data != "" {
			decides["stream."+s.Name+".data"] = s.Digest
		}
	}
	return train.Plan{
		Output: c.Output.Dir, CheckEvery: c.Distributed.CheckEvery,
		Saving: train.Saving{Rounds: c.Train.SaveEvery, Steps: c.Train.SaveSteps, Minutes: c.Train.SaveMinutes,
			KeepLast: c.Train.KeepLast, KeepBest: c.Train.KeepBest},
		Stopping:  c.Train.Stopping,
		Objective: c.Objective.Name, Settings: decides, Former: formerValues(), Names: objectiveKeys(c),
		Others: train.Values(&c, "train", "eval", "distributed", "optimizer"),
		Facts:  t.facts(), Problems: t.roller.digest, Things: "problems", Changed: "data.train has other problems",
	}
}

// CheckData returns an error unless the training problems, as prompter p makes them, are those of a checkpoint.
func (c Config) CheckData(checkpoint string, p *data.Prompter, log *slog.Logger) error {
	state, err := rundir.ReadState(checkpoint)
	if err != nil {
		return err
	}
	problems, err := openTraining(c, p, log)
	if err == nil && problems.Digest() != state.Problems {
		err = errors.New("train: data.train has other problems than the run was trained on")
	}
	return err
}

// formerValues returns the values of settings that checkpoints of older versions lack: the defaults.
func formerValues() map[string]string {
	c := Default()
	c.Objective.Settings, c.Reward.Rule = nil, nil // the run may have another objective and reward
	values := decisive(c)
	values["reward.extract"] = "auto" // in checkpoints from before it was a setting
	return values
}

// Renew gives the settings in the run.toml of an earlier version the keys and values of today: what the host keeps was
// two switches (optimizer.offload, and for weights too optimizer.offload_weights), gradients could be summed in 16
// bits, and passes could keep a part of each layer.
func Renew(run settings.Source) (now settings.Source) {
	offload := map[bool]string{false: "none", true: "moments"} // by the value of optimizer.offload
	if settings.Find("optimizer.offload_weights", run).Value == true {
		offload = map[bool]string{false: "all", true: "all"}
	}
	for _, s := range run {
		if s.Path() == "optimizer.gradients" && s.Value != "float32" {
			slog.Warn("gradients are summed in float32 from here on, which takes more memory and gives other bits",
				"setting", s.Path(), "was", s.Value, "place", s.Place)
		}
		if s.Path() == "train.stash" && s.Value != "inputs" {
			s.Value = "auto"
		}
		if on, ok := s.Value.(bool); ok && s.Path() == "optimizer.offload" {
			s.Value = offload[on]
		}
		if s.Path() != "optimizer.gradients" && s.Path() != "optimizer.offload_weights" { // these keys are no more
			now = append(now, s)
		}
	}
	return now
}

// decisive returns the settings that decide the course of a run, by key: all except those
// for its length, for saving, and for places of files. The objective's are by the names of its fields.
func decisive(c Config) map[string]string {
	values := train.Values(&c)
	if several, ok := c.Reward.Rule.(*reward.Combined); ok { // reward.name is empty then
		var names []string
		for _, p := range several.Parts {
			names = append(names, p.As)
		}
		values["reward.name"] = strings.Join(names, " + ")
	}
	for _, key := range []string{
		"model.path", "data.train", "runtime.library", "optimizer.offload", "train.stash", "train.rounds", "train.stop_when", "train.stop_after",
		"train.save_every", "train.save_steps", "train.save_minutes",
		"train.keep_last", "train.keep_best", "train.eval_every", "train.on_nonfinite", "train.skip_limit",
	} {
		if key != "train.rounds" || c.Data.Curriculum == "" { // a curriculum is spread over the rounds
			delete(values, key)
		}
	}
	for _, key := range []string{"step_seconds", "episode_seconds", "at_once"} {
		delete(values, "environment."+key)
	}
	// Waiting for a grader does not change its answers. The objective's settings follow in another form: as their
	// values are, and not as the run file states them.
	maps.DeleteFunc(values, func(key, _ string) bool {
		names := strings.Split(key, ".") // the section's, and the last is the setting's
		return slices.Contains([]string{"objective", "eval", "distributed", "output"}, names[0]) || names[0] == "reward" &&
			slices.Contains([]string{"timeout", "retries", "workers", "in_flight", "concurrency", "token_env"}, names[len(names)-1])
	})
	if v := reflect.ValueOf(c.Objective.Settings); v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct {
		eachField(v.Elem(), func(f reflect.StructField, v reflect.Value) {
			if text, err := json.Marshal(v.Interface()); err == nil {
				values["objective."+f.Name] = string(text)
			}
		})
	}
	return values
}

// objectiveKeys are the keys of an objective's settings in a run file, by those in checkpoints.
func objectiveKeys(c Config) map[string]string {
	keys := map[string]string{}
	if v := reflect.ValueOf(c.Objective.Settings); v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct {
		eachField(v.Elem(), func(f reflect.StructField, _ reflect.Value) {
			keys["objective."+f.Name] = "objective." + cmp.Or(f.Tag.Get("toml"), f.Name)
		})
	}
	return keys
}

// gradingSettings returns the settings that decide the answers of the run's environment
// and the scores of its reward, as one text.
func gradingSettings(c Config) string {
	values := decisive(c)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if strings.HasPrefix(key, "reward.") || strings.HasPrefix(key, "environment.") && c.Environment.Name != "single" {
			fmt.Fprintf(&b, "%s=%s\n", key, values[key])
		}
	}
	return b.String()
}

// Describe states the settings that decide the environment's answers, in a line; "" if responses are single turns.
func (c environmentConfig) Describe() string {
	if c.Name == "single" {
		return ""
	}
	run := Default() // decisive takes a whole Config
	run.Environment = c
	values := decisive(run)
	var list []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if name, own := strings.CutPrefix(key, "environment."); own {
			list = append(list, name+"="+values[key])
		}
	}
	return strings.Join(list, " ")
}

// Describe states the settings of a reward in a line; "" for the default reward, whatever its rule of
// extraction, which eval.Settings.Extract states.
func (c RewardConfig) Describe() string {
	text := func(c RewardConfig) string {
		run, list := Default(), []string(nil) // Sections takes a whole Config
		run.Reward = c
		for _, s := range settings.Sections(&run) {
			for _, f := range s.Fields {
				if section, ok := strings.CutPrefix(s.Name+".", "reward."); ok {
					list = append(list, fmt.Sprintf("%s%s=%v", section, f.Key, f.Value))
				}
			}
		}
		return strings.Join(list, " ")
	}
	usual := Default().Reward // with c's rule of extraction, so that this makes no difference
	if rule, err := reward.WithExtract(usual.Rule, reward.Extract(c.Rule)); err == nil {
		usual.Rule = rule
	}
	if s := text(c); s != text(usual) {
		return s
	}
	return ""
}

// eachField visits an objective's exported fields, one by one: the objective as a whole could encode as its state.
func eachField(v reflect.Value, visit func(f reflect.StructField, v reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			eachField(v.Field(i), visit)
		} else if f.IsExported() {
			visit(f, v.Field(i))
		}
	}
}

// roundsKey is a setting that checkpoints store beside the decisive ones, since schedules depend on it.
const roundsKey = "train.rounds"

// Restore implements train.Task: it refuses changes of settings that the checkpoint cannot bear, and takes up the order
// of problems, the learner, an unfinished round and the schedules. What was measured of other problems than the
// present ones is not taken up.
func (t *trainer) Restore(from train.Checkpoint) error {
	s, dir := from.State, from.Dir
	for _, c := range from.Changed {
		if t.run.Policy.Adapter != nil && (c.Key == "lora.rank" || c.Key == "lora.targets") {
			return fmt.Errorf("train: resume: %s holds an adapter, and since then %s: an adapter keeps its rank and its "+
				"modules; set it back, or begin a run in another folder", dir, c.Text)
		}
		if c.Key == "optimizer.name" {
			return fmt.Errorf("train: resume: %s holds the state of an optimizer, and since then %s: set it back, or begin a run in another folder", dir, c.Text)
		}
		if s.Inside && shapesRound(c.Key) {
			return fmt.Errorf("train: resume: %s lies inside round %d, and since then %s: that can change only between "+
				"two rounds; set it back, or remove this checkpoint to resume from the one before", dir, s.Round+1, c.Text)
		}
	}
	if s.Problems == t.roller.digest {
		if err := t.roller.problems.Restore(s.Order); err != nil {
			return fmt.Errorf("train: resume: %s: %w", dir, err)
		}
	}
	err := t.learner.restore(s, dir)
	if err == nil && s.Inside {
		t.round, err = t.restoredRound(from)
	}
	if err != nil {
		return err
	}
	return t.restoreClock(from)
}

// restoreClock takes up the place of the schedules. If the number of rounds has changed since the
// checkpoint, the schedules go on from the share that is done, and end with the new last round. A
// learning rate that has fallen to 0 allows no further training.
func (t *trainer) restoreClock(from train.Checkpoint) error {
	c, l, s := t.Config, t.learner, from.State
	l.clock.changedAt, l.clock.doneThen = s.ScheduleSince, s.ScheduleDone
	was, err := strconv.Atoi(s.Settings[roundsKey]) // older checkpoints lack it
	if err != nil || was == c.Train.Rounds {
		return nil
	}
	old := clock{rounds: was, changedAt: s.ScheduleSince, doneThen: s.ScheduleDone}
	done := old.done(s.Round, t.round)                                    // t.round is the round in progress, nil between rounds
	l.clock.changedAt, l.clock.doneThen = elapsed(s.Round, t.round), done // what is left is spread over the rounds left
	switch {
	case c.Optimizer.Shape == "constant":
		return nil
	case done == 1 && c.Optimizer.Floor == 0 && c.Train.Rounds > was:
		return fmt.Errorf("train: resume: the schedule of %s (optimizer.schedule = %q) came to its end, a learning "+
			"rate of 0, with round %d: further rounds would change nothing; give them a rate with optimizer.schedule = "+
			"\"constant\" or an optimizer.floor above 0, or begin a new run from the checkpoint with model.path", from.Dir, c.Optimizer.Shape, was)
	}
	t.log.Info("the number of rounds has changed: the learning rate goes on from where it was and reaches its end with the new last round",
		"rounds", c.Train.Rounds, "before", was)
	return nil
}

// shapesRound says whether a setting decides the contents of a round.
func shapesRound(key string) bool {
	return slices.Contains([]string{
		"data.train", "data.seed", "data.filter", "data.prompts", "data.curriculum", "data.rest", "train.rounds",
		"model.template", "model.system", "rollout.prompts_per_round", "rollout.samples_per_prompt",
		"rollout.old_logp", "train.batch_size", "train.epochs", "train.seed", "train.shuffle",
	}, key)
}

// A clock says how far the schedules of a run have come. They advance evenly over its
// rounds, or over the remaining ones after their number changed.
type clock struct {
	rounds    int
	steps     float64 // as many as the configuration says
	changedAt float64 // number of finished rounds when rounds was changed last; 0 if never
	doneThen  float64 // share of the schedules that was over then
}

// total estimates how many optimizer steps the run takes in all, from its rounds so far: an
// objective may drop groups, so that a round has fewer steps than the configuration says.
func (c clock) total(at train.Position, r *round) float64 {
	if done := c.done(at.Round, r); done > 0 && at.Step > 0 {
		return float64(at.Step) / done
	}
	return c.steps
}

// done returns the share of the schedules, from 0 to 1, that is over after so many rounds
// and the steps of r, which may be nil.
func (c clock) done(rounds int, r *round) float64 {
	now, end := elapsed(rounds, r), float64(c.rounds)
	if now >= end {
		return 1
	}
	return c.doneThen + (1-c.doneThen)*(now-c.changedAt)/(end-c.changedAt)
}

// elapsed counts rounds; the current round counts by its steps.
func elapsed(rounds int, r *round) float64 {
	if r == nil || len(r.batches) == 0 {
		return float64(rounds)
	}
	return float64(rounds) + float64(len(r.steps))/float64(len(r.batches))
}
