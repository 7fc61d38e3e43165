//go:build linux

package rl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"onering/policy"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train/rl"
)

// A scarce provider has one device, a stand-in whose memory ends.
type scarce struct {
	runtime.Provider // the stand-in's methods, except those defined below
	memory           *scarceMemory
}

func (scarce) Name() string { return "scarce" }

func (s scarce) Open(runtime.Options, int, string) (*runtime.Backend, error) {
	return &runtime.Backend{Driver: s.memory, InOrder: true}, nil
}

// A scarceMemory refuses, while it is watched, the allocation with number at, and, if
// forever is set, all later ones too.
type scarceMemory struct {
	runtimetest.Host
	watched, forever atomic.Bool
	at, count        atomic.Int64
}

func (m *scarceMemory) Alloc(bytes int) (unsafe.Pointer, error) {
	if m.watched.Load() {
		if n, at := m.count.Add(1), m.at.Load(); n == at || m.forever.Load() && n > at {
			return nil, fmt.Errorf("out of memory: %d bytes", bytes)
		}
	}
	return m.Host.Alloc(bytes)
}

var scarceDevice = func() *scarceMemory {
	m := new(scarceMemory)
	runtime.RegisterProvider(scarce{runtime.ProviderOf("stand-in"), m})
	return m
}()

// Whichever allocation of a run's steps fails, alone or with all after it, the run either
// continues with smaller micro-batches or stops with a checkpoint. Resumed, it ends with
// the bytes of a run that was never stopped, unless micro-batches were made smaller. With
// ONERING_LONG=1 all allocations are tried, else one in eleven.
func TestScarceMemory(t *testing.T) {
	cpu := runtimetest.Test(t)
	if cpu.Device() != "cpu" {
		t.Skip("the device of the test is a stand-in")
	}
	env, err := runtime.Open(t.Context(), runtime.Options{Threads: cpu.Threads(), Device: "scarce", KeepSessions: true})
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	model, m := smallestModel(t), scarceDevice
	run := func(dir string, resume bool, at int64, forever bool) (string, error) {
		c := chaosConfig("dapo", dir)
		set(&c, "reinforcepp", `{}`)
		c.Model.Path, c.Rollout.MaxNewTokens = model, 3
		c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt = 2, 2
		c.Reward = rl.RewardConfig{Name: "parity", Rule: parity{&machine{counts: map[string]int{}}, 0, false}}
		c.Train.Rounds, c.Train.BatchSize, c.Train.SaveSteps, c.Train.MicroTokens = 1, 2, 0, 256
		p, err := policy.Open(env, policy.Options{Path: model, DType: c.Model.DType})
		if err != nil {
			return "", err
		}
		defer p.Close()
		var log strings.Builder
		trainer, err := rl.New(t.Context(), c, env, p, slog.New(slog.NewTextHandler(&log, nil)), &quiet{})
		if err != nil {
			return "", err
		}
		defer trainer.Close()
		defer m.watched.Store(false)
		m.at.Store(at)
		m.count.Store(0)
		m.forever.Store(forever)
		rl.SetBeforePass(trainer, func(int) error { m.watched.Store(at > 0); return nil })
		_, err = trainer.Run(context.Background(), resume)
		return log.String(), err
	}
	home := t.TempDir()
	if _, err := run(filepath.Join(home, "whole"), false, 1<<40, false); err != nil {
		t.Fatal(err)
	}
	want, all := contents(t, filepath.Join(home, "whole")), m.count.Load()
	tally, stride := map[string]int{}, int64(11)
	if os.Getenv("ONERING_LONG") != "" {
		stride = 1
	}
	for n := int64(1); n <= 2*all; n += stride {
		dir, forever := filepath.Join(home, fmt.Sprint(n)), n > all
		log, err := run(dir, false, (n-1)%all+1, forever)
		what, halved := "undisturbed", strings.Contains(log, "micro-batches are halved")
		switch {
		case err == nil && halved:
			what = "smaller passes"
		case err != nil && !strings.Contains(err.Error(), "out of memory"):
			t.Errorf("allocation %d of %d, all after it %v: %v", n, all, forever, err)
		case err != nil:
			if what = "stopped"; len(list(t, dir)) != 1 && !errors.Is(err, runtime.ErrLost) {
				t.Errorf("allocation %d of %d, all after it %v: stopped without a checkpoint: %v", n, all, forever, err)
			}
			if _, err := run(dir, true, 0, false); err != nil {
				t.Errorf("allocation %d of %d, all after it %v: resumed: %v", n, all, forever, err)
			}
		}
		tally[what]++
		if got := contents(t, dir); !halved {
			same(t, fmt.Sprintf("allocation %d of %d, all after it %v, %s", n, all, forever, what), got, want)
		} else if strings.Count(got["metrics.jsonl"], `"kind":"step"`) != strings.Count(want["metrics.jsonl"], `"kind":"step"`) {
			t.Errorf("allocation %d of %d: other steps", n, all)
		}
	}
	t.Logf("%d allocations: %v", all, tally)
}
