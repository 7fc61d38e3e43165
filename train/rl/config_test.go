package rl

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"onering/data"
	"onering/internal/settings"
	"onering/models/optim/adamw"
	"onering/policy"
	"onering/reward"
	"onering/runtime"
	"onering/sampler"
	"onering/tokenize"
	"onering/train"
	"onering/train/learn"
	"onering/train/streams"
)

func valid() Config {
	c := Default()
	c.Model.Path, c.Data.Train = "model", TrainFiles{{Path: "problems.jsonl"}}
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
	c := Default()
	c.Objective.Settings, c.Reward.Rule = nil, nil
	for _, s := range settings.Sections(&c) {
		for _, f := range s.Fields {
			all[s.Name+"."+f.Key] = true
		}
	}
	return all
}

// Every problem is reported at once, under a key that exists.
func TestValidateNamesKeys(t *testing.T) {
	bad := Config{
		Model:       modelConfig{Reference: "teacher", ReferenceUpdate: 2, TemplateSettings: tokenize.TemplateSettings{System: "Be brief.", Stop: []string{""}, Args: tokenize.ArgTexts{"brief"}}},
		Data:        dataConfig{Prompts: -1, Seed: -1, Filter: "level in", Curriculum: "-", Rest: -1},
		Objective:   ObjectiveConfig{Name: "none"},
		Optimizer:   optimizerConfig{UpdateSettings: learn.UpdateSettings{Rule: &adamw.AdamW{Beta1: 1, Beta2: -1, WeightDecay: -1}, MaxGradNorm: -1}, Schedule: learn.Schedule{Warmup: -1, Floor: -1}},
		Rollout:     rolloutConfig{Sampling: sampler.Sampling{TopK: -1, MinP: -1}},
		Train:       loopConfig{Seed: -1, SaveEvery: -1, SaveSteps: -1, SaveMinutes: -1, KeepLast: -1, KeepBest: 1, SkipLimit: -1, EvalEvery: -1},
		Eval:        evalConfig{Suites: Suites(""), suiteRules: suiteRules{Extract: "box", Sampling: sampler.Sampling{Temperature: -1, TopK: -1, MinP: -1, MaxNewTokens: -1}}},
		Runtime:     policy.RuntimeConfig{Threads: -1, Device: "tpu"},
		Distributed: train.DistributedConfig{CheckEvery: -1},
		Stream:      streams.Settings{List: streams.List{{Tokens: "all"}}},
		Output:      outputConfig{ShowEvery: -1},
	}
	bad.Data.Expansion, bad.Eval.Expansion = -1, -1
	reported, exist := map[string]bool{}, keys()
	for _, err := range settings.Flatten(bad.Validate()) {
		var field *settings.Error
		if !errors.As(err, &field) {
			t.Errorf("%v is not a settings.Error", err)
			continue
		}
		reported[field.Key] = true
		if !exist[field.Key] {
			t.Errorf("there is no key %q: %v", field.Key, err)
		}
		if !strings.HasPrefix(err.Error(), field.Key+" = ") {
			t.Errorf("error %q", err)
		}
	}
	// These values are possible.
	for _, free := range []string{
		"data.prompt", "data.answer", "data.id", "data.split", "data.role", "eval.prompt", "eval.answer", "eval.id", "eval.split", "lora.adapter", "runtime.library", "output.dir", "output.sink", "optimizer.offload", "optimizer.offload_weights", "optimizer.name", "optimizer.rate_by_ess", "rollout.invariant", "lora.on", "lora.rslora", "eval.grade_truncated",
		"train.stop_when", "output.push_to", "output.push_private", // whose texts are read when a run begins
	} {
		delete(exist, free)
	}
	for key := range exist {
		if !reported[key] {
			t.Errorf("nothing is said of %s", key)
		}
	}
}

// Settings of several sections that depend on each other.
func TestValidateTogether(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		key    string // the error; "" for none
	}{
		{func(c *Config) { c.Model.Template = "chat"; c.Model.System = "Be brief." }, ""},
		{func(c *Config) { c.Model.Template = "Q: {problem}\nA:"; c.Model.Stop = []string{"\n"} }, ""},
		{func(c *Config) { c.Model.Template = "Q: {problem} {problem}" }, "model.template"},
		{func(c *Config) { c.Model.Template = "Q: {question}" }, ""}, // a column of the data
		{func(c *Config) { c.Model.System = "Be brief." }, "model.system"},
		{func(c *Config) { c.Model.Args = tokenize.ArgTexts{"enable_thinking=false"} }, "model.template_args"},
		{func(c *Config) { c.Data.Prompt, c.Data.Answer, c.Data.Filter = "q", "a.b", "level in 3..5" }, ""},
		{func(c *Config) { c.Data.Filter = "level in 3..x" }, "data.filter"},
		{func(c *Config) { c.Data.Train, c.Data.Answer = TrainFiles{{Path: data.Arithmetic}}, "a" }, "data.answer"},
		{func(c *Config) { c.Eval.Temperature, c.Eval.TopP, c.Eval.MaxNewTokens = 0.6, 0.95, 100 }, ""},
		{func(c *Config) { c.Eval.TopP = 0.95 }, "eval.top_p"},
		{func(c *Config) {
			c.Model.DType, c.Runtime.Device, c.Optimizer.Offload = "bfloat16", "cuda", runtime.OffloadAll
		}, ""},
		{func(c *Config) { c.Optimizer.Offload = runtime.OffloadAll }, "optimizer.offload"},
		{func(c *Config) { c.Optimizer.Offload = "weights" }, "optimizer.offload"},
		{func(c *Config) { c.Eval.Temperature, c.Eval.TopP = 1, 1.5 }, "eval.top_p"},
	} {
		c := valid()
		tt.change(&c)
		err := c.Validate()
		var field *settings.Error
		if tt.key == "" && err != nil || tt.key != "" && (!errors.As(err, &field) || field.Key != tt.key) {
			t.Errorf("%+v %+v %+v: error %v, want one of %q", c.Model, c.Data, c.Eval, err, tt.key)
		}
	}
}

// Errors in an objective's settings name the keys of the run file.
func TestValidateObjective(t *testing.T) {
	c := valid()
	reflect.ValueOf(c.Objective.Settings).Elem().FieldByName("PMax").SetFloat(math.NaN())
	var field *settings.Error
	if err := c.Validate(); !errors.As(err, &field) || field.Key != "objective.p_max" {
		t.Errorf("error %v", err)
	}
}

// changes lists the decisive settings of c that differ from the earlier ones.
func changes(was map[string]string, c Config) string {
	return train.Plan{Former: formerValues(), Settings: decisive(c)}.Changes(was).String()
}

// A checkpoint of a version without a setting had the setting's default.
func TestChangedSettingsOfOlderVersion(t *testing.T) {
	c := valid()
	was := decisive(c)
	for _, key := range []string{"rollout.min_p", "objective.Norm"} {
		if _, ok := was[key]; !ok {
			t.Fatalf("%s does not decide the course of a run", key)
		}
		delete(was, key)
	}
	if changed := changes(was, c); changed != "" {
		t.Errorf("changed: %s", changed)
	}
	was["optimizer.learning_rate"], c.Optimizer.LearningRate = "9.999999999999999e-06", 1e-5 // as earlier versions kept it
	c.Rollout.MinP = 0.1
	if changed := changes(was, c); changed != "rollout.min_p was 0 and is 0.1" {
		t.Errorf("changed: %s", changed)
	}
}

// A rule is a reward with a setting.
type rule struct {
	reward.Reward
	Weight float64 `toml:"weight"`
}

// The reward decides the course of a run. Checkpoints without this setting were graded by
// math.
func TestRewardIsDecisive(t *testing.T) {
	old := decisive(valid())
	delete(old, "reward.name")
	c := valid()
	if changed := changes(old, c); changed != "" {
		t.Errorf("changed without a change: %v", changed)
	}
	c.Reward = RewardConfig{"other", &rule{Weight: 2}}
	if changed := changes(old, c); changed != "reward.name was math and is other" {
		t.Errorf("another reward: %s", changed)
	}
	was := decisive(c)
	c.Reward.Rule = &rule{Weight: 3}
	if changed := changes(was, c); changed != "reward.weight was 2 and is 3" {
		t.Errorf("another setting: %s", changed)
	}
}

// Settings that would take all memory, or make counts overflow, are refused. No count is
// without an upper limit.
func TestUpperBounds(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Rollout.PromptsPerRound = math.MaxInt }, "rollout.prompts_per_round = 9223372036854775807: must be at most 1048576"},
		{func(c *Config) { c.Rollout.SamplesPerPrompt = 1 << 40 }, "rollout.samples_per_prompt = 1099511627776: must be at most 65536"},
		{func(c *Config) { c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt = 1<<20, 1<<16 },
			"rollout.prompts_per_round = 1048576: times rollout.samples_per_prompt = 65536 is 68719476736 trajectories, more than the 4194304 of a round"},
		{func(c *Config) { c.Rollout.Slots = math.MaxInt }, "rollout.slots = 9223372036854775807: must be at most 65536"},
		{func(c *Config) { c.Rollout.MaxNewTokens = math.MaxInt }, "rollout.max_new_tokens = 9223372036854775807: must be at most 16777216"},
		{func(c *Config) { c.Rollout.MaxPromptTokens = math.MaxInt }, "rollout.max_prompt_tokens = 9223372036854775807: must be at most 16777216"},
		{func(c *Config) { c.Eval.MaxNewTokens = math.MaxInt }, "eval.max_new_tokens = 9223372036854775807: must be at most 16777216"},
		{func(c *Config) { c.Eval.Samples, c.Eval.Temperature = math.MaxInt, 1 }, "eval.samples = 9223372036854775807: must be at most 65536"},
		{func(c *Config) { c.Train.Rounds = math.MaxInt }, "train.rounds = 9223372036854775807: must be at most 100000000"},
		{func(c *Config) { c.Train.SaveMinutes = 1e300 }, "train.save_minutes = 1e+300: must be at most 10000000"},
		{func(c *Config) { c.Train.KeepLast = math.MaxInt }, "train.keep_last = 9223372036854775807: must be at most 1000000"},
		{func(c *Config) { c.Runtime.Threads = math.MaxInt }, "runtime.threads = 9223372036854775807: must be at most 1024; 0 is one for each core"},
	} {
		c := Default()
		c.Model.Path, c.Data.Train = "m", TrainFiles{{Path: "d"}}
		tt.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
	// These products of allowed values fit an int64: steps of a run, tokens of a round.
	c := Default()
	c.Train.Rounds, c.Train.Epochs, c.Train.BatchSize = 100_000_000, 10_000, 1
	c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt = 1<<20, 4
	if got, want := float64(c.steps()), 1e8*1e4*float64(1<<22); got != want {
		t.Errorf("%g steps, want %g", got, want)
	}
}

// TestRenew: a run.toml of an earlier version has today's settings.
func TestRenew(t *testing.T) {
	for text, want := range map[string]string{
		"offload = false\noffload_weights = false\ngradients = \"float32\"": "none",
		"offload = true": "moments",
		"offload = true\noffload_weights = true\ngradients = \"bfloat16\"": "all",
		"offload = false\noffload_weights = true":                          "all",
		"offload = \"moments\"":                                            "moments",
	} {
		run, err := settings.File("run.toml", []byte("[optimizer]\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		c := Default()
		if _, err := settings.Resolve(&c, settings.Command{}, Renew(run)); err != nil || string(c.Optimizer.Offload) != want {
			t.Errorf("%s: %s, %v", text, c.Optimizer.Offload, err)
		}
		if _, err := settings.Resolve(&c, settings.Command{}, run); strings.Contains(text, "_weights") && (err == nil || !strings.Contains(err.Error(), "here it is optimizer.offload")) {
			t.Errorf("%s in a run file: %v", text, err)
		}
	}
	for was, now := range map[string]string{"auto": "auto", "inputs": "inputs", "attention": "auto", "layers": "auto", "logits": "auto"} {
		c, kept := Default(), settings.Source{{Section: "train", Key: "stash", Value: was}}
		if _, err := settings.Resolve(&c, settings.Command{}, Renew(kept)); err != nil || c.Train.Stash != now {
			t.Errorf("stash = %s: %s, %v", was, c.Train.Stash, err)
		}
	}
}
