//go:build linux

package runtime_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"onering/runtime"
	"onering/runtime/runtimetest"
)

// TestNCCL: tensors that a device sends to itself arrive complete, in order with its
// computations, and are added there with the bits of Go's additions in the order of the
// ranks. With the build tag cuda it is a GPU, with the NCCL that is found there.
func TestNCCL(t *testing.T) {
	env, gpu := runtimetest.Test(t), true
	if env.Device() == "cpu" {
		env, gpu = runtime.OpenStandIn(t, env, "stand-in"), false
		runtimetest.NCCL(t, "..")
	}
	library, card, err := env.NCCL(t.Context())
	if err != nil {
		t.Skip(err)
	}
	t.Logf("NCCL %s on card %s", library.Version, card)
	draw := rand.New(rand.NewPCG(1, 2))
	for _, tt := range []struct{ n, own, elements int }{{2, 0, 1}, {2, 1, 1000}, {4, 2, 70001}, {8, 7, 1 << 16}, {8, 0, 12345}, {8, 3, 1 << 21}} {
		if tt.elements > 1<<20 && !gpu {
			continue
		}
		parts := make([][]float32, tt.n)
		for i := range parts {
			parts[i] = make([]float32, tt.elements)
			for k := range parts[i] {
				least := uint32(0x30000000) // The numbers differ very much in size, so that the order of a sum shows.
				if gpu {
					least = 0 // A GPU adds subnormal numbers, as Go does.
				}
				parts[i][k] = math.Float32frombits(draw.Uint32()&0x8fffffff + least)
			}
		}
		id, err := library.ID()
		if err != nil {
			t.Fatal(err)
		}
		link, err := env.Link(library, id, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		const times = 3
		began := time.Now()
		got, err := link.Itself(parts, tt.own, times)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d parts of %d elements: %v", tt.n, tt.elements, time.Since(began))
		different := 0
		for k, x := range got {
			for range times {
				sum := parts[0][k]
				for _, p := range parts[1:] {
					sum += p[k]
				}
				parts[tt.own][k] = sum
			}
			if want := parts[tt.own][k]; math.Float32bits(x) != math.Float32bits(want) {
				if different++; different == 1 {
					t.Errorf("%d parts, in the place of %d: element %d of %d is %v, want %v", tt.n, tt.own, k, tt.elements, x, want)
				}
			}
		}
		if different > 0 {
			t.Errorf("%d of %d elements differ", different, tt.elements)
		}
		if err := link.Close(); err != nil {
			t.Error(err)
		}
		if err := link.Check(); err == nil || !strings.Contains(err.Error(), "was cut") {
			t.Errorf("after Close: %v", err)
		}
	}
}
