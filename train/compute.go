package train

import (
	"fmt"

	"onering/models"
	"onering/runtime"
)

// ComputeOn returns how a model computes on the device of env in the type dtype, a
// value of model.dtype.
func ComputeOn(env *runtime.Env, dtype string) (models.Compute, error) {
	compute := models.Compute{Provider: models.CPU}
	var ok bool
	if compute.Type, ok = ComputeTypes[dtype]; !ok {
		return compute, fmt.Errorf("train: there is no type %q to compute in: take float32, bfloat16 or float16", dtype)
	}
	if compute.Type == models.BF16 && env.Device() == "cpu" {
		return compute, fmt.Errorf("train: bfloat16: %s", BFloat16OnCPU)
	}
	if env.Device() != "stand-in" { // whose tests want the CPU's bits
		compute.Provider = runtime.ProviderOf(env)
	}
	if compute.Provider == models.WebGPU && compute.Type != models.F32 {
		return compute, fmt.Errorf("train: %s: in 16 bits no graph has been run on %s yet: compute in float32", dtype, env.Device())
	}
	return compute, nil
}

// BFloat16OnCPU says why no model computes in bfloat16 on the CPU.
const BFloat16OnCPU = "ONNX Runtime has no products of bfloat16 on the CPU: compute in float32, or in float16, or on a GPU (cuda:0)"

// ComputeTypes are the values of model.dtype. The tensors of a model folder may have
// the same types.
var ComputeTypes = map[string]models.DType{"float32": models.F32, "bfloat16": models.BF16, "float16": models.F16}

// BaseTypes are the values of lora.base_dtype.
var BaseTypes = map[string]models.DType{"float32": models.F32, "bfloat16": models.BF16, "float16": models.F16, "int8": models.I8}
