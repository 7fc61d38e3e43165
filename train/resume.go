package train

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// decisive lists the settings that decide the course of a run, by key. How
// long it goes on, what is saved and where things lie do not.
func decisive(c Config) map[string]string {
	settings := make(map[string]string)
	for name, section := range map[string]any{
		"model": c.Model, "data": c.Data, "rollout": c.Rollout, "optimizer": c.Optimizer, "train": c.Train, "runtime": c.Runtime,
	} {
		v := reflect.ValueOf(section)
		for i := range v.NumField() {
			settings[name+"."+v.Type().Field(i).Tag.Get("toml")] = fmt.Sprint(v.Field(i).Interface())
		}
	}
	for _, key := range []string{
		"model.path", "data.train", "runtime.library", "optimizer.offload", "train.rounds", "train.save_every", "train.save_steps", "train.save_minutes",
		"train.keep_last", "train.keep_best", "train.eval_every", "train.on_nonfinite", "train.skip_limit",
	} {
		delete(settings, key)
	}
	if v := reflect.ValueOf(c.Objective.Settings); v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct {
		objectiveSettings(settings, v.Elem())
	}
	return settings
}

// objectiveSettings adds an objective's exported fields, one by one: as a whole
// it may marshal to something else.
func objectiveSettings(settings map[string]string, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			objectiveSettings(settings, v.Field(i))
		} else if f.IsExported() {
			if text, err := json.Marshal(v.Field(i).Interface()); err == nil {
				settings["objective."+f.Name] = string(text)
			}
		}
	}
}

// shapesRound says whether a change, as changedSettings has it, is to what a
// round consists of.
func shapesRound(change string) bool {
	key, _, _ := strings.Cut(change, " ")
	return slices.Contains([]string{
		"the", "data.seed", "data.filter", "data.prompts", "model.template", "model.system", "rollout.prompts_per_round", "rollout.samples_per_prompt",
		"rollout.old_logp", "train.batch_size", "train.epochs", "train.seed",
	}, key)
}

// changedSettings says what differs, sorted by key.
func changedSettings(was, is map[string]string) []string {
	var changed []string
	for key, value := range is {
		if before, ok := was[key]; ok && before != value {
			changed = append(changed, fmt.Sprintf("%s was %s and is %s", key, before, value))
		}
	}
	slices.Sort(changed)
	return changed
}

// digest tells these problems from others.
func digest(p Problems) string {
	list, ok := p.(table)
	if !ok {
		return fmt.Sprintf("%T", p)
	}
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, q := range list {
		enc.Encode(q) // neither strings nor a hash can fail
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
