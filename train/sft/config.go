// Package sft trains a model on demonstrations: conversations, prompts with
// responses, or texts; or on preferences between two responses. It takes the steps of package learn and writes the run folder
// of package rundir, as reinforcement learning does, and at its end the run folder is
// a Hugging Face folder too.
package sft

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"onering/data"
	"onering/internal/settings"
	"onering/internal/strict"
	"onering/models/optim/adamw"
	"onering/policy"
	"onering/tokenize"
	"onering/train"
	"onering/train/learn"
)

// A Config is everything that decides a run. Sections and keys with the meaning of a run
// file's have the same names; see rl.Config.
type Config struct {
	Model      modelConfig          `toml:"model"`
	LoRA       train.LoRAConfig     `toml:"lora" needs:"on=true"`
	Data       dataConfig           `toml:"data"`
	Preference *preferenceLoss      `toml:"preference"` // nil unless preferences are learned
	Optimizer  optimizerConfig      `toml:"optimizer"`
	Train      loopConfig           `toml:"train"`
	Runtime    policy.RuntimeConfig `toml:"runtime"`
	// Distributed says how several ranks train together; alone they change nothing.
	Distributed train.DistributedConfig `toml:"distributed"`
	Output      outputConfig            `toml:"output"`
}

// A modelConfig says which model is trained.
type modelConfig struct {
	Path     string            `toml:"path" flag:"model" complete:"dir" help:"model folder, or a run folder for its newest checkpoint, or ORG/NAME on a hub (required)"`
	Template string            `toml:"template" help:"what goes around a prompt that is a text: qwen_math, r1, no, chat (the template of the model's tokenizer), a text with {problem} and columns such as {context} in it, concat: chat for messages, and a text alone, followed by its completion, or auto: chat for messages, qwen_math for a text"`
	System   string            `toml:"system" help:"system message of conversations that have none, with the template chat"`
	Args     tokenize.ArgTexts `toml:"template_args" help:"names that the chat template reads, each name=value such as enable_thinking=false with JSON or a text as the value; in a run file also a table"`
	DType    string            `toml:"dtype" flag:"compute" choice:"float32 bfloat16 float16" help:"type to compute in"`
}

// settings are those of a prompt template.
func (c modelConfig) settings() tokenize.TemplateSettings {
	return tokenize.TemplateSettings{Template: c.Template, System: c.System, Args: c.Args}
}

// AskAsTaught completes a template that depends on the row's form, such as auto, by what the demonstrations show, so that
// whatever opens the model afterwards asks it as it was taught: where all are conversations the template becomes chat,
// with the system message and the template's arguments that all of them have. It changes no demonstration.
func (c *Config) AskAsTaught(list []data.Demonstration) error {
	m := &c.Model
	if t, err := m.settings().PromptTemplate(); err != nil || !t.Auto || slices.ContainsFunc(list, func(d data.Demonstration) bool { return d.Chat == nil }) {
		return err
	}
	m.Template = "chat"
	var system string
	var args json.RawMessage // an object
	for i, d := range list {
		var row struct {
			Args json.RawMessage `json:"chat_template_kwargs"`
		}
		message := "" // the row's system message
		if first := d.Chat.Messages[0]; first.Role == "system" {
			message = first.Content
		}
		if source, err := d.Chat.MarshalJSON(); err != nil || i == 0 || args != nil { // once rows differ, args stay nil
			if err = cmp.Or(err, strict.JSON(source, &row)); err != nil {
				return err
			}
		}
		if i == 0 {
			system, args = message, row.Args
		}
		if message != system {
			system = ""
		}
		if !bytes.Equal(row.Args, args) {
			args = nil
		}
	}
	m.System = cmp.Or(m.System, system)
	if args == nil || len(m.Args) > 0 { // nothing in common, or the configuration has its own
		return nil
	}
	var byName map[string]any
	return cmp.Or(strict.JSON(args, &byName), m.Args.UnmarshalTOML(byName)) // as a table of a run file
}

// A dataConfig says which demonstrations are learned, or which preferences.
type dataConfig struct {
	Train                   string  `toml:"train" flag:"data" complete:"file" help:"file of demonstrations or preferences; - is stdin (required)"`
	*demonstrationData              // nil where preferences are learned
	*data.PreferenceColumns         // nil where demonstrations are learned
	Filter                  string  `toml:"filter" help:"take the rows for which it holds, such as 'level in 3..5'"`
	MaxTokens               int     `toml:"max_tokens" range:"[0,16777216]" note:"0 is as many as the model has positions" help:"most tokens of a demonstration, or of a prompt with a response"`
	Eval                    string  `toml:"eval" flag:"eval-data" complete:"file" help:"file of held-out rows, whose loss is measured"`
	HeldOut                 float64 `toml:"held_out" range:"[0,1)" note:"0 holds none out" help:"share of the rows that is held out to measure the loss"`
}

// A demonstrationData says how demonstrations are read.
type demonstrationData struct {
	data.DemonstrationColumns
	AssistantOnly bool   `toml:"assistant_only" help:"learn only what the assistant says; false learns every token, of prompts too"`
	TooLong       string `toml:"too_long" choice:"drop cut" help:"what becomes of a longer demonstration"`
}

// An optimizerConfig is an optimizer and the schedule of its learning rate.
type optimizerConfig struct {
	learn.UpdateSettings
	learn.Schedule
}

// A loopConfig sets the length of training and the sizes of its steps.
type loopConfig struct {
	Epochs int `toml:"epochs" range:"[1,1000000]" help:"passes over the data"`
	train.Stopping
	BatchSize   int     `toml:"batch_size" range:"[1,4194304]" help:"demonstrations of a step"`
	MicroTokens int     `toml:"micro_tokens" range:"[1,1073741824]" help:"most tokens of one forward and backward pass; it decides memory and speed, not the result"`
	Seed        int64   `toml:"seed" help:"seed of the order of demonstrations, and of those held out"`
	EvalEvery   int     `toml:"eval_every" range:"[0,1000000000]" note:"0 is only before the first and after the last" help:"steps between measurements of the held-out loss"`
	SaveSteps   int     `toml:"save_steps" range:"[0,1000000000]" note:"0 is never" help:"steps between checkpoints; one that is due while another is being written follows after a later step"`
	SaveMinutes float64 `toml:"save_minutes" range:"[0,10000000]" note:"0 is never" help:"minutes after which the next step ends with a checkpoint"`
	KeepLast    int     `toml:"keep_last" needs:"save_steps!=0 save_minutes!=0 keep_best!=0" range:"[0,1000000]" note:"0 keeps all" help:"how many of the newest checkpoints are kept"`
	KeepBest    int     `toml:"keep_best" range:"[0,1000000]" help:"how many of the checkpoints with the lowest held-out loss are kept beside those; a measurement that is among them is followed by a checkpoint"`
}

// An outputConfig says where the run folder is made.
type outputConfig struct {
	Dir   string `toml:"dir" flag:"out" complete:"dir" help:"folder to write (required)"`
	DType string `toml:"dtype" choice:"float32 bfloat16 float16" help:"type of the tensors that are written"`
	train.Pushing
	Sink []string `toml:"sink" help:"a program and its arguments that gets the run's metrics while it goes on, as JSON lines"`
}

// Default returns the settings for a model of this path. The embedded one is tiny and
// begins at random weights, so its learning rate suits no other.
func Default(path string) Config {
	adapter, device, ranks := train.Defaults()
	c := Config{
		Model: modelConfig{Path: path, Template: "concat", DType: "float32"},
		LoRA:  adapter,
		Data:  dataConfig{demonstrationData: &demonstrationData{AssistantOnly: true, TooLong: "drop"}},
		Optimizer: optimizerConfig{
			UpdateSettings: learn.UpdateSettings{
				Name: "adamw", LearningRate: 1e-5, MaxGradNorm: 1, Rule: &adamw.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01},
			},
			Schedule: learn.Schedule{Warmup: 0.1, Shape: "linear", Floor: 0.1},
		},
		Train:   loopConfig{Stopping: train.Stopping{StopAfter: 3}, Epochs: 1, BatchSize: 32, MicroTokens: 4096, SaveMinutes: 10, KeepLast: 1},
		Runtime: device, Distributed: ranks,
		Output: outputConfig{DType: "float32", Pushing: train.Pushing{PushEvery: 1}},
	}
	if path == data.Arithmetic {
		c.Model.Template, c.Optimizer.LearningRate = "no", 3e-3
	}
	return c
}

// DefaultPreferences is Default for a run on preferences.
func DefaultPreferences(path string) Config {
	c, loss := Default(path), defaultLoss()
	c.Data.demonstrationData, c.Data.PreferenceColumns = nil, &data.PreferenceColumns{Chosen: "chosen", Rejected: "rejected"}
	c.Preference, c.Optimizer.LearningRate = &loss, 1e-6
	if path == data.Arithmetic {
		c.Optimizer.LearningRate = 1e-4
	}
	return c
}

// Validate reports every impossible value, joined; each is a *settings.Error.
func (c Config) Validate() error {
	var errs settings.Errors
	for _, s := range settings.Sections(&c) {
		errs = append(errs, settings.Under(s.Name+".", settings.Check(s.Pointer))...) // the fields' tags: range, choice
	}
	errs.Want("model.path", c.Model.Path, c.Model.Path != "", "name the model's folder")
	errs.Want("data.train", c.Data.Train, c.Data.Train != "", "name the file of demonstrations")
	errs.Want("output.dir", c.Output.Dir, c.Output.Dir != "", "name the folder to write")
	_, err := c.Model.settings().PromptTemplate()
	errs = append(errs, settings.Under("model.", err)...)
	if c.Data.Filter != "" {
		var bad *data.FilterError
		if _, err := data.ParseFilter(c.Data.Filter); errors.As(err, &bad) {
			errs.Want("data.filter", c.Data.Filter, false, bad.Problem())
		}
	}
	errs = append(errs, policy.CheckTypes(c.Model.DType, c.LoRA.BaseDType, c.Runtime.Device)...)
	errs.Want("lora.base_dtype", c.LoRA.BaseDType, c.LoRA.Trainable(), train.NotTrainable)
	errs.Want("lora.targets", c.LoRA.Targets, len(c.LoRA.Targets) > 0, "name the modules, or \"all-linear\"")
	errs.Want("output.dtype", c.Output.DType, !c.LoRA.On || c.Output.DType == "float32", "adapters are written in float32")
	const inRounds = false // supervised training has no rounds
	measured := c.Data.Eval != "" || c.Data.HeldOut > 0
	errs.Want("data.held_out", c.Data.HeldOut, c.Data.Eval == "" || c.Data.HeldOut == 0,
		"there is a file of held-out demonstrations already: leave one of them out")
	errs.Want("train.eval_every", c.Train.EvalEvery, c.Train.EvalEvery <= 0 || measured,
		"there is nothing to measure: name a file with data.eval (--eval-data), or a share with data.held_out")
	if err := c.Train.Check(measured && c.Train.EvalEvery > 0, inRounds); err != nil {
		errs.Want("train.stop_when", c.Train.StopWhen, false, err.Error())
	}
	errs.Want("train.keep_best", c.Train.KeepBest, c.Train.KeepBest <= 0 || measured && c.Train.KeepLast > 0,
		"needs keep_last of at least 1 and held-out demonstrations")
	return errors.Join(errs...)
}
