//go:build !cuda && !webgpu

package runtimetest

// device is what tests run on.
const device = "cpu"
