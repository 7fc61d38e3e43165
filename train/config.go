package train

import (
	"onering/data"
	"onering/objectives"
	"onering/tokenize"
)

// A Config is everything that decides a training run. Its toml tags are the
// keys of a run file; run.toml in the run folder is the resolved Config, which
// loads to the same run. Decoding is the program's business (cmd).
//
// Vocabulary: a round samples PromptsPerRound x SamplesPerPrompt trajectories
// from the current policy and then takes optimizer steps of BatchSize
// trajectories each. Lengths are in tokens, temperatures are divisors of the
// logits, EOS counts as a response token (D25).
type Config struct {
	Model     ModelConfig     `toml:"model"`
	Data      DataConfig      `toml:"data"`
	Rollout   RolloutConfig   `toml:"rollout"`
	Objective ObjectiveConfig `toml:"objective"`
	Optimizer OptimizerConfig `toml:"optimizer"`
	Train     LoopConfig      `toml:"train"`
	Eval      EvalConfig      `toml:"eval"`
	Runtime   RuntimeConfig   `toml:"runtime"`
	Output    OutputConfig    `toml:"output"`
}

// A ModelConfig says which policy is trained.
type ModelConfig struct {
	// Path is a Hugging Face folder: config.json, safetensors and, where text
	// is needed, a tokenizer. Required.
	Path string `toml:"path"`
	// Template turns a problem into a prompt: qwen_math (default), r1, no, chat
	// (the template of the model's tokenizer), or a text with {problem} in it.
	Template string `toml:"template"`
	// System is the system message of the template "chat". Empty (default) has none.
	System string `toml:"system"`
	// Stop are strings that end a response, besides the end-of-sequence token,
	// of which they become a part. Default: those of the template.
	Stop []string `toml:"stop"`
	// DType is the type of the computation: float32 (default), bfloat16 or
	// float16. The master weights, the moments and the accumulated gradients
	// are float32 in every case.
	DType string `toml:"dtype"`
}

// A DataConfig says which problems are trained on, and in which order.
type DataConfig struct {
	// Train is a file of problems with answers. Required.
	Train string `toml:"train"`
	// Prompt, Answer and ID are the columns of the problems, their answers and
	// their names, a column inside a structure as "reward_model.ground_truth".
	// Empty (default) takes the first usual name that is there, see docs/data.md.
	Prompt string `toml:"prompt"`
	Answer string `toml:"answer"`
	ID     string `toml:"id"`
	// Split chooses among the splits of a folder that has several.
	Split string `toml:"split"`
	// Prompts keeps at most this many problems, the first ones after Filter.
	// 0 (default) keeps all.
	Prompts int `toml:"prompts"`
	// Seed orders the problems; each pass over them has its own order. Default 0.
	Seed int64 `toml:"seed"`
	// Filter keeps the rows for which it holds, such as "level in 3..5".
	// Empty (default) keeps all.
	Filter string `toml:"filter"`
}

// A RolloutConfig says how responses are sampled.
type RolloutConfig struct {
	// PromptsPerRound is the problems of one round. Default 128.
	PromptsPerRound int `toml:"prompts_per_round"`
	// SamplesPerPrompt is the group size K, at least 2. Default 8.
	SamplesPerPrompt int `toml:"samples_per_prompt"`
	// Temperature divides the logits, also in the learner. Default 1.
	Temperature float64 `toml:"temperature"`
	// TopP keeps the smallest set of tokens that holds this share of the
	// probability, in (0, 1]; 1 (default) is off.
	TopP float64 `toml:"top_p"`
	// TopK keeps the K likeliest tokens; 0 (default) is off.
	TopK int `toml:"top_k"`
	// MaxNewTokens bounds a response. One that reaches it is truncated and
	// earns 0. Default 3000.
	MaxNewTokens int `toml:"max_new_tokens"`
	// MaxPromptTokens bounds a prompt; problems with a longer one are dropped
	// and counted. Default 1024.
	MaxPromptTokens int `toml:"max_prompt_tokens"`
	// Slots is how many sequences are decoded at once; each holds keys and
	// values for MaxPromptTokens + MaxNewTokens tokens. Default 32.
	Slots int `toml:"slots"`
	// Invariant makes the bits of a response the same for any number of slots,
	// as those of evaluations always are; else slots move the last bits of a
	// step. It takes one slot more and, for few rows of a large model, up to
	// 40 % more time. Default false.
	Invariant bool `toml:"invariant"`
	// OldLogProb is where the old policy's log-probs come from: "rollout"
	// (default) takes those the sampler saw, "rescore" has the learner compute
	// them once more before the first step of a round.
	OldLogProb string `toml:"old_logp"`
}

// An ObjectiveConfig is the method and its settings.
type ObjectiveConfig struct {
	// Name is a registered objective. Default pmpo.
	Name string `toml:"name"`
	// Settings is the objective itself, whose exported fields are the
	// remaining keys of the section. Default: objectives.New(Name).
	Settings objectives.Objective `toml:"-"`
}

// An OptimizerConfig is AdamW with decoupled weight decay.
type OptimizerConfig struct {
	// LearningRate of the schedule's plateau. Default 1e-6.
	LearningRate float64 `toml:"learning_rate"`
	// Beta1 is the decay of the first moment, in [0, 1). Default 0.9.
	Beta1 float64 `toml:"beta1"`
	// Beta2 is the decay of the second moment, in [0, 1). Default 0.95.
	Beta2 float64 `toml:"beta2"`
	// Eps is added to the root of the second moment. Default 1e-8.
	Eps float64 `toml:"eps"`
	// WeightDecay shrinks each weight by LearningRate x WeightDecay a step. Default 0.
	WeightDecay float64 `toml:"weight_decay"`
	// MaxGradNorm scales a gradient of larger Euclidean norm down to it;
	// 0 is off. Default 1.
	MaxGradNorm float64 `toml:"max_grad_norm"`
	// Warmup is the optimizer steps over which the rate rises linearly from 0. Default 0.
	Warmup int `toml:"warmup"`
	// Schedule is the rate after Warmup: constant (default), or linear or
	// cosine, which end at 0 with the last step of the run.
	Schedule string `toml:"schedule"`
	// Offload keeps the moments of a GPU's run in the host's memory: 8 bytes a
	// parameter less there, for 16 that cross in every step. It changes no
	// result. Default false.
	Offload bool `toml:"offload"`
}

// A LoopConfig says how long and in which portions training goes on.
type LoopConfig struct {
	// Rounds of sampling and learning. Default 67: one pass over MATH levels
	// 3-5 (8,523 problems) at 128 a round.
	Rounds int `toml:"rounds"`
	// BatchSize is the trajectories of one optimizer step; it divides those of
	// a round. Default 128, the paper's 8 steps a round.
	BatchSize int `toml:"batch_size"`
	// Epochs is the passes over each round's trajectories. Default 1.
	Epochs int `toml:"epochs"`
	// MicroTokens bounds the tokens of one forward and backward pass; a longer
	// trajectory goes alone. It decides memory and speed, not the result.
	// Default 4096.
	MicroTokens int `toml:"micro_tokens"`
	// Seed decides the sampled tokens and the order of trajectories. Default 0.
	Seed int64 `toml:"seed"`
	// SaveEvery is the rounds between checkpoints; 0 saves only the end. Default 10.
	SaveEvery int `toml:"save_every"`
	// SaveSteps is the optimizer steps between checkpoints, also inside a
	// round; 0 (default) is never.
	SaveSteps int `toml:"save_steps"`
	// SaveMinutes is the time after which the next step ends with a
	// checkpoint; 0 (default) is never.
	SaveMinutes float64 `toml:"save_minutes"`
	// KeepLast is how many of the newest checkpoints are kept; 0 (default)
	// keeps all.
	KeepLast int `toml:"keep_last"`
	// KeepBest is how many of the best checkpoints are kept beside those of
	// KeepLast: by the mean pass@1 of the suites, where they were evaluated.
	// Default 0.
	KeepBest int `toml:"keep_best"`
	// OnNonfinite is what happens at NaN or an infinity in log-probs, loss or
	// gradients, always before the update: "stop" (default) the run, or "skip"
	// the optimizer step. In both cases the batch is written to failures/ in
	// the run folder, for `onering replay`.
	OnNonfinite string `toml:"on_nonfinite"`
	// SkipLimit is how many steps "skip" may leave out in the whole run before
	// it stops after all. Default 10.
	SkipLimit int `toml:"skip_limit"`
	// EvalEvery is the rounds between evaluations; 0 (default) is never.
	EvalEvery int `toml:"eval_every"`
}

// An EvalConfig says what is evaluated during training.
type EvalConfig struct {
	// Suites are the files of held-out problems. Default none.
	Suites []string `toml:"suites"`
	// Samples per problem. Default 1.
	Samples int `toml:"samples"`
	// Temperature of the samples; 0 (default) is greedy decoding.
	Temperature float64 `toml:"temperature"`
	// TopP of the samples, in (0, 1]; 1 (default) is off.
	TopP float64 `toml:"top_p"`
	// MaxNewTokens bounds a response; 0 (default) is rollout.max_new_tokens.
	MaxNewTokens int `toml:"max_new_tokens"`
	// Prompt, Answer, ID and Split are for the suites what they are in [data]
	// for the training problems.
	Prompt string `toml:"prompt"`
	Answer string `toml:"answer"`
	ID     string `toml:"id"`
	Split  string `toml:"split"`
}

// PromptTemplate is the template that prompts are made with.
func (c ModelConfig) PromptTemplate() (tokenize.Template, error) {
	t, err := tokenize.ParseTemplate(c.Template)
	if err != nil {
		return t, err
	}
	t.System = c.System
	if len(c.Stop) > 0 {
		t.Stops = c.Stop
	}
	return t, nil
}

// Options say how the training problems are read.
func (c DataConfig) Options() data.Options {
	return data.Options{Prompt: c.Prompt, Answer: c.Answer, ID: c.ID, Split: c.Split, Filter: c.Filter, Limit: c.Prompts}
}

// Options say how the suites are read.
func (c EvalConfig) Options() data.Options {
	return data.Options{Prompt: c.Prompt, Answer: c.Answer, ID: c.ID, Split: c.Split}
}

// longest is the most tokens of prompt and response that a slot has to hold.
func (c Config) longest() int {
	n := c.Rollout.MaxNewTokens
	if len(c.Eval.Suites) > 0 {
		n = max(n, c.Eval.MaxNewTokens)
	}
	return c.Rollout.MaxPromptTokens + n
}

// A RuntimeConfig says where the graphs run.
type RuntimeConfig struct {
	// Device is cpu (default), cuda or cuda:N for a GPU, or auto: GPU 0 where
	// there is one and all that it needs, else the CPU.
	Device string `toml:"device"`
	// Threads of the CPU kernels; 0 (default) is one per core.
	Threads int `toml:"threads"`
	// Library is the path of an ONNX Runtime shared library. Empty (default)
	// looks for one; see `onering doctor`.
	Library string `toml:"library"`
}

// An OutputConfig says where the run folder goes.
type OutputConfig struct {
	// Dir is the run folder. Empty (default) lets the program name a new one.
	Dir string `toml:"dir"`
}

// Default returns the paper's recipe (section 4 and the table of
// hyperparameters) with the objective "pmpo". Model.Path and Data.Train are
// empty: they have no default. Objective.Settings is nil if no objective
// "pmpo" is registered.
func Default() Config {
	settings, _ := objectives.New("pmpo")
	return Config{
		Model: ModelConfig{Template: "qwen_math", DType: "float32"},
		Rollout: RolloutConfig{
			PromptsPerRound: 128, SamplesPerPrompt: 8,
			Temperature: 1, TopP: 1, TopK: 0,
			MaxNewTokens: 3000, MaxPromptTokens: 1024,
			Slots: 32, OldLogProb: "rollout",
		},
		Objective: ObjectiveConfig{Name: "pmpo", Settings: settings},
		Optimizer: OptimizerConfig{
			LearningRate: 1e-6, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8,
			WeightDecay: 0, MaxGradNorm: 1, Schedule: "constant",
		},
		Train:   LoopConfig{Rounds: 67, BatchSize: 128, Epochs: 1, MicroTokens: 4096, SaveEvery: 10, OnNonfinite: "stop", SkipLimit: 10},
		Eval:    EvalConfig{Samples: 1, TopP: 1},
		Runtime: RuntimeConfig{Device: "cpu"},
	}
}
