//go:build cuda

package runtimetest

import _ "onering/runtime/cuda"

// Device is the device on which tests run: with the build tag cuda the first GPU. Without
// a usable one, tests are skipped with the reason.
const Device = "cuda:0"
