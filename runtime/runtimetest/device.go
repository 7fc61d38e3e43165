//go:build !cuda

package runtimetest

// device is what tests run on.
const device = "cpu"
