package train

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	_ "onering/objectives/all"
)

func valid() Config {
	c := Default()
	c.Model.Path, c.Data.Train = "model", "problems.jsonl"
	return c
}

func TestDefaultIsValid(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Error(err)
	}
}

// keys lists the keys of a run file, objective settings aside.
func keys() map[string]bool {
	all := map[string]bool{}
	t := reflect.TypeFor[Config]()
	for i := range t.NumField() {
		section := t.Field(i)
		for j := range section.Type.NumField() {
			all[section.Tag.Get("toml")+"."+section.Type.Field(j).Tag.Get("toml")] = true
		}
	}
	return all
}

// Every problem is reported at once, under a key that exists.
func TestValidateNamesKeys(t *testing.T) {
	bad := Config{
		Data:      DataConfig{Prompts: -1, Seed: -1},
		Objective: ObjectiveConfig{Name: "none"},
		Optimizer: OptimizerConfig{Beta1: 1, Beta2: -1, WeightDecay: -1, MaxGradNorm: -1, Warmup: -1},
		Rollout:   RolloutConfig{TopK: -1},
		Train:     LoopConfig{Seed: -1, SaveEvery: -1, SaveSteps: -1, SaveMinutes: -1, KeepLast: -1, KeepBest: 1, SkipLimit: -1, EvalEvery: -1},
		Eval:      EvalConfig{Suites: []string{""}, Temperature: -1},
		Runtime:   RuntimeConfig{Threads: -1, Device: "tpu"},
	}
	reported, exist := map[string]bool{}, keys()
	for _, err := range flatten(bad.Validate()) {
		var field *FieldError
		if !errors.As(err, &field) {
			t.Errorf("%v is no FieldError", err)
			continue
		}
		reported[field.Key] = true
		if !exist[field.Key] {
			t.Errorf("there is no key %q: %v", field.Key, err)
		}
		if !strings.HasPrefix(err.Error(), "train: "+field.Key+" = ") {
			t.Errorf("error %q", err)
		}
	}
	// These have no impossible value.
	for _, free := range []string{"data.filter", "runtime.library", "output.dir"} {
		delete(exist, free)
	}
	for key := range exist {
		if !reported[key] && key != "objective.-" {
			t.Errorf("nothing is said of %s", key)
		}
	}
}

// What an objective says of its settings names them as keys of the run file.
func TestValidateObjective(t *testing.T) {
	c := valid()
	reflect.ValueOf(c.Objective.Settings).Elem().FieldByName("PMax").SetFloat(-1)
	var field *FieldError
	if err := c.Validate(); !errors.As(err, &field) || field.Key != "objective.p_max" {
		t.Errorf("error %v", err)
	}
}
