//go:build !cuda

package runtime

// devices are those whose memories tests check, by name.
var devices = []string{"cpu", "stand-in-cuda"}
