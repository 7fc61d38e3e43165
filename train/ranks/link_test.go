//go:build linux

package ranks

import (
	"context"
	"strings"
	"testing"
	"time"

	"onering/runtime"
	"onering/runtime/runtimetest"
)

// Every rank gives the same reason why NCCL cannot be used: auto adds that it uses MPI,
// and nccl makes the reason an error. The ranks still reach each other.
func TestLinkRefused(t *testing.T) {
	cpu := runtimetest.Test(t)
	if cpu.Device() != "cpu" {
		t.Skip("takes a stand-in for a device")
	}
	env, err := runtime.Open(context.Background(), runtime.Options{Threads: cpu.Threads(), Device: "stand-in", KeepSessions: true})
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	defer func(d time.Duration) { leastLinking = d }(leastLinking)
	leastLinking = time.Second
	for _, tt := range []struct {
		env   *runtime.Env
		flags []string
		want  string
	}{
		{cpu, nil, "rank 0: the device is cpu, and NCCL links CUDA devices"},
		{env, nil, "rank 0: a stand-in has no NCCL but that of ONERING_NCCL"},
		{env, []string{"-DWITHOUT_ABORT"}, "it lacks the function ncclCommAbort"},
		{env, []string{"-DFAIL_ID"}, "NCCL 2.27.3: making an id for the ranks: unhandled system error"},
		{env, []string{"-DFAIL_INIT=1"}, "rank 1: NCCL 2.27.3: joining the other ranks: unhandled system error"},
	} {
		if tt.flags != nil {
			runtimetest.NCCL(t, "../..", tt.flags...)
		}
		for transport, begins := range map[string]string{"auto": "mpi: ", "nccl": "ranks: distributed.transport = nccl: "} {
			if transport == "nccl" && tt.flags != nil && tt.flags[0] == "-DFAIL_INIT=1" {
				continue // it waits
			}
			said := make([]string, 3)
			well(t, len(said), func(g *Group) error {
				how, err := g.Link(tt.env, transport)
				said[g.Rank()] = how
				if err != nil {
					said[g.Rank()] += err.Error()
				}
				if g.Device() != nil {
					t.Errorf("%v, %s: they are linked", tt.flags, transport)
				}
				return g.AgreeOn(nil)
			})
			for r, text := range said {
				if !strings.HasPrefix(text, begins) || !strings.Contains(text, tt.want) {
					t.Errorf("%v, %s: rank %d says %q", tt.flags, transport, r, text)
				}
			}
		}
	}
}

// Ranks that share a card, or have different libraries, are not linked.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		offers []offer
		want   string
	}{
		{[]offer{{"a", "0", "2.27.3", ""}, {"a", "1", "2.27.3", ""}, {"b", "0", "2.27.3", ""}}, ""},
		{[]offer{{"a", "0", "2.27.3", ""}, {"b", "0", "2.27.3", ""}, {"b", "0", "2.27.3", ""}}, "ranks 1 and 2 are on the same card, 0 of host b, and NCCL links different ones"},
		{[]offer{{"a", "0", "2.27.3", ""}, {"a", "1", "2.28.9", ""}}, "rank 1 has NCCL 2.28.9, rank 0 has NCCL 2.27.3: install the same on all hosts"},
		{[]offer{{"a", "0", "2.27.3", ""}, {"a", "", "", "none"}}, "rank 1: none"},
	} {
		if got := refused(tt.offers); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.offers, got, tt.want)
		}
	}
	if _, err := linkWithin(time.Millisecond, func() (*runtime.Link, error) { select {} }); err == nil {
		t.Error("within waits for ever")
	}
}
