package rl

import (
	"onering/data"
	"onering/environment"
	_ "onering/environment/all"
	"onering/models/optim/adamw"
	"onering/objectives"
	_ "onering/objectives/all" // what a run file may name
	"onering/policy"
	"onering/reward"
	_ "onering/reward/all"
	"onering/runtime"
	"onering/sampler"
	"onering/tokenize"
	"onering/train"
	"onering/train/learn"
	"onering/train/streams"
)

// A Config is everything that decides a training run. Its tags are the one
// declaration of each setting (see package settings): the keys of a run file,
// environment variables, flags of the same meaning, ranges and docs/settings.md
// come from them. run.toml in the run folder is the resolved Config, which loads
// to the same run. Package cmd reads and writes it.
//
// A round samples PromptsPerRound x SamplesPerPrompt trajectories from the
// current policy and then takes optimizer steps of BatchSize trajectories each.
// Lengths are in tokens, and the end-of-sequence token counts as part of a
// response (D25).
type Config struct {
	Model       modelConfig             `toml:"model" help:"Which policy is trained"`
	LoRA        train.LoRAConfig        `toml:"lora" needs:"on=true" help:"Training an adapter in place of the model's weights"`
	Data        dataConfig              `toml:"data" help:"Which problems are trained on, and in which order"`
	Rollout     rolloutConfig           `toml:"rollout" help:"How responses are sampled. The learner divides the logits by the same temperature, the log-probs of sampling and learning are those of one distribution (see logp), and a truncated response earns 0"`
	Environment environmentConfig       `toml:"environment" needs:"name!=single" help:"What the policy talks to between the turns of an episode, in training and in the evaluations of the run. Without one a response is a single turn. rollout.max_new_tokens bounds all tokens of an episode after its prompt"`
	Reward      RewardConfig            `toml:"reward" help:"What a response is worth, in training and in the evaluations of the run"`
	Objective   ObjectiveConfig         `toml:"objective" help:"The method and its settings"`
	Stream      streams.Settings        `toml:"stream" help:"Further parts of the loss, each with its own tokens and weight, and a schedule of its weight: cross-entropy on demonstrations or on a part of what was sampled, and a pull to a teacher; see [objectives.md](objectives.md#streams)"`
	Optimizer   optimizerConfig         `toml:"optimizer" help:"How the weights are updated: by AdamW with decoupled weight decay, unless name says otherwise. The keys from beta1 to weight_decay are AdamW's; another optimizer has its own in their place"`
	Train       loopConfig              `toml:"train" help:"How long and in which portions training goes on"`
	Eval        evalConfig              `toml:"eval" needs:"suites!=" help:"What is evaluated during training. A temperature of 0 is greedy decoding, and max_new_tokens of 0 stands for that of [rollout]. The columns mean for the suites what those of [data] mean for the training problems"`
	Runtime     policy.RuntimeConfig    `toml:"runtime" help:"Where the graphs run"`
	Distributed train.DistributedConfig `toml:"distributed" help:"How several ranks train together, which mpirun or srun has started; alone they change nothing"`
	Output      outputConfig            `toml:"output" help:"Where the run folder goes"`
}

// An outputConfig says where the run folder is made.
type outputConfig struct {
	Dir string `toml:"dir" flag:"out" complete:"dir" help:"run folder; a new name if not given"`
	train.Pushing
	ShowEvery int      `toml:"show_every" range:"[0,100000000]" note:"0 shows none" help:"rounds between two sampled responses that the terminal and log.txt show, the first after round 1"`
	Sink      []string `toml:"sink" help:"a program and its arguments that gets the run's metrics while it goes on: the resolved configuration first, every line of metrics.jsonl, and the summary last, as JSON lines on its standard input"`
}

// A modelConfig says which policy is trained.
type modelConfig struct {
	Path string `toml:"path" flag:"model" complete:"dir" help:"model folder, or a run folder for its newest checkpoint, or ORG/NAME on a hub (required)"`
	tokenize.TemplateSettings
	Reference       string  `toml:"reference" help:"folder of the model that objectives with a reference compare the policy with: the teacher of opd, or another one than the start for kl_beta; it must have the tokens of the policy; a run folder stands for its newest checkpoint" note:"empty is the policy as it was when training began"`
	ReferenceUpdate float64 `toml:"reference_update" range:"[0,1]" note:"0 never moves it" help:"how far the reference follows the policy: after every reference_steps optimizer steps its weights become this share of the policy's and the rest of their own; a round keeps the log-probs that it was scored with"`
	ReferenceSteps  int     `toml:"reference_steps" needs:"reference_update!=0" range:"[1,1000000000]" help:"optimizer steps between two moves of the reference"`
	DType           string  `toml:"dtype" choice:"float32 bfloat16 float16" help:"type to compute in" note:"the master weights, the moments and the accumulated gradients are float32 with each"`
}

// A dataConfig says which problems are trained on, and in what order.
type dataConfig struct {
	Train TrainFiles `toml:"train" flag:"data" complete:"file" help:"file of problems with answers, or a list of files and of tables with a path, a weight and columns of their own (required)"`
	data.Columns
	Prompts int    `toml:"prompts" needs:"data.train!=builtin:arithmetic" range:"[0,1000000000]" note:"0 keeps all" help:"most problems of a file to keep: the first ones that pass the filter"`
	Seed    int64  `toml:"seed" range:"[0,)" help:"seed of the order of the problems; each pass over them has its own order"`
	Filter  string `toml:"filter" help:"keep the rows for which it holds, such as level in 3..5"`
	// The order of the problems; see orderOptions.
	Curriculum string `toml:"curriculum" help:"column of numbers that say how hard a problem is: easy problems come first; -pass_rate, with a minus in front, is for high numbers of easy ones. If not given, problems come in any order"`
	// Role is what the advantage rae keeps averages by.
	Role string `toml:"role" needs:"objective.advantage=rae" help:"column that says which role the responses to a problem play, as in a game; without it all play one"`
	Rest int    `toml:"rest" needs:"rollout.samples_per_prompt!=1" range:"[0,1000]" note:"0 is never" help:"after so many draws in a row that taught nothing, since no advantage told its responses apart, a problem is passed over in as many passes over its file"`
}

// A rolloutConfig says how responses are sampled.
type rolloutConfig struct {
	PromptsPerRound  int `toml:"prompts_per_round" range:"[1,1048576]" help:"problems of one round"`
	SamplesPerPrompt int `toml:"samples_per_prompt" flag:"samples" short:"n" range:"[1,65536]" help:"responses to each problem: the group size K; 1 is for objectives that do not compare them"`
	sampler.Sampling
	MaxPromptTokens int    `toml:"max_prompt_tokens" range:"[1,16777216]" help:"most tokens of a prompt; problems with a longer one are dropped and counted"`
	Slots           int    `toml:"slots" range:"[1,65536]" help:"sequences that are decoded at once; each holds keys and values for max_prompt_tokens + max_new_tokens tokens; unless it is set, on CUDA as many as make a round fastest"`
	Invariant       bool   `toml:"invariant" help:"make the bits of a response the same for any number of slots (on a GPU: whatever the other slots hold), as they always are in evaluations; without it slots move the last bits of a step. It takes one slot more and, on processors without AVX-512, may take more time"`
	LogProb         string `toml:"logp" choice:"full kept" needs:"top_p!=1 top_k!=0 min_p!=0" note:"full: of the model's distribution over the whole vocabulary, which is what then is trained, and not the filtered one that samples; kept: of the distribution over the tokens that the filters keep, whose ids each response records" help:"which policy the log-probs, the entropies and the gradient are of where top_p, top_k or min_p filter it"`
	OldLogProb      string `toml:"old_logp" choice:"rollout rescore" note:"rollout takes those that the sampler saw, rescore has the learner compute them again before the first step of a round" help:"where the old policy's log-probs come from"`
}

// An environmentConfig is the environment of episodes, and its settings.
type environmentConfig struct {
	Name string `toml:"name" help:"a registered environment: onering environments lists them"`
	environment.Limits
	Advantages string `toml:"advantages" choice:"episode turn" note:"turn is for objectives that are sums over tokens, such as grpo, dapo, cispo and sapo" help:"what the tokens of a turn are weighed by: the advantage of their episode, or that of what the environment gave from their turn on, among the episodes of the problem that had as many turns"`
	// Settings is the environment itself, whose exported fields are the remaining keys of the
	// section.
	Settings environment.Environment `toml:"-" choose:"environment"`
}

// Player returns what plays the episodes of the run; nil where a response is a single turn.
func (c environmentConfig) Player(prompter *data.Prompter, eos []int32) *environment.Player {
	if _, single := c.Settings.(*environment.Single); single {
		return nil
	}
	return &environment.Player{Environment: c.Settings, Limits: c.Limits, Prompter: prompter, EOS: eos}
}

// Program returns the environment if programs play its episodes; nil for other environments.
func (c environmentConfig) Program() *environment.Program {
	p, _ := c.Settings.(*environment.Program)
	return p
}

// A RewardConfig is the rule that grades responses, and its settings.
type RewardConfig struct {
	Name string `toml:"name" help:"a registered reward: onering rewards lists them"`
	// Rule is the reward itself, whose exported fields are the remaining keys of
	// the section: at first reward.New(Name). It is a *reward.Combined, and Name is
	// empty, if there are several.
	Rule reward.Reward `toml:"-" choose:"reward"`
}

// Grader returns what grades the responses of the run, in training and in its
// evaluations.
func (c RewardConfig) Grader() reward.Grader { return reward.Grader{Reward: c.Rule, Name: c.Name} }

// An ObjectiveConfig is the method and its settings.
type ObjectiveConfig struct {
	Name string `toml:"name" help:"a registered objective"`
	// Settings is the objective itself, whose exported fields are the
	// remaining keys of the section: at first objectives.New(Name).
	Settings objectives.Objective `toml:"-" choose:"objective"`
}

// An optimizerConfig is an optimizer and the schedule of its learning rate.
type optimizerConfig struct {
	learn.UpdateSettings
	learn.Schedule
	RateByESS bool            `toml:"rate_by_ess" help:"multiply the learning rate of a step by the root of the effective sample size of its responses, over their number: (sum w)^2/(N sum w^2), w = exp(sum of log-prob minus old log-prob), as VCPO does. It is 1 for responses of the present policy, and falls as they grow stale"`
	Offload   runtime.Offload `toml:"offload" needs:"runtime.device!=cpu" choice:"none moments all" note:"moments: with adamw the GPU needs 8 bytes less for each parameter, and 16 cross in each step; all: also the float32 weights of the layers, where a GPU computes with a 16-bit copy: 4 bytes less for each of their parameters, and 8 more cross. It changes no result. Unless it is set, a run on CUDA takes what is fastest and fits" help:"what the host's memory keeps for a run on a GPU"`
}

// A loopConfig sets the length of training and the sizes of its rounds and steps.
type loopConfig struct {
	Rounds int `toml:"rounds" range:"[1,100000000]" help:"rounds of sampling and learning; the default is one pass over MATH levels 3-5 (8,523 problems) at 128 a round"`
	train.Stopping
	BatchSize   int     `toml:"batch_size" range:"[1,4194304]" help:"trajectories of one optimizer step, a divisor of those of a round; the default gives the paper's 8 steps a round"`
	Shuffle     string  `toml:"shuffle" choice:"responses prompts" note:"prompts keeps the responses to one prompt together: a step computes the prompt once for all of them" help:"what is put in a random order before a round is cut into steps"`
	Score       string  `toml:"score" choice:"trained all" note:"trained leaves out those that can have no weight, such as a group's whose rewards are equal, if the objective allows it: figures of a step are then those of the others" help:"responses that a step computes the log-probs of"`
	Truncated   string  `toml:"truncated" choice:"zero mask" note:"zero learns from it as from any other, with the reward that it has, which is 0 for most rewards; mask leaves its tokens out of the loss, while its reward counts in its group" help:"what a step makes of a response that reached the limit of tokens"`
	Epochs      int     `toml:"epochs" range:"[1,10000]" help:"passes over the trajectories of a round"`
	MicroTokens int     `toml:"micro_tokens" range:"[1,1073741824]" help:"most tokens of one forward and backward pass; a longer trajectory goes alone. It decides memory and speed, not the result"`
	Stash       string  `toml:"stash" choice:"auto inputs" note:"auto: as many layers as fit keep all that the backward pass reads, and then the head its logits; inputs: each layer keeps only its input" help:"what a forward pass keeps for the backward pass, which else computes it again. It decides memory and speed, not the result"`
	room        int     // bytes that passes on a GPU may keep, where a Plan says so
	Seed        int64   `toml:"seed" range:"[0,)" help:"seed of the sampled tokens and of the order of trajectories"`
	SaveEvery   int     `toml:"save_every" range:"[0,1000000000]" note:"0 saves only the end" help:"rounds between checkpoints"`
	SaveSteps   int     `toml:"save_steps" range:"[0,1000000000]" note:"0 is never" help:"optimizer steps between checkpoints, also inside a round; one that is due while another is being written follows after a later step"`
	SaveMinutes float64 `toml:"save_minutes" range:"[0,10000000]" note:"0 is never" help:"minutes after which the next step ends with a checkpoint"`
	KeepLast    int     `toml:"keep_last" needs:"save_every!=0 save_steps!=0 save_minutes!=0 keep_best!=0" range:"[0,1000000]" note:"0 keeps all" help:"how many of the newest checkpoints are kept"`
	KeepBest    int     `toml:"keep_best" range:"[0,1000000]" help:"how many of the best checkpoints are kept beside those of keep_last, those with the highest mean pass@1 of the suites; an evaluation that is among them is followed by a checkpoint"`
	OnNonfinite string  `toml:"on_nonfinite" choice:"stop skip" note:"stop ends the run, skip leaves the step out; both write the batch to failures/ in the run folder, for onering replay" help:"what happens at NaN or an infinity in log-probs, loss or gradients, always before the update"`
	SkipLimit   int     `toml:"skip_limit" needs:"on_nonfinite=skip" range:"[0,1000000000]" help:"how many steps skip may leave out in the whole run before it stops after all"`
	EvalEvery   int     `toml:"eval_every" range:"[0,1000000000]" note:"0 is never" help:"rounds between evaluations"`
}

// An evalConfig says what is evaluated during training.
type evalConfig struct {
	Suites suites `toml:"suites" help:"files of held-out problems: names, and tables with a path and what is otherwise for that file of samples, grade_truncated and the sampling"`
	suiteRules
	data.Columns
}

// suiteRules say how the responses to suites are sampled and graded. A Temperature of 0 is
// greedy decoding, and MaxNewTokens of 0 stands for that of rolloutConfig.
type suiteRules struct {
	Samples        int    `toml:"samples" range:"[1,65536]" help:"responses to each problem"`
	Extract        string `toml:"extract" help:"where in a response the answer has to stand: boxed, tag, auto or last, as with reward.extract; if not given that of the reward"`
	GradeTruncated bool   `toml:"grade_truncated" flag:"grade-truncated" help:"grade responses that reached the limit of tokens, too, as the evaluations of oat do; otherwise they are wrong"`
	sampler.Sampling
}

// Options say how the training problems are read.
func (c dataConfig) Options() data.Options {
	return data.Options{Columns: c.Columns, Filter: c.Filter, Limit: c.Prompts}
}

// Options say how the suites are read.
func (c evalConfig) Options() data.Options { return data.Options{Columns: c.Columns} }

// longest is the most tokens of prompt and response that a slot has to hold.
func (c Config) longest() int {
	n := c.Rollout.MaxNewTokens
	for i := range c.Eval.Suites {
		n = max(n, c.Eval.Alone(i).MaxNewTokens)
	}
	return c.Rollout.MaxPromptTokens + n
}

// Default returns the paper's recipe (section 4 and the table of
// hyperparameters) with the objective "pmpo" and the reward "math". Model.Path and
// Data.Train are empty: they have no default. Objective.Settings and Reward.Rule
// are nil if no plug-ins of these names are registered.
func Default() Config {
	objective, _ := objectives.New("pmpo")
	rule, _ := reward.New("math")
	optimizer := adamw.Default()
	adapter, device, ranks := train.Defaults()
	return Config{
		Model: modelConfig{TemplateSettings: tokenize.TemplateSettings{Template: tokenize.DefaultTemplate}, DType: "float32", ReferenceSteps: 512},
		LoRA:  adapter,
		Rollout: rolloutConfig{
			PromptsPerRound: 128, SamplesPerPrompt: 8,
			Sampling: sampler.Plain(3000), MaxPromptTokens: 1024,
			Slots: 32, LogProb: "full", OldLogProb: "rollout",
		},
		Environment: environmentConfig{Name: "single", Limits: environment.DefaultLimits(), Advantages: "episode", Settings: &environment.Single{}},
		Reward:      RewardConfig{Name: "math", Rule: rule},
		Objective:   ObjectiveConfig{Name: "pmpo", Settings: objective},
		Optimizer: optimizerConfig{
			UpdateSettings: learn.UpdateSettings{Name: "adamw", LearningRate: 1e-6, MaxGradNorm: 1, Rule: &optimizer},
			Schedule:       learn.Schedule{Shape: "constant"},
			Offload:        runtime.OffloadNone,
		},
		Train: loopConfig{Rounds: 67, BatchSize: 128, Shuffle: "responses", Score: "trained", Truncated: "zero",
			Stopping: train.Stopping{StopAfter: 3}, Epochs: 1, MicroTokens: 4096, Stash: "auto", SaveEvery: 10, OnNonfinite: "stop", SkipLimit: 10},
		Eval:        evalConfig{suiteRules: suiteRules{Samples: 1, Sampling: sampler.Sampling{TopP: 1}}},
		Runtime:     device,
		Output:      outputConfig{Pushing: train.Pushing{PushEvery: 1}, ShowEvery: 10},
		Distributed: ranks,
	}
}
