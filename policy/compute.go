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
var BaseTypes = map[string]models.DType{"float32": models.F32, "bfloat16": models.BF16, "float16": models.F16, "int8": models.I8, "nf4": models.NF4}

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
// go with it and the type to compute in. Each error is a *settings.Error.
func CheckTypes(dtype, base, device string) (errs settings.Errors) {
	errs.Want("runtime.device", device, runtime.IsDevice(device), "must be "+runtime.Devices())
	remedy := ""
	switch {
	case base == "float32":
	case device != "cpu" && device != "auto":
		remedy = "is for the CPU: on a GPU model.dtype says what the layers have"
	case dtype == "float16":
		remedy = "goes with model.dtype float32 or bfloat16"
	}
	errs.Want("lora.base_dtype", base, remedy == "", remedy)
	return errs
}
