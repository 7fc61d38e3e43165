//go:build !windows

package cmd

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program is this test binary as onering; see TestMain.
func program(args ...string) *exec.Cmd {
	c := &exec.Cmd{Path: os.Args[0], Args: append([]string{"onering"}, args...), Env: append(os.Environ(), "ONERING_OFFLINE=1")}
	c.Stdout, c.Stderr = new(bytes.Buffer), new(bytes.Buffer)
	return c
}

// steps counts the optimizer steps in metrics.jsonl.
func steps(dir string) int {
	text, _ := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	return bytes.Count(text, []byte(`"kind":"step"`))
}

// lastState reads the state of the newest checkpoint.
func lastState(t *testing.T, dir string) (s struct{ Step int }) {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(dir, "checkpoints", "step-*", "state", "state.json"))
	if len(found) == 0 {
		t.Fatal("there is no checkpoint")
	}
	text, err := os.ReadFile(found[len(found)-1])
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A signal ends a run after the current step, with a checkpoint, the exit code that
// shells expect and the command to continue.
func TestSignalsSave(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	for _, tt := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}, {syscall.SIGHUP, 129}} {
		dir := filepath.Join(t.TempDir(), "run")
		c := program("train", "--out", dir, "--set", "eval.suites=", "--set", "rollout.prompts_per_round=16", "--set", "train.batch_size=16")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); steps(dir) < 3 && time.Since(began) < time.Minute; {
			time.Sleep(time.Millisecond)
		}
		c.Process.Signal(tt.signal)
		c.Wait()
		if got := c.ProcessState.ExitCode(); got != tt.code {
			t.Errorf("%v: exit code %d, want %d\n%s", tt.signal, got, tt.code, c.Stderr)
		}
		if want := "onering train --resume --out " + dir + "\n"; !strings.HasSuffix(c.Stderr.(*bytes.Buffer).String(), want) {
			t.Errorf("%v: stderr ends %q, want %q", tt.signal, c.Stderr, want)
		}
		if text := c.Stderr.(*bytes.Buffer).String(); strings.Contains(text, "not clean") {
			t.Errorf("%v: a clean stop is logged as an error:\n%s", tt.signal, text)
		}
		saved := lastState(t, dir)
		if saved.Step != steps(dir) || saved.Step < 3 {
			t.Errorf("%v: the checkpoint is of step %d, metrics.jsonl has %d", tt.signal, saved.Step, steps(dir))
		}
		again := program("train", "--resume", "--out", dir, "-q", "--json", "--set", "train.rounds=2")
		if err := again.Run(); err != nil || steps(dir) < saved.Step {
			t.Errorf("%v: resuming: %v\n%s", tt.signal, err, again.Stderr)
		}
	}
}

// A second signal does not wait, and the files on the disk can still be resumed.
func TestSecondSignal(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"--set", "eval.suites=", "--set", "rollout.prompts_per_round=16", "--set", "train.batch_size=16", "--set", "train.save_steps=1"}
	c := program(append([]string{"train", "--out", dir}, args...)...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); steps(dir) < 3 && time.Since(began) < time.Minute; {
		time.Sleep(time.Millisecond)
	}
	for range 20 { // The program may be in the middle of handling the first signal when the second arrives.
		c.Process.Signal(syscall.SIGINT)
		time.Sleep(time.Millisecond)
	}
	c.Wait()
	status := c.ProcessState.Sys().(syscall.WaitStatus)
	if !(status.Signaled() && status.Signal() == syscall.SIGINT) && status.ExitStatus() != 130 {
		t.Errorf("it ended with %v", c.ProcessState)
	}
	again := program("train", "--resume", "--out", dir, "-q", "--json", "--set", "train.rounds=2")
	if err := again.Run(); err != nil {
		t.Errorf("resuming: %v\n%s", err, again.Stderr)
	}
}

// A reader of stdout or stderr that closes early, as in "onering train | head -1", does
// not end a run, not even while the run prints its result.
func TestClosedPipes(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	defer write.Close()
	for _, json := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "run")
		c := program("train", "--out", dir, "--set", "train.rounds=1", "--set", "eval.suites=", "--set", "rollout.prompts_per_round=16", "--set", "train.batch_size=16")
		if json {
			c.Args = append(c.Args, "--json")
		}
		c.Stdout, c.Stderr = write, write
		if err := c.Run(); err != nil {
			log, failed := os.ReadFile(filepath.Join(dir, "log.txt"))
			t.Errorf("the run ended with %v after %d steps; its log (%v): %s", err, steps(dir), failed, log)
		}
		if saved := lastState(t, dir); saved.Step != steps(dir) || saved.Step == 0 {
			t.Errorf("the checkpoint is of step %d, metrics.jsonl has %d", saved.Step, steps(dir))
		}
	}
	// A run that fails still has its exit code.
	c := program("train", "--out", filepath.Join(t.TempDir(), "run"), "--set", "model.path=nowhere")
	c.Stdout, c.Stderr = write, write
	c.Run()
	if got := c.ProcessState.ExitCode(); got != exitFailed {
		t.Errorf("a wrong model: %v, want exit code %d", c.ProcessState, exitFailed)
	}
	// Other commands exist to print, so a closed pipe ends them.
	c = program("objectives")
	c.Stdout = write
	c.Run()
	if status := c.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGPIPE {
		t.Errorf("a list that nobody reads: %v, want the signal SIGPIPE", c.ProcessState)
	}
}
