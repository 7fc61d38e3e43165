//go:build webgpu

package runtimetest

import _ "onering/runtime/webgpu"

// Device is what tests run on: with the build tag webgpu the GPU that ONNX Runtime's
// WebGPU provider takes, which may be one in software. Where there is none they are
// skipped with the reason.
const Device = "webgpu"
