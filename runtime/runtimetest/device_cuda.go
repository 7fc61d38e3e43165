//go:build cuda

package runtimetest

import _ "onering/runtime/cuda"

// Device is what tests run on: with the build tag cuda the first GPU, and where
// there is none that can be used they are skipped with the reason.
const Device = "cuda:0"
