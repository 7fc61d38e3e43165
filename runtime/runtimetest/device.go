//go:build !cuda && !webgpu

package runtimetest

// Device is what tests run on.
const Device = "cpu"
