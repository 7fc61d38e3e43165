package cmd

import (
	"fmt"
	"log/slog"
	"onering/internal/cli"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/spf13/cobra"
)

// startProfile begins a CPU profile in the folder of --profile. It returns the
// prefix of the files for ONNX Runtime's traces, and a function that ends the
// profile. Without the flag the prefix is empty and the function does nothing.
func startProfile(c *cobra.Command) (prefix string, stop func(), err error) {
	dir, err := c.Flags().GetString("profile")
	if err != nil || dir == "" {
		return "", func() {}, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", nil, cli.Unreadable("--profile", dir, err, "name a folder")
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
			slog.Warn("the profile is incomplete", "error", err)
		}
	}
	return filepath.Join(dir, "onnxruntime"), stop, nil
}
