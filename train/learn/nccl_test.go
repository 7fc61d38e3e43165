//go:build linux

package learn_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"onering/models"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train/learn"
	"onering/train/ranks"
)

// standIn opens a device made of the host's memory.
func standIn(t *testing.T) *runtime.Env {
	t.Helper()
	cpu := runtimetest.Test(t)
	if cpu.Device() != "cpu" {
		t.Skip("takes a stand-in for a device")
	}
	env, err := runtime.Open(context.Background(), runtime.Options{Threads: cpu.Threads(), Device: "stand-in", KeepSessions: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { env.Close() })
	return env
}

// onDevices has n ranks link their devices, take two steps each and say in words what came
// of them. before is called before each step.
func onDevices(t *testing.T, env *runtime.Env, n int, compute models.DType, transport string, o learn.Options, before func(g *ranks.Group, step int) error) (said []string, errs []error) {
	t.Helper()
	said, errs = make([]string, n), make([]error, n)
	var wait sync.WaitGroup
	for r, way := range ranks.Local(n) {
		group, own := ranks.New(way), o
		own.Ranks = group
		s, w := openOn(t, env, compute, own)
		wait.Go(func() {
			how, err := group.Link(env, transport)
			if errs[r] = err; err != nil {
				return
			}
			if errs[r] = func() error {
				for step := range 2 {
					if err := before(group, step); err != nil {
						return err
					}
					report, err := s.Step(context.Background(), drawBatch(8+step), nil)
					if err != nil {
						return err
					}
					said[r] += fmt.Sprintln(step, report.LogProb, report.GradNorm, report.Early)
				}
				err := errors.Join(env.Download(w), s.Collect())
				said[r] += fmt.Sprintln(w.Checksum(), group.Sent())
				if r == 0 {
					said[r] += s.Optimizer().State["exp_avg_sq"].Checksum()
				}
				return errors.Join(err, s.Follow())
			}(); errs[r] != nil {
				group.Abort(errs[r])
			}
			errs[r] = errors.Join(errs[r], group.Unlink())
			if want := map[bool]string{true: "mpi", false: "nccl 2.27.3"}[transport == "mpi"]; how != want {
				errs[r] = fmt.Errorf("linked by %s", how)
			}
		})
	}
	wait.Wait()
	return said, errs
}

// Sums on the devices have the bits of those that MPI brings through the host, for any
// number of ranks, with all of the moments and with a part, in many buckets and one.
func TestNCCLEqualsMPI(t *testing.T) {
	env := standIn(t)
	runtimetest.NCCL(t, "../..")
	for i, compute := range []models.DType{models.F32, models.F16, models.F32, models.F16} {
		if i > 1 && os.Getenv("ONERING_LONG") == "" {
			break
		}
		n, o := []int{2, 3, 4, 4}[i], learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: 128}, Shard: i%2 == 1, Bucket: []int{5000, 3000, 700, 300}[i]}
		well := func(*ranks.Group, int) error { return nil }
		want, errs := onDevices(t, env, n, compute, "mpi", o, well)
		got, more := onDevices(t, env, n, compute, "auto", o, well)
		if err := errors.Join(append(errs, more...)...); err != nil {
			t.Fatalf("%d ranks: %v", n, err)
		}
		for r := range want {
			if got[r] != want[r] {
				t.Errorf("rank %d of %d, sharded: %v\n%s\nby MPI\n%s", r, n, o.Shard, got[r], want[r])
			}
		}
	}
}

// A rank that ends the run ends what the others wait for on their devices, with its words.
func TestNCCLEnds(t *testing.T) {
	env := standIn(t)
	runtimetest.NCCL(t, "../..")
	_, errs := onDevices(t, env, 3, models.F32, "nccl", learn.Options{Optimizer: adamW}, func(g *ranks.Group, step int) error {
		if step == 1 && g.Rank() == 1 {
			return errors.New("the card is on fire")
		}
		return nil
	})
	for r, err := range errs {
		if text := fmt.Sprint(err); r != 1 && !strings.Contains(text, "rank 1 ended the run: ") || !strings.Contains(text, "the card is on fire") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Ranks that share the moments and keep these and float32 weights on the host come to the
// weights of those that keep all on their devices.
func TestShardedOffload(t *testing.T) {
	runtimetest.NCCL(t, "../..")
	var want []string
	for _, offload := range []bool{false, true} {
		said, errs := make([]string, 2), make([]error, 2)
		var wait sync.WaitGroup
		for r, way := range ranks.Local(2) {
			env, group := standIn(t), ranks.New(way)
			s, w := openOn(t, env, models.F16, learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: 128}, Ranks: group, Shard: true, Bucket: 3000, Offload: offload})
			wait.Go(func() {
				_, err := group.Link(env, "auto")
				for step := range 2 {
					if err == nil {
						_, err = s.Step(context.Background(), drawBatch(8+step), nil)
					}
				}
				if errs[r] = errors.Join(err, env.Download(w), s.Collect()); errs[r] != nil {
					group.Abort(errs[r])
				}
				said[r] = w.Checksum()
				if r == 0 {
					said[r] += s.Optimizer().State["exp_avg"].Checksum()
				}
				s.Drop()
				errs[r] = errors.Join(errs[r], s.Follow(), group.Unlink())
				env.Forget(w)
				errs[r] = errors.Join(errs[r], env.Download(w))
				said[r] += w.Checksum()
			})
		}
		wait.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = said
		}
		if said[0] != want[0] || said[1] != want[1] || said[0][:20] != said[1][:20] {
			t.Errorf("offloaded %v: %q, want %q", offload, said, want)
		}
	}
}
