package sweep

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain makes the test binary play onering train, which TrainAll starts, or a sweep.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "train":
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		dir := os.Getenv("SWEEP_TEST")
		os.WriteFile(filepath.Join(dir, "begun"), fmt.Append(nil, os.Args[1:]), 0o666)
		select {
		case <-stop:
			os.WriteFile(filepath.Join(dir, "stopped"), nil, 0o666)
		case <-time.After(time.Minute):
		}
	case len(os.Args) > 1 && os.Args[1] == "sweep":
		TrainAll(context.Background(), []*Run{{Dir: os.Args[2]}}, 1, func() {})
	default:
		os.Exit(m.Run())
	}
}

// TestKilledSweep: a run ends with its sweep, and continues from its checkpoint in a
// folder of any name.
func TestKilledSweep(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells children of their parent's end")
	}
	dir := t.TempDir()
	run := filepath.Join(dir, "sw[1]", "a*", "seed-1")
	checkpoint := filepath.Join(run, "checkpoints", "step-000001")
	if err := os.MkdirAll(checkpoint, 0o777); err != nil {
		t.Fatal(err)
	}
	sweep := exec.Command(os.Args[0], "sweep", run)
	sweep.Env = append(os.Environ(), "SWEEP_TEST="+dir)
	if err := sweep.Start(); err != nil {
		t.Fatal(err)
	}
	await := func(name string) string {
		t.Helper()
		for range 3000 {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil && (name == "stopped" || len(text) > 0) {
				return string(text)
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("no run has %s", name)
		return ""
	}
	if args := await("begun"); !strings.Contains(args, "--resume --out "+run) {
		t.Errorf("it began with %s", args)
	}
	sweep.Process.Kill()
	sweep.Wait()
	await("stopped")
	if _, err := os.Stat(checkpoint); err != nil {
		t.Errorf("the checkpoint is gone: %v", err)
	}
}
