//go:build unix && !linux

package models

// adviseHuge does nothing: this system chooses page sizes itself.
func adviseHuge([]byte) {}

func noHuge([]float32) {}
