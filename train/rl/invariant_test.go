package rl

import (
	"testing"

	"onering/data"
	"onering/policy"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// TestInvariant: a sequence has the same bits alone and beside others, and the
// companion leaves nothing behind.
func TestInvariant(t *testing.T) {
	env := runtimetest.Test(t)
	policy, err := policy.Open(env, policy.Options{Path: data.Arithmetic, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	prompt := policy.Tokenizer.Encode("129+955=")
	const length = 30

	// decode feeds n equal sequences fixed tokens and returns the entropies of the first:
	// they depend on all logits.
	decode := func(n int) []float32 {
		d, err := env.NewDecoder(policy.Ring, n+1, len(prompt)+length)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		x := sampler.NewInvariant(d, sampler.InvariantToSlots)
		if x.Slots() != n {
			t.Fatalf("%d slots, want %d", x.Slots(), n)
		}
		// The test runs twice, to find state that the first time left behind.
		var entropies []float32
		for range 2 {
			prefix, err := x.Prefill([][]int32{prompt})
			if err != nil {
				t.Fatal(err)
			}
			rows := make([]sampler.Row, n)
			for i := range rows {
				rows[i] = sampler.Row{Slot: i, Prefix: prefix[0], Uniform: 0.5, Way: sampler.Plain(1)}
			}
			entropies = entropies[:0]
			if err := x.Begin(rows); err != nil {
				t.Fatal(err)
			}
			for step := range length {
				entropies = append(entropies, rows[0].Out.Entropy)
				for i := range rows {
					rows[i].ID = int32(2 + (step*7+i)%23)
				}
				if err := x.Step(rows); err != nil {
					t.Fatal(err)
				}
			}
			for i := range rows {
				x.Free(i)
			}
			x.Drop(prefix[0])
		}
		x.Close()
		return entropies
	}
	want := decode(9)
	for _, n := range []int{1, 2, 5} {
		got := decode(n)
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%d sequences: entropy %d is %v, among 9 %v", n, i, got[i], want[i])
			}
		}
	}
}
