//go:build linux

package learn_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"onering/models"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train/learn"
	"onering/train/ranks"
)

// standIn opens a stand-in for a device, made of the host's memory.
func standIn(t *testing.T, device string) *runtime.Env {
	t.Helper()
	cpu := runtimetest.Test(t)
	if cpu.Device() != "cpu" {
		t.Skip("takes a stand-in for a device")
	}
	env, err := runtime.Open(context.Background(), runtime.Options{Threads: cpu.Threads(), Device: device, KeepSessions: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { env.Close() })
	return env
}

// digest returns a digest of the values that Programs read of w.
func digest(env *runtime.Env, w *models.Weights) (text string, err error) {
	err = env.Spread(w, 0, []int{0, len(w.Data)}, func(x []byte, _ []int) error {
		text = fmt.Sprintf("%x", sha256.Sum256(append([]byte(text), x...)))
		return nil
	})
	return text, err
}

// onDevices has n ranks link their devices, take two steps each and describe the results.
// before is called before each step.
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
				err := errors.Join(env.Download(w), s.Collect(true))
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

// Sums on the devices have the same bits as sums by MPI through the host, for any number
// of ranks, with all or part of the moments, in many buckets and one.
func TestNCCLEqualsMPI(t *testing.T) {
	env := standIn(t, "stand-in")
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

// TestNCCLEnds: a rank that ends the run also ends the waits of other ranks' devices, with its
// message.
func TestNCCLEnds(t *testing.T) {
	env := standIn(t, "stand-in")
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

// Ranks that share the moments and hold moments and float32 weights on the host get the
// same weights as ranks with everything on their devices.
func TestShardedOffload(t *testing.T) {
	runtimetest.NCCL(t, "../..")
	var want []string
	for _, offload := range []runtime.Offload{runtime.OffloadNone, runtime.OffloadAll} {
		said, errs := make([]string, 2), make([]error, 2)
		var wait sync.WaitGroup
		for r, way := range ranks.Local(2) {
			env, group := standIn(t, "stand-in"), ranks.New(way)
			s, w := openOffloaded(t, env, models.F16, offload, learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: 128}, Ranks: group, Shard: true, Bucket: 3000})
			wait.Go(func() {
				_, err := group.Link(env, "auto")
				for step := range 2 {
					if err == nil {
						_, err = s.Step(context.Background(), drawBatch(8+step), nil)
					}
				}
				if errs[r] = errors.Join(err, env.Download(w), s.Collect(true)); errs[r] != nil {
					group.Abort(errs[r])
				}
				text, err := digest(env, w)
				if said[r] = text; r == 0 {
					said[r] += w.Checksum() + s.Optimizer().State["exp_avg"].Checksum()
				}
				errs[r] = errors.Join(errs[r], err, s.Follow(), group.Unlink())
				s.Drop()
				text, err = digest(env, w)
				errs[r] = errors.Join(errs[r], err, env.Download(w))
				said[r] += text + w.Checksum()
			})
		}
		wait.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = said
		}
		if said[0] != want[0] || said[1] != want[1] || said[0][:64] != said[1][:64] {
			t.Errorf("offloaded %v: %q, want %q", offload, said, want)
		}
	}
}

// Ranks that divide float32 weights and moments come to the weights of those that each have
// all, bit for bit, on the CPU and on devices: the first has them whole where it collects
// them, and all have the same 16-bit copy. What the first gives the others after that is what
// each goes on with. Of the others' weights a rank has only the copy. So they do where sums
// of gradients are held in bfloat16.
func TestDivided(t *testing.T) {
	m, err := models.ReadConfig("../../models/testdata/torch/tied/hf")
	if err != nil {
		t.Fatal(err)
	}
	arch, err := m.Architecture(models.Compute{Type: models.F16})
	if err != nil {
		t.Fatal(err)
	}
	for i, device := range []string{"cpu", "stand-in", "stand-in", "stand-in-cuda"} {
		n, want := []int{4, 2, 4, 2}[i], [][]float32(nil)
		if i > 1 && os.Getenv("ONERING_LONG") == "" {
			break
		}
		for _, shard := range []bool{false, true} {
			read, errs := make([]string, n), make([]error, n)
			var whole, state []float32
			var wait sync.WaitGroup
			for r, way := range ranks.Local(n) {
				env, group := runtimetest.Test(t), ranks.New(way)
				if device != "cpu" {
					env = standIn(t, device)
				}
				s, w := openOn(t, env, models.F16, learn.Options{Optimizer: adamW, Passes: learn.Passes{MicroTokens: 128}, Ranks: group, Shard: shard, Bucket: 1500})
				step := func(n int) error {
					sent := group.Sent()
					_, err := s.Step(context.Background(), drawBatch(8+n), nil)
					if sent, want := group.Sent()-sent, ranks.Volume(r, group.Size(), s.Buckets(), runtime.SpreadBytes(arch, shard)); err == nil && sent != want {
						err = fmt.Errorf("sent %d bytes, predicted %d", sent, want)
					}
					if err != nil {
						return err
					}
					text, err := digest(env, w)
					read[r] += text
					if err = errors.Join(err, s.Collect(true)); r == 0 {
						whole, state = slices.Clone(w.Data), slices.Clone(s.Optimizer().State["exp_avg"].Data)
					}
					if err = errors.Join(err, s.Follow(), env.Download(w)); err != nil {
						return err
					}
					others := 0
					for i, x := range w.Data {
						if x != whole[i] {
							others++
						}
					}
					if env.Forget(w); shard != (others > 100) {
						return fmt.Errorf("%d of %d weights are not those of the first rank", others, len(whole))
					}
					return nil
				}
				wait.Go(func() {
					for n := range 3 {
						if errs[r] = step(n); errs[r] != nil {
							group.Abort(errs[r])
							return
						}
					}
				})
			}
			wait.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%s, %d ranks, divided %v: %v", device, n, shard, err)
			}
			if want == nil {
				want = [][]float32{whole, state}
			}
			if !slices.Equal(whole, want[0]) || !slices.Equal(state, want[1]) || read[0] != read[n-1] {
				t.Errorf("%s, %d ranks, divided %v: other weights or moments, or %q and %q", device, n, shard, read[0], read[n-1])
			}
		}
	}
}
