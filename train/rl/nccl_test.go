//go:build linux

package rl_test

import (
	"os"
	"path/filepath"
	"testing"

	"onering/runtime/runtimetest"
	"onering/train/rl"
)

// TestRanksByNCCL: ranks whose devices send gradients and weights to each other by NCCL
// write the same files as ranks that send them by MPI, through the host, with all of the
// moments and with a part. The long form of the test resumes the run, too.
func TestRanksByNCCL(t *testing.T) {
	_, env := cpuAndStandIn(t)
	runtimetest.NCCL(t, "../..")
	library := os.Getenv("ONERING_NCCL")
	for _, tt := range []struct {
		n     int
		shard string
	}{{2, "none"}, {4, "optimizer"}, {2, "optimizer"}, {4, "none"}} {
		long := os.Getenv("ONERING_LONG") != ""
		if tt.n == 2 == (tt.shard == "optimizer") && !long {
			continue
		}
		run := func(library string) (files map[string]string, crossed int64) {
			t.Setenv("ONERING_NCCL", library)
			dir := filepath.Join(t.TempDir(), "run")
			config := func(int) rl.Config {
				c := kindConfig("dapo", dir)
				c.Distributed.Shard, c.Distributed.CheckEvery = tt.shard, 1
				return c
			}
			up, down := env.Crossed()
			wellTogether(t, env, tt.n, false, config)
			if names := list(t, dir); long {
				for _, name := range names[len(names)/2:] {
					if err := os.RemoveAll(filepath.Join(dir, "checkpoints", name)); err != nil {
						t.Fatal(err)
					}
				}
				wellTogether(t, env, tt.n, true, config)
			}
			upNow, downNow := env.Crossed()
			return contents(t, dir), upNow + downNow - up - down
		}
		want, byMPI := run("")
		got, byNCCL := run(library)
		same(t, tt.shard, got, want)
		if byNCCL >= byMPI {
			t.Errorf("%d ranks, shard = %s: %d bytes crossed between host and devices with NCCL, %d with MPI", tt.n, tt.shard, byNCCL, byMPI)
		}
		t.Logf("%d ranks, shard = %s: %d bytes with NCCL, %d with MPI", tt.n, tt.shard, byNCCL, byMPI)
	}
}
