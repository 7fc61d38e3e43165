//go:build webgpu

package runtimetest

import _ "onering/runtime/webgpu"

// Device is the device on which tests run: with the build tag webgpu the GPU of ONNX
// Runtime's WebGPU provider, which may be a software one. Without one, tests are skipped
// with the reason.
const Device = "webgpu"
