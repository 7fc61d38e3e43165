package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"onering/data"
	"onering/models"
	"onering/objectives"
	"onering/tokenize"
)

// A FieldError says which key of a Config holds an impossible value, and what
// to do about it.
type FieldError struct {
	Key    string // as in a run file, such as "optimizer.beta1"
	Value  any
	Remedy string // such as "must be in [0, 1)"
}

func (e *FieldError) Error() string { return "train: " + e.Problem() }

// Problem is the error's text without the name of the package.
func (e *FieldError) Problem() string {
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("%s = %q: %s", e.Key, s, e.Remedy)
	}
	return fmt.Sprintf("%s = %v: %s", e.Key, e.Value, e.Remedy)
}

// Validate reports every impossible value of c, joined; each is a *FieldError.
// It looks at nothing outside c: whether files exist is found out by those who
// open them.
func (c Config) Validate() error {
	var v validator

	v.text("model.path", c.Model.Path, "name the model's folder")
	_, unknown := tokenize.ParseTemplate(c.Model.Template)
	v.check("model.template", c.Model.Template, unknown == nil,
		"must be one of "+strings.Join(tokenize.Templates(), ", ")+", or a text with {problem} in it, once")
	v.check("model.system", c.Model.System, c.Model.System == "" || c.Model.Template == "chat",
		`goes with template = "chat"; other templates are written with theirs`)
	v.check("model.stop", c.Model.Stop, !slices.Contains(c.Model.Stop, ""), "must not hold an empty string")
	v.oneOf("model.dtype", c.Model.DType, "float32", "bfloat16", "float16")
	v.check("model.dtype", c.Model.DType, ComputeTypes[c.Model.DType] != models.BF16 || c.Runtime.Device != "cpu", "with runtime.device = \"cpu\": "+BFloat16OnCPU)

	v.text("data.train", c.Data.Train, "name the file of training problems")
	v.atLeast("data.prompts", c.Data.Prompts, 0)
	v.atLeast("data.seed", c.Data.Seed, 0)
	if c.Data.Filter != "" {
		var bad *data.FilterError
		if _, err := data.ParseFilter(c.Data.Filter); errors.As(err, &bad) {
			v.check("data.filter", c.Data.Filter, false, bad.Problem())
		}
	}
	embedded := c.Data.Train == Arithmetic
	for _, column := range []struct{ key, value string }{
		{"data.prompt", c.Data.Prompt}, {"data.answer", c.Data.Answer}, {"data.id", c.Data.ID}, {"data.split", c.Data.Split}, {"data.filter", c.Data.Filter},
	} {
		v.check(column.key, column.value, column.value == "" || !embedded, "is for a file of problems; "+Arithmetic+" has no columns")
	}

	r := c.Rollout
	v.atLeast("rollout.prompts_per_round", r.PromptsPerRound, 1)
	v.check("rollout.samples_per_prompt", r.SamplesPerPrompt, r.SamplesPerPrompt >= 2,
		"must be at least 2: advantages compare the responses to one prompt")
	v.positive("rollout.temperature", r.Temperature)
	v.check("rollout.top_p", r.TopP, r.TopP > 0 && r.TopP <= 1, "must be in (0, 1]; 1 turns it off")
	v.check("rollout.top_k", r.TopK, r.TopK >= 0, "must be at least 0; 0 turns it off")
	v.atLeast("rollout.max_new_tokens", r.MaxNewTokens, 1)
	v.atLeast("rollout.max_prompt_tokens", r.MaxPromptTokens, 1)
	v.atLeast("rollout.slots", r.Slots, 1)
	v.oneOf("rollout.old_logp", r.OldLogProb, "rollout", "rescore")

	v.errs = append(v.errs, flatten(c.Objective.Validate())...)

	o := c.Optimizer
	v.positive("optimizer.learning_rate", o.LearningRate)
	v.check("optimizer.beta1", o.Beta1, o.Beta1 >= 0 && o.Beta1 < 1, "must be in [0, 1)")
	v.check("optimizer.beta2", o.Beta2, o.Beta2 >= 0 && o.Beta2 < 1, "must be in [0, 1)")
	v.positive("optimizer.eps", o.Eps)
	v.nonNegative("optimizer.weight_decay", o.WeightDecay)
	v.nonNegative("optimizer.max_grad_norm", o.MaxGradNorm)
	v.atLeast("optimizer.warmup", o.Warmup, 0)
	v.oneOf("optimizer.schedule", o.Schedule, "constant", "linear", "cosine")

	t := c.Train
	v.atLeast("train.rounds", t.Rounds, 1)
	v.atLeast("train.batch_size", t.BatchSize, 1)
	// The product is taken in float64, where it cannot overflow into a lie.
	if perRound := float64(r.PromptsPerRound) * float64(r.SamplesPerPrompt); t.BatchSize >= 1 && perRound >= 1 {
		v.check("train.batch_size", t.BatchSize, math.Mod(perRound, float64(t.BatchSize)) == 0,
			fmt.Sprintf("must divide the %.0f trajectories of a round (rollout.prompts_per_round x rollout.samples_per_prompt)", perRound))
	}
	v.atLeast("train.epochs", t.Epochs, 1)
	v.atLeast("train.micro_tokens", t.MicroTokens, 1)
	v.atLeast("train.seed", t.Seed, 0)
	v.atLeast("train.save_every", t.SaveEvery, 0)
	v.atLeast("train.save_steps", t.SaveSteps, 0)
	v.nonNegative("train.save_minutes", t.SaveMinutes)
	v.atLeast("train.keep_last", t.KeepLast, 0)
	v.atLeast("train.keep_best", t.KeepBest, 0)
	v.check("train.keep_best", t.KeepBest, t.KeepBest <= 0 || t.KeepLast > 0,
		"needs keep_last of at least 1; without it all checkpoints are kept")
	v.check("train.keep_best", t.KeepBest, t.KeepBest <= 0 || len(c.Eval.Suites) > 0,
		"needs files in eval.suites: the best are those with the highest pass@1")
	v.oneOf("train.on_nonfinite", t.OnNonfinite, "stop", "skip")
	v.atLeast("train.skip_limit", t.SkipLimit, 0)
	v.atLeast("train.eval_every", t.EvalEvery, 0)
	v.check("train.eval_every", t.EvalEvery, t.EvalEvery <= 0 || len(c.Eval.Suites) > 0,
		"needs files in eval.suites; 0 turns evaluation off")

	v.check("eval.suites", c.Eval.Suites, !slices.Contains(c.Eval.Suites, ""), "must not hold an empty name")
	v.atLeast("eval.samples", c.Eval.Samples, 1)
	v.nonNegative("eval.temperature", c.Eval.Temperature)
	v.check("eval.top_p", c.Eval.TopP, c.Eval.TopP > 0 && c.Eval.TopP <= 1, "must be in (0, 1]; 1 turns it off")
	v.check("eval.top_p", c.Eval.TopP, c.Eval.Temperature != 0 || !(c.Eval.TopP < 1), "has no effect on greedy decoding: set eval.temperature above 0, or top_p = 1")
	v.check("eval.max_new_tokens", c.Eval.MaxNewTokens, c.Eval.MaxNewTokens >= 0, "must be at least 0; 0 is rollout.max_new_tokens")
	v.check("eval.samples", c.Eval.Samples, c.Eval.Samples <= 1 || c.Eval.Temperature != 0,
		"samples of greedy decoding are all the same: set eval.temperature above 0, or 1 sample")

	v.device("runtime.device", c.Runtime.Device)
	v.atLeast("runtime.threads", c.Runtime.Threads, 0)
	return errors.Join(v.errs...)
}

// A validator collects the errors of one Config.
type validator struct{ errs []error }

func (v *validator) check(key string, value any, ok bool, remedy string) {
	if !ok {
		v.errs = append(v.errs, &FieldError{key, value, remedy})
	}
}

func (v *validator) text(key, value, remedy string) {
	v.check(key, value, strings.TrimSpace(value) != "", remedy)
}

func (v *validator) oneOf(key, value string, choices ...string) {
	v.check(key, value, slices.Contains(choices, value), "must be one of "+strings.Join(choices, ", "))
}

// Run files can say nan and inf; the comparisons below are false for NaN.

func (v *validator) positive(key string, x float64) {
	v.check(key, x, x > 0 && !math.IsInf(x, 1), "must be a finite number above 0")
}

func (v *validator) nonNegative(key string, x float64) {
	v.check(key, x, x >= 0 && !math.IsInf(x, 1), "must be a finite number, at least 0")
}

func (v *validator) atLeast(key string, value any, least int64) {
	var n int64
	switch x := value.(type) {
	case int:
		n = int64(x)
	case int64:
		n = x
	}
	v.check(key, value, n >= least, fmt.Sprintf("must be at least %d", least))
}

func (v *validator) device(key, value string) {
	v.check(key, value, IsDevice(value), "must be "+Devices)
}

// Devices says what names there are of devices to run on.
const Devices = "cpu, cuda, cuda:N with the number of a device, or auto"

// IsDevice says whether value is such a name.
func IsDevice(value string) bool {
	if n, found := strings.CutPrefix(value, "cuda:"); found {
		i, err := strconv.Atoi(n)
		return err == nil && i >= 0 && strconv.Itoa(i) == n
	}
	return value == "cpu" || value == "auto" || value == "cuda"
}

// Validate reports an unknown objective, and what the objective itself says of
// its settings if it is an objectives.Validator. Each *objectives.SettingError
// becomes the *FieldError of the key in the run file.
func (c ObjectiveConfig) Validate() error {
	if c.Settings == nil {
		return &FieldError{"objective.name", c.Name, "must be one of " + strings.Join(objectives.Names(), ", ")}
	}
	settings, ok := c.Settings.(objectives.Validator)
	if !ok {
		return nil
	}
	var errs []error
	for _, err := range flatten(settings.Validate()) {
		var setting *objectives.SettingError
		if errors.As(err, &setting) {
			errs = append(errs, &FieldError{"objective." + setting.Key, setting.Value, setting.Remedy})
		} else {
			errs = append(errs, fmt.Errorf("train: objective %q: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// flatten lists the errors that were joined to err, however deep; none for nil.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}
