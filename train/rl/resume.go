package rl

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"onering/internal/settings"
	"onering/reward"
	"onering/train/rundir"
)

// decisive returns the settings that decide the course of a run, by key: all but
// those that say how long it lasts, what is saved and where files are.
func decisive(c Config) map[string]string {
	values := make(map[string]string)
	for _, s := range settings.Sections(&c) {
		for _, f := range s.Fields {
			values[s.Name+"."+f.Key] = fmt.Sprint(f.Value)
		}
	}
	if several, ok := c.Reward.Rule.(*reward.Combined); ok {
		var names []string
		for _, p := range several.Parts {
			names = append(names, p.As)
		}
		values["reward.name"] = strings.Join(names, " + ")
	}
	for _, key := range []string{
		"model.path", "data.train", "runtime.library", "optimizer.offload", "train.rounds", "train.save_every", "train.save_steps", "train.save_minutes",
		"train.keep_last", "train.keep_best", "train.eval_every", "train.on_nonfinite", "train.skip_limit",
	} {
		if key != "train.rounds" || c.Data.Curriculum == "" { // a curriculum is spread over the rounds
			delete(values, key)
		}
	}
	// How a grader is waited for does not change what it says. The objective follows.
	maps.DeleteFunc(values, func(key, _ string) bool {
		words := strings.Split(key, ".")
		return slices.Contains([]string{"objective", "eval", "distributed", "output"}, words[0]) || words[0] == "reward" && slices.Contains([]string{"timeout", "retries", "workers", "in_flight", "concurrency", "token_env"}, words[len(words)-1])
	})
	if v := reflect.ValueOf(c.Objective.Settings); v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct {
		objectiveSettings(values, v.Elem())
	}
	return values
}

// rewardSettings returns the settings that decide the scores of the run's reward, as
// one text.
func rewardSettings(c Config) string {
	values := decisive(c)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if strings.HasPrefix(key, "reward.") {
			fmt.Fprintf(&b, "%s=%s\n", key, values[key])
		}
	}
	return b.String()
}

// objectiveSettings adds an objective's exported fields, one by one: the objective
// as a whole may marshal to its state.
func objectiveSettings(values map[string]string, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			objectiveSettings(values, v.Field(i))
		} else if f.IsExported() {
			if text, err := json.Marshal(v.Field(i).Interface()); err == nil {
				values["objective."+f.Name] = string(text)
			}
		}
	}
}

// checkState refuses the state s of the checkpoint dir if it is another run's, and
// logs which settings have changed since.
func (t *Trainer) checkState(s rundir.State, dir string) error {
	if s.Objective != t.Config.Objective.Name {
		return fmt.Errorf("train: resume: %s was trained with objective %q, not %q", dir, s.Objective, t.Config.Objective.Name)
	}
	if err := t.learner.policy.CheckBase(s.Base, dir); err != nil {
		return err
	}
	changed := changedSettings(s.Settings, decisive(t.Config))
	if s.Problems != t.roller.digest {
		changed = append(changed, change{key: problemsKey})
	}
	if len(changed) == 0 {
		return nil
	}
	var texts []string
	for _, c := range changed {
		if t.learner.policy.Adapter != nil && (c.key == "lora.rank" || c.key == "lora.targets") {
			return fmt.Errorf("train: resume: %s holds an adapter, and since then %s: an adapter keeps its rank and its modules; set it back, or begin a run in another folder", dir, c)
		}
		if c.key == "optimizer.name" {
			return fmt.Errorf("train: resume: %s holds the state of an optimizer, and since then %s: set it back, or begin a run in another folder", dir, c)
		}
		if s.Inside && c.shapesRound() {
			return fmt.Errorf("train: resume: %s lies inside round %d, and since then %s: that can change only between two rounds; set it back, or remove this checkpoint to resume from the one before", dir, s.Round+1, c)
		}
		texts = append(texts, c.String())
	}
	t.log.Warn("settings have changed: the run will differ from one that was never stopped", "changed", strings.Join(texts, "; "))
	return nil
}

// A change is a setting whose value was another one when a checkpoint was written.
type change struct{ key, was, is string }

// problemsKey is the key of the change that data.train has other problems, whether
// its name is the same or not.
const problemsKey = "data.train"

func (c change) String() string {
	if c.key == problemsKey {
		return "data.train has other problems"
	}
	return fmt.Sprintf("%s was %s and is %s", c.key, c.was, c.is)
}

// shapesRound says whether the change is to what a round consists of.
func (c change) shapesRound() bool {
	return slices.Contains([]string{
		problemsKey, "data.seed", "data.filter", "data.prompts", "data.curriculum", "data.rest", "train.rounds", "model.template", "model.system", "rollout.prompts_per_round", "rollout.samples_per_prompt",
		"rollout.old_logp", "train.batch_size", "train.epochs", "train.seed", "train.shuffle",
	}, c.key)
}

// changedSettings lists what differs, sorted by key. A setting that a checkpoint
// of an older version lacks had its default.
func changedSettings(was, is map[string]string) []change {
	defaults := Default()
	defaults.Objective.Settings, defaults.Reward.Rule = nil, nil // the run may have others
	old := decisive(defaults)
	old["reward.extract"] = "auto" // before it could be chosen
	maps.Copy(old, was)
	var changed []change
	for key, value := range is {
		if before, ok := old[key]; ok && before != value {
			changed = append(changed, change{key, before, value})
		}
	}
	slices.SortFunc(changed, func(a, b change) int { return strings.Compare(a.key, b.key) })
	return changed
}
