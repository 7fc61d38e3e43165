//go:build !windows

package rl_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/data"
	"onering/internal/bench"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/kernels/host"
	"onering/runtime/runtimetest"
	"onering/train/rl"
)

// TestInvariantRollouts: with rollout.invariant a run is the same for any number
// of slots.
func TestInvariantRollouts(t *testing.T) {
	env := runtimetest.Test(t)
	var want map[string]string
	for _, slots := range []int{16, 1, 5} {
		dir, _ := start(t, env, "reference", func(c *rl.Config) {
			c.Rollout.Invariant, c.Rollout.Slots = true, slots
			c.Train.Rounds = 2
		})
		got := map[string]string{}
		for name, text := range contents(t, dir) {
			if strings.HasPrefix(name, "rollouts") || strings.HasSuffix(name, ".safetensors") {
				got[name] = text
			}
		}
		if len(got) < 4 {
			t.Fatalf("files %v", slices.Sorted(maps.Keys(got)))
		}
		if want == nil {
			want = got
		}
		same(t, fmt.Sprintf("%d slots", slots), got, want)
	}
}

// cpuAndStandIn returns the CPU and a stand-in for a device, to be compared: without operators of our own in
// float32, which the stand-in does not have.
func cpuAndStandIn(t *testing.T) (cpu, standIn *runtime.Env) {
	cpu = runtimetest.Test(t)
	if cpu.Device() != "cpu" {
		t.Skip("compares a stand-in with the CPU")
	}
	standIn, err := runtime.Open(context.Background(), runtime.Options{Threads: cpu.Threads(), Device: "stand-in", KeepSessions: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { standIn.Close() })
	t.Cleanup(func() { host.Choose() })
	if err := host.Use("plain"); err != nil {
		t.Fatal(err)
	}
	return cpu, standIn
}

// TestDeviceTrains trains on a stand-in for a device, whole and resumed from a
// checkpoint, and wants the same files as from a run on the CPU: all state on the device
// reaches the files.
func TestDeviceTrains(t *testing.T) {
	cpu, env := cpuAndStandIn(t)
	often := func(c *rl.Config) { c.Train.SaveEvery, c.Train.SaveSteps, c.Train.KeepLast = 1, 1, 100 }
	for kind := range chaosKinds {
		dir, _ := start(t, cpu, kind, often)
		want := contents(t, dir)
		dir, checkpoints := start(t, env, kind, often)
		same(t, kind, contents(t, dir), want)
		for _, name := range checkpoints[len(checkpoints)/2:] {
			if err := os.RemoveAll(filepath.Join(dir, "checkpoints", name)); err != nil {
				t.Fatal(err)
			}
		}
		c := chaosConfig(kind, dir)
		often(&c)
		if _, err := continueRun(env, c, true); err != nil {
			t.Fatal(err)
		}
		same(t, kind+", resumed", contents(t, dir), want)
	}
	if up, down := env.Crossed(); up == 0 || down == 0 {
		t.Errorf("%d bytes went to the device and %d came back", up, down)
	}
}

// TestDeviceLost: wherever a device stops to answer, a run ends with an error that names
// it and the remedy, and its saved files are complete: the resumed run ends with the
// files of a run that was never cut. With ONERING_LONG=1 it is cut in more places.
func TestDeviceLost(t *testing.T) {
	cpu, env := cpuAndStandIn(t)
	often := func(c *rl.Config) { c.Train.SaveEvery, c.Train.SaveSteps, c.Train.KeepLast = 1, 1, 100 }
	const kind = "dapo"
	dir, _ := start(t, env, kind, often)
	want := contents(t, dir)
	cut := map[int]bool{} // The device stops after this many checkpoints; a slow disk has fewer.
	apart := 180          // calls of the device between two places
	if os.Getenv(longVariable) != "" {
		apart = 60
	}
	for calls := 1; ; calls += apart {
		lost, err := runtime.Open(context.Background(), runtime.Options{Threads: cpu.Threads(), Device: fmt.Sprintf("stand-in:%d", calls)})
		if err != nil {
			t.Fatal(err)
		}
		c := chaosConfig(kind, filepath.Join(t.TempDir(), "run"))
		often(&c)
		log, err := continueRun(lost, c, false)
		if closed := lost.Close(); closed != nil {
			t.Error(closed)
		}
		if err == nil {
			break // the run ended first
		}
		if !errors.Is(err, runtime.ErrLost) || !strings.Contains(err.Error(), fmt.Sprintf("stand-in:%d: the device is lost", calls)) || !strings.Contains(err.Error(), "--resume") || strings.Contains(log, "halved") {
			t.Fatalf("lost after %d calls: %v\n%s", calls, err, log)
		}
		if _, err := os.Stat(c.Output.Dir); err != nil {
			continue // The device was lost before the run had a folder.
		}
		whole := 0
		if _, err := os.Stat(filepath.Join(c.Output.Dir, "checkpoints")); err == nil {
			whole = len(list(t, c.Output.Dir))
		}
		cut[whole] = true
		if _, err := continueRun(env, c, true); err != nil {
			t.Fatalf("resumed after %d checkpoints: %v", whole, err)
		}
		same(t, fmt.Sprintf("lost after %d calls and resumed", calls), contents(t, c.Output.Dir), want)
	}
	if len(cut) < 3 {
		t.Errorf("runs were cut after %v checkpoints", cut)
	}

	o := bench.Parts{Batch: []int{2}, Context: 10, Steps: 100, Rows: 2, Tokens: 20, Prompt: 5, Group: 1, Repeat: 100, Optimizer: "adamw"}
	for name, bench := range map[string]func(env *runtime.Env, p *policy.Policy) error{
		"decoding": func(env *runtime.Env, p *policy.Policy) error { _, err := o.Decode(env, p); return err },
		"training": func(env *runtime.Env, p *policy.Policy) error {
			_, err := o.Train(t.Context(), env, p, true)
			return err
		},
	} {
		lost, err := runtime.Open(context.Background(), runtime.Options{Threads: cpu.Threads(), Device: "stand-in:90"})
		if err != nil {
			t.Fatal(err)
		}
		policy, err := policy.Open(lost, policy.Options{Path: data.Arithmetic, DType: "float32"})
		if err != nil {
			t.Fatal(err)
		}
		if err := bench(lost, policy); !errors.Is(err, runtime.ErrLost) {
			t.Errorf("bench of %s: %v", name, err)
		}
		policy.Close()
		if err := lost.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRepeated: on the device of the tests, a second run writes the same files as the
// first, and so does a run that is killed and resumed.
func TestRepeated(t *testing.T) {
	env := runtimetest.Test(t)
	const kind = "dapo"
	dir, checkpoints := start(t, env, kind, nil)
	want := contents(t, dir)
	dir, _ = start(t, env, kind, nil)
	same(t, "repeated", contents(t, dir), want)

	dir = filepath.Join(t.TempDir(), "run")
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), chaosVariable+"="+dir, kindVariable+"="+kind, killVariable+"=60")
	var killed *exec.ExitError
	if out, err := process.CombinedOutput(); !errors.As(err, &killed) || killed.ExitCode() != -1 {
		t.Fatalf("the process ended with %v\n%s", err, out)
	}
	if left := list(t, dir); len(left) == 0 || slices.Contains(left, checkpoints[len(checkpoints)-1]) {
		t.Fatalf("it was killed with the checkpoints %v", left)
	}
	if _, err := continueRun(env, chaosConfig(kind, dir), true); err != nil {
		t.Fatal(err)
	}
	same(t, "killed and resumed", contents(t, dir), want)
}

// TestRanksOnDevice: two ranks whose weights, gradients and moments are on a device, and
// pass through the host's memory on their way to each other, write the same files as two
// ranks on the CPU, in one go and resumed, with all of the moments and with half of them.
func TestRanksOnDevice(t *testing.T) {
	cpu, env := cpuAndStandIn(t)
	for _, shard := range []string{"none", "optimizer"} {
		run := func(env *runtime.Env) map[string]string {
			dir := filepath.Join(t.TempDir(), "run")
			config := func(int) rl.Config {
				c := kindConfig("dapo", dir)
				c.Distributed.Shard, c.Distributed.CheckEvery = shard, 1
				return c
			}
			wellTogether(t, env, 2, false, config)
			names := list(t, dir)
			for _, name := range names[len(names)/2:] {
				if err := os.RemoveAll(filepath.Join(dir, "checkpoints", name)); err != nil {
					t.Fatal(err)
				}
			}
			wellTogether(t, env, 2, true, config)
			return contents(t, dir)
		}
		same(t, "shard = "+shard, run(env), run(cpu))
	}
}

// TestDeviceOffloads: a run whose moments and float32 weights are on the host writes the same
// files as a run that keeps them on the device, also when it is resumed from a checkpoint of
// such a run.
func TestDeviceOffloads(t *testing.T) {
	_, env := cpuAndStandIn(t)
	often := func(c *rl.Config) {
		every(c)
		c.Model.DType, c.Train.Rounds = "float16", 2
	}
	offloaded := func(c *rl.Config) {
		often(c)
		c.Optimizer.Offload = runtime.OffloadAll
	}
	dir, checkpoints := start(t, env, "reference", often)
	want := contents(t, dir)
	for _, first := range []func(*rl.Config){offloaded, often} {
		dir, _ := start(t, env, "reference", first)
		same(t, "offloaded", contents(t, dir), want)
		for _, name := range checkpoints[len(checkpoints)/2:] {
			if err := os.RemoveAll(filepath.Join(dir, "checkpoints", name)); err != nil {
				t.Fatal(err)
			}
		}
		c := chaosConfig("reference", dir)
		offloaded(&c)
		if _, err := continueRun(env, c, true); err != nil {
			t.Fatal(err)
		}
		same(t, "offloaded, resumed", contents(t, dir), want)
	}
}
