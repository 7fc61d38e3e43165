//go:build cuda

package runtime

// devices are those whose memories tests check, by name. A process has one library, so
// the tests of other memories use CUDA's library.
var devices = []string{"cuda:0", "cpu", "stand-in-cuda"}
