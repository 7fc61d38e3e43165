// Package train is the life of a run: what every task of training has in common.
package train

import (
	"onering/models/lora"
	"onering/runtime"
	"onering/runtime/provision"
	"slices"
	"strconv"
	"strings"
)

// A LoRAConfig says whether an adapter is trained in place of the weights, and which.
type LoRAConfig struct {
	On bool `toml:"on" flag:"lora" help:"train a LoRA adapter in place of the weights; without a learning rate of its own, a run then has ten times the default one"`
	lora.Settings
	BaseDType string `toml:"base_dtype" flag:"base-dtype" choice:"float32 bfloat16 float16 int8" help:"type that the matrices of the model's layers are held in beside an adapter; they are rounded to it, and widened layer by layer as the graphs run, which takes less memory and more time; int8 has a scale for every 32 numbers of a row" note:"types other than float32 are for the CPU, with model.dtype float32"`
}

// Check reports a type of the base that does not go with the rest of a run.
func (c LoRAConfig) Check(dtype, device string) (ok bool, remedy string) {
	return c.BaseDType == "float32" || c.On && dtype == "float32" && (device == "cpu" || device == "auto"),
		"is for an adapter (lora.on) on the CPU, with model.dtype float32"
}

// Options say what to open ONNX Runtime with.
func (c RuntimeConfig) Options() runtime.Options {
	return runtime.Options{Options: provision.Options{Library: c.Library}, Device: c.Device, Threads: c.Threads}
}

// A RuntimeConfig says where the graphs run.
type RuntimeConfig struct {
	Device  string `toml:"device" help:"what to run on: cpu, cuda or cuda:N for a GPU of NVIDIA, webgpu for any GPU (webgpu:1 for the most frugal), or auto: a GPU where there is one and all that it needs, else the CPU"`
	Threads int    `toml:"threads" range:"[0,1024]" note:"0 is one for each core" help:"threads of the CPU's kernels"`
	Library string `toml:"library" help:"ONNX Runtime library, instead of the usual places; onering doctor says which they are"`
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

// Devices says what names there are of devices to run on.
const Devices = "cpu, cuda, cuda:N with the number of a device, webgpu for the fastest GPU, webgpu:1 for the most frugal, or auto"

// IsDevice says whether value is such a name.
func IsDevice(value string) bool {
	if n, found := strings.CutPrefix(value, "cuda:"); found {
		i, err := strconv.Atoi(n)
		return err == nil && i >= 0 && strconv.Itoa(i) == n
	}
	return slices.Contains([]string{"cpu", "auto", "cuda", "webgpu", "webgpu:0", "webgpu:1"}, value)
}
