package cmd

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/spf13/cobra"
)

// startProfile begins a CPU profile in the folder of --profile, and returns the
// prefix for ONNX Runtime's traces there and what ends the profile. Without the
// flag the prefix is empty and there is nothing to end.
func startProfile(c *cobra.Command) (prefix string, stop func(), err error) {
	dir, err := c.Flags().GetString("profile")
	if err != nil || dir == "" {
		return "", func() {}, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", nil, unreadable("--profile", dir, err, "name a folder")
	}
	f, err := os.Create(filepath.Join(dir, "cpu.pprof"))
	if err != nil {
		return "", nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return "", nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	stop = func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			slog.Warn("the profile is not whole", "error", err)
		}
	}
	return filepath.Join(dir, "onnxruntime"), stop, nil
}
