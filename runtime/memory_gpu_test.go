//go:build cuda

package runtime

// devices are those whose memories tests check, by name. A process has one library, so
// the others are on that of CUDA.
var devices = []string{"cuda:0", "cpu", "stand-in-cuda", "stand-in-webgpu"}
