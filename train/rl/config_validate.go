package rl

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"onering/data"
	"onering/environment"
	"onering/internal/settings"
	"onering/models"
	"onering/objectives"
	"onering/policy"
	"onering/reward"
	"onering/runtime"
	"onering/sampler"
	"onering/train"
)

// Validate reports every impossible value of c, joined; each is a *settings.Error. It looks at nothing outside c:
// whether files exist is found out by those who open them.
func (c Config) Validate() error { return errors.Join(c.Check(), c.checkTraining()) }

// Check is Validate without the rules that only training has.
func (c Config) Check() error {
	var v validator

	v.text("model.path", c.Model.Path, "name the model's folder")
	_, err := c.Model.PromptTemplate()
	v.add("model.", err)
	v.ranges("model.", &c.Model)
	v.ranges("lora.", &c.LoRA)
	v.errs = append(v.errs, policy.CheckTypes(c.Model.DType, c.LoRA.BaseDType, c.Runtime.Device)...)
	v.check("lora.targets", c.LoRA.Targets, len(c.LoRA.Targets) > 0, "name the modules, or \"all-linear\"")

	v.add("data.", c.Data.Train.Validate("train"))
	v.ranges("data.", &c.Data)
	if c.Data.Filter != "" {
		var bad *data.FilterError
		if _, err := data.ParseFilter(c.Data.Filter); errors.As(err, &bad) {
			v.check("data.filter", c.Data.Filter, false, bad.Problem())
		}
	}

	v.ranges("rollout.", &c.Rollout)
	v.errs = append(v.errs, settings.Flatten(c.Environment.Validate())...)
	v.errs = append(v.errs, settings.Flatten(c.Reward.Validate())...)
	v.errs = append(v.errs, settings.Flatten(c.Objective.Validate())...)
	v.check("optimizer.name", c.Optimizer.Name, c.Optimizer.Rule != nil, "must be one of "+strings.Join(models.Optimizers(), ", "))
	v.ranges("optimizer.", &c.Optimizer)
	v.ranges("train.", &c.Train)
	v.rules(c.Eval.suiteRules)
	v.ranges("eval.", &c.Eval.Columns)
	v.suites(c.Eval)
	v.ranges("runtime.", &c.Runtime)
	v.ranges("distributed.", &c.Distributed)
	v.ranges("output.", &c.Output)
	return errors.Join(v.errs...)
}

// checkTraining reports the values that do not go together in a training run. Each check gives a
// key, its value, whether the value is possible, and what to do if it is not.
func (c Config) checkTraining() error {
	var v validator
	v.check("lora.base_dtype", c.LoRA.BaseDType, c.LoRA.Trainable(), train.NotTrainable)
	v.check("optimizer.offload", c.Optimizer.Offload, c.Optimizer.Offload != runtime.OffloadAll || c.Model.DType != "float32",
		"is for weights that have a 16-bit copy: set model.dtype = \"bfloat16\" or \"float16\", or offload = \"moments\"")

	needs := objectives.NeedsOf(c.Objective.Settings)
	v.check("model.reference", c.Model.Reference, c.Model.Reference == "" || needs.Reference,
		"is for objectives that have a reference: opd, or kl_beta above 0")
	v.check("model.reference", c.Model.Reference, c.Model.Reference != "" || !needs.Teacher,
		fmt.Sprintf("name the teacher: with the objective %s the policy learns from another model", c.Objective.Name))
	moves, sharded16 := c.Model.ReferenceUpdate != 0, c.Distributed.Shard == "optimizer" && c.Model.DType != "float32"
	v.check("model.reference_update", c.Model.ReferenceUpdate, !moves || needs.Reference,
		"must be 0 without a reference: opd has one, and kl_beta above 0")
	v.check("model.reference_update", c.Model.ReferenceUpdate, !moves || !c.LoRA.On,
		"must be 0 with an adapter: the reference is the base model, whose weights do not change")
	v.check("model.reference_update", c.Model.ReferenceUpdate, !moves || !sharded16,
		"must be 0 with distributed.shard = \"optimizer\" and layers in 16 bits, where no rank has all weights in float32: set shard = \"none\"")

	embedded := c.Data.Train.Is(data.Arithmetic)
	for _, column := range []struct{ key, value string }{
		{"data.prompt", c.Data.Prompt}, {"data.answer", c.Data.Answer}, {"data.id", c.Data.ID}, {"data.split", c.Data.Split}, {"data.filter", c.Data.Filter},
		{"data.curriculum", c.Data.Curriculum}, {"data.role", c.Data.Role},
	} {
		v.check(column.key, column.value, column.value == "" || !embedded, "is for a file of problems; "+data.Arithmetic+" has no columns")
	}
	v.check("data.curriculum", c.Data.Curriculum, c.Data.Curriculum != "-", "must name a column behind the minus")
	v.check("data.rest", c.Data.Rest, c.Data.Rest == 0 || !embedded, "is for a file of problems; those of "+data.Arithmetic+" never come again")

	v.check("environment.advantages", c.Environment.Advantages, c.Environment.Advantages != "turn" || !needs.Greedy && !needs.States && !needs.Squares,
		"\"turn\" compares episodes with each other by their turns, and this objective with a greedy one, or turns or tokens itself")
	v.check("environment.advantages", c.Environment.Advantages, c.Environment.Advantages != "turn" || !needs.Whole,
		fmt.Sprintf("\"turn\" gives each turn an advantage, and the objective %s has one for a whole response: take one that is a sum over "+
			"tokens, such as grpo, or gspo with token_level", c.Objective.Name))
	for _, f := range settings.Fields(c.Objective.Settings) {
		v.check("objective.advantage", f.Value, f.Key != "advantage" || f.Value.String() != "hierarchical",
			"must be another rule: in a run all responses to a prompt have one role, where this is \"centered\"; "+
				"\"rae\" compares with the role's past, and onering weights takes roles and episodes")
	}
	v.errs = append(v.errs, c.Stream.List.Check(c.Environment.Name != "single")...)
	v.loop(c)
	return errors.Join(v.errs...)
}

// maxPerRound bounds the trajectories of a round, which are held in memory. With the
// ranges of rounds and epochs it keeps the count of optimizer steps within an int64.
const maxPerRound = 1 << 22

// loop checks the settings of [train] that depend on others, and the size of a round.
func (v *validator) loop(c Config) {
	t := c.Train
	// In float64 the product cannot overflow.
	perRound := float64(c.Rollout.PromptsPerRound) * float64(c.Rollout.SamplesPerPrompt)
	v.check("rollout.samples_per_prompt", c.Rollout.SamplesPerPrompt, c.Rollout.SamplesPerPrompt != 1 || !objectives.NeedsOf(c.Objective.Settings).Group,
		"must be at least 2; this objective compares the responses to one prompt (opd does not, nor do objective.advantage "+
			"= \"remax\" and, without dapo's dynamic_sampling, \"reinforce++\")")
	v.check("rollout.prompts_per_round", c.Rollout.PromptsPerRound, perRound <= maxPerRound,
		fmt.Sprintf("times rollout.samples_per_prompt = %d is %.0f trajectories, more than the %d of a round", c.Rollout.SamplesPerPrompt, perRound, maxPerRound))
	if t.BatchSize >= 1 && perRound >= 1 {
		v.check("train.batch_size", t.BatchSize, math.Mod(perRound, float64(t.BatchSize)) == 0,
			fmt.Sprintf("must divide the %.0f trajectories of a round (rollout.prompts_per_round x rollout.samples_per_prompt)", perRound))
	}
	// A negative value is reported once, by ranges.
	v.check("train.keep_best", t.KeepBest, t.KeepBest <= 0 || t.KeepLast > 0,
		"needs keep_last of at least 1; without it all checkpoints are kept")
	v.check("train.keep_best", t.KeepBest, t.KeepBest <= 0 || len(c.Eval.Suites) > 0 || t.StopWhen != "",
		"needs files in eval.suites: the best are those with the highest pass@1; or train.stop_when")
	if err := t.Stopping.Check(len(c.Eval.Suites) > 0 && t.EvalEvery > 0, true); err != nil { // true: there are rounds
		v.check("train.stop_when", t.StopWhen, false, err.Error())
	}
	v.check("train.eval_every", t.EvalEvery, t.EvalEvery <= 0 || len(c.Eval.Suites) > 0,
		"needs files in eval.suites; 0 turns evaluation off")
}

// rules checks the settings of [eval], or of one of its suites. Two have a special meaning for 0, and
// are set to possible values before the ranges of all are checked: a temperature of 0 is greedy
// decoding, and max_new_tokens of 0 that of [rollout].
func (v *validator) rules(e suiteRules) {
	v.check("eval.max_new_tokens", e.MaxNewTokens, e.MaxNewTokens >= 0, "must be at least 0; 0 is rollout.max_new_tokens")
	v.check("eval.extract", e.Extract, e.Extract == "" || slices.Contains(reward.ExtractRules, e.Extract),
		"must be one of "+strings.Join(reward.ExtractRules, ", ")+"; without it that of the reward")
	if e.Temperature == 0 {
		v.check("eval.samples", e.Samples, e.Samples <= 1, "samples of greedy decoding are all the same: set eval.temperature above 0, or 1 sample")
		unfiltered := sampler.Plain(1).Drawing()
		for i, f := range e.Drawing() {
			v.check("eval."+f.Key, f.Value.Interface(), f.Key == "temperature" || f.Value.Equal(unfiltered[i].Value),
				fmt.Sprintf("has no effect on greedy decoding: set eval.temperature above 0, or %s = %v", f.Key, unfiltered[i].Value))
		}
		e.Temperature = 1
	}
	e.MaxNewTokens = max(1, e.MaxNewTokens)
	v.ranges("eval.", &e)
}

// A validator collects the errors of one Config.
type validator struct{ errs []error }

func (v *validator) check(key string, value any, ok bool, remedy string) {
	if !ok {
		v.errs = append(v.errs, &settings.Error{Key: key, Value: value, Remedy: remedy})
	}
}

func (v *validator) text(key, value, remedy string) {
	v.check(key, value, strings.TrimSpace(value) != "", remedy)
}

// add takes over the errors joined to err, with the section in front of the keys of *settings.Errors.
func (v *validator) add(prefix string, err error) {
	v.errs = append(v.errs, settings.Under(prefix, err)...)
}

// ranges checks each setting of a section separately.
func (v *validator) ranges(prefix string, section any) {
	v.add(prefix, settings.Check(section))
}

// Validate reports an unknown environment, and the errors of the environment's own settings.
func (c environmentConfig) Validate() error {
	type fields environmentConfig // Check would call Validate
	own := fields(c)
	errs := settings.Under("environment.", settings.Check(&own))
	if c.Settings == nil {
		errs = append(errs, &settings.Error{Key: "environment.name", Value: c.Name, Remedy: "must be one of " + strings.Join(environment.Names(), ", ")})
	} else {
		errs = append(errs, settings.Under("environment.", settings.Check(c.Settings))...)
	}
	return errors.Join(errs...)
}

// Validate reports an unknown reward, and the errors of the reward's own settings: the
// ranges of their tags and, if it has a method Validate, its own rules.
func (c RewardConfig) Validate() error {
	if c.Rule == nil {
		return &settings.Error{Key: "reward.name", Value: c.Name, Remedy: "must be one of " + strings.Join(reward.Names(), ", ")}
	}
	return errors.Join(settings.Under("reward.", settings.Check(c.Rule))...)
}

// Validate reports an unknown objective, and what objectives.Check says of its settings.
func (c ObjectiveConfig) Validate() error {
	if c.Settings == nil {
		return &settings.Error{Key: "objective.name", Value: c.Name, Remedy: "must be one of " + strings.Join(objectives.Names(), ", ")}
	}
	return errors.Join(settings.Under("objective.", objectives.Check(c.Settings))...)
}
