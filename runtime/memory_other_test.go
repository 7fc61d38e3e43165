//go:build !webgpu

package runtime

import "testing"

// deviceMemories returns the memories of devices that TestMemories checks too.
func deviceMemories(*testing.T) []memory { return nil }
