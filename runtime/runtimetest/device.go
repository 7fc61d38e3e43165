//go:build !cuda

package runtimetest

// Device is the device on which tests run.
const Device = "cpu"
