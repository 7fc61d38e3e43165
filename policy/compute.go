package policy

import (
	"fmt"

	"onering/internal/settings"
	"onering/models"
	"onering/runtime"
	_ "onering/runtime/cuda" // the devices that models are opened on
	"onering/runtime/provision"
)

// ComputeOn returns how a model computes on the device of env in the type dtype, a
// value of model.dtype.
func ComputeOn(env *runtime.Env, dtype string) (models.Compute, error) {
	compute := models.Compute{Provider: env.Provider()}
	var ok bool
	if compute.Type, ok = ComputeTypes[dtype]; !ok {
		return compute, fmt.Errorf("policy: there is no type %q to compute in: take float32, bfloat16 or float16", dtype)
	}
	return compute, nil
}

// ComputeTypes are the values of model.dtype. The tensors of a model folder may have
// the same types.
var ComputeTypes = map[string]models.DType{"float32": models.F32, "bfloat16": models.BF16, "float16": models.F16}

// BaseTypes are the values of lora.base_dtype.
var BaseTypes = map[string]models.DType{"float32": models.F32, "bfloat16": models.BF16, "float16": models.F16, "int8": models.I8}

// A RuntimeConfig says where the graphs run.
type RuntimeConfig struct {
	Device  string `toml:"device" help:"what to run on: cpu, cuda or cuda:N for a GPU of NVIDIA, or auto: a GPU where there is one and all that it needs, else the CPU"`
	Threads int    `toml:"threads" range:"[0,1024]" note:"0 is one for each core" help:"threads of the CPU's kernels"`
	Library string `toml:"library" complete:"file" help:"ONNX Runtime library, instead of the usual places; onering doctor says which they are"`
}

// Options returns the options for opening ONNX Runtime.
func (c RuntimeConfig) Options() runtime.Options {
	return runtime.Options{Options: provision.Options{Library: c.Library}, Device: c.Device, Threads: c.Threads}
}

// CheckTypes reports a device that does not exist, and a type to hold the layers in that does not
// go with it and the type to compute in. Each error is a *settings.Error; adapted
// says that there is an adapter.
func CheckTypes(dtype, base string, adapted bool, device string) (errs settings.Errors) {
	errs.Want("runtime.device", device, runtime.IsDevice(device), "must be "+runtime.Devices())
	remedy := refusedBase(base, adapted, dtype, device)
	errs.Want("lora.base_dtype", base, remedy == "", remedy)
	return errs
}

// refusedBase says why base, a value of lora.base_dtype, cannot hold the layers of a model that
// computes in dtype on device; adapted says that an adapter is trained. It is "" if base can.
func refusedBase(base string, adapted bool, dtype, device string) string {
	if base == "float32" || adapted && dtype == "float32" && (device == "cpu" || device == "auto") {
		return ""
	}
	return "is for an adapter (lora.on) on the CPU, with model.dtype float32"
}
