//go:build !cuda && !webgpu

package runtimetest

// Device is the device on which tests run.
const Device = "cpu"
