//go:build linux

package cmd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"onering/train"
)

// What `train --dry-run` says of the run without a run file is what that run
// takes, as the system counts it.
func TestDryRunMeasured(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("trains for some seconds")
	case !libraryFound():
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// TestMain makes the test binary the program where it is called by its name.
	onering := func(args ...string) (stdout []byte, peak int64) {
		c := exec.Command(program)
		c.Args = append([]string{"onering", "train", "-q", "--set", "train.rounds=8"}, args...)
		stdout, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %v", c.Args, err)
		}
		return stdout, c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	text, _ := onering("--dry-run", "--json")
	var e train.MemoryEstimate
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	_, measured := onering("--out", filepath.Join(t.TempDir(), "run"))
	ratio := float64(e.Peak) / float64(measured)
	t.Logf("estimated %.1f MB, measured %.1f MB: %.3f", float64(e.Peak)/1e6, float64(measured)/1e6, ratio)
	if ratio < 0.9 || ratio > 1.1 {
		t.Errorf("the estimate is %.3f of what was measured, want it within 10 %%", ratio)
	}
}
