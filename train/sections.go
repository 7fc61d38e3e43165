// Package train is the life of a run: what every task of training has in common.
package train

import (
	"onering/models/lora"
)

// A LoRAConfig says whether an adapter is trained in place of the weights, and which.
type LoRAConfig struct {
	On bool `toml:"on" flag:"lora" help:"train a LoRA adapter in place of the weights; without a learning rate of its own, a run then has ten times the default one"`
	// Adapter, if not empty, is what a run goes on with in place of a new adapter.
	Adapter string `toml:"adapter" flag:"lora-adapter" help:"folder of an adapter to go on with in place of a new one, as PEFT and onering write it, or a run folder for its newest checkpoint; rank, alpha and targets are then its own. A model.path that is a run with an adapter means the run's model and this adapter" note:"KL then compares with the adapter as it was"`
	lora.Settings
	BaseDType string `toml:"base_dtype" flag:"base-dtype" choice:"float32 bfloat16 float16 int8" help:"type that the matrices of the model's layers are held in beside an adapter; they are rounded to it, and widened layer by layer as the graphs run, which takes less memory and more time; int8 has a scale for every 32 numbers of a row" note:"types other than float32 are for the CPU, with model.dtype float32"`
}

// A DistributedConfig says how several ranks train together.
type DistributedConfig struct {
	Shard      string  `toml:"shard" choice:"none optimizer" note:"optimizer has each rank keep its part of the moments and update that part of the weights; it changes no bit" help:"what the ranks divide among them"`
	CheckEvery int     `toml:"check_every" range:"[0,1000000000]" note:"0 is never" help:"optimizer steps between two comparisons of all ranks' weights"`
	Timeout    float64 `toml:"timeout" range:"[1,86400]" help:"seconds without a sign of life after which a rank is taken for dead"`
}

// An OutputConfig says where the run folder goes.
type OutputConfig struct {
	Dir  string   `toml:"dir" help:"run folder; a new name if not given"`
	Sink []string `toml:"sink" help:"a program and its arguments that gets the run's metrics while it goes on: the resolved configuration first, every line of metrics.jsonl, and the summary last, as JSON lines on its standard input"`
}
