package runtime_test

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"onering/models"
	"onering/runtime"
	"onering/runtime/kernels/host"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// inParts computes a prompt in parts of so many tokens, behind n tokens of another prefix.
func inParts(t *testing.T, d *runtime.Decoder, from, n int, ids []int32, part int) int {
	t.Helper()
	prefix, err := d.PromptParts().Open(from, n, len(ids))
	check(t, err)
	for _, ids := range slices.Collect(slices.Chunk(ids[n:], part)) {
		check(t, d.PromptParts().Append(prefix, ids))
	}
	return prefix
}

// after returns the numbers of the tokens that follow a prefix in a slot, which stays in use, as do others'.
func after(t *testing.T, d *runtime.Decoder, prefix int, fed []int32, others ...int) (all []float32) {
	t.Helper()
	rows := []sampler.Row{{Prefix: prefix, Uniform: 0.5, Way: sampler.Plain(1)}}
	for _, x := range others {
		rows = append(rows, sampler.Row{Slot: len(rows), Prefix: x, Uniform: 0.3, Way: sampler.Plain(1)})
	}
	check(t, d.Begin(rows))
	for i, id := range fed {
		all = append(all, rows[0].Out.LogProb, rows[0].Out.Entropy)
		for k := range rows {
			rows[k].ID = fed[(i+k)%len(fed)]
		}
		rows[0].ID = id
		check(t, d.Step(rows))
	}
	return append(all, rows[0].Out.LogProb, rows[0].Out.Entropy)
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: number %d is %v, not %v", what, i, got[i], want[i])
		}
	}
}

// testContinued compares a prompt that was computed in parts with the same prompt behind a beginning
// that another had, and a row alone with one beside another where these are the same. fed are tokens that follow it.
func testContinued(t *testing.T, env *runtime.Env, ring *runtime.Ring, prompt, fed []int32, part int) {
	d, err := env.NewDecoder(ring, 2, len(prompt)+2*len(fed)+2)
	check(t, err)
	defer d.Close()
	if d.SetInvariant(sampler.InvariantToSlots) { // a row alone has its bits among others
		handles, err := d.Prefill([][]int32{prompt, prompt[:len(prompt)/2]})
		check(t, err)
		alone := after(t, d, handles[0], fed)
		d.Free(0)
		sameBits(t, "beside another", after(t, d, handles[0], fed, handles[1]), alone)
		for i, x := range handles {
			d.Free(i)
			d.Drop(x)
		}
	}
	p := d.PromptParts()
	if p == nil {
		t.Skip("has states that are known only at a prompt's end")
	}
	_, anywhere := p.Part()
	numbers := func(prefix int) []float32 {
		defer d.Free(0)
		defer d.Drop(prefix)
		return after(t, d, prefix, fed)
	}
	handles, err := d.Prefill([][]int32{prompt})
	check(t, err)
	whole := numbers(handles[0])
	parts := numbers(inParts(t, d, 0, 0, prompt, part))
	for i := range whole {
		if !(math.Abs(float64(parts[i]-whole[i])) <= 1e-4) {
			t.Fatalf("in parts: number %d is %v, of the whole %v", i, parts[i], whole[i])
		}
	}

	shared := part * max(1, (len(prompt)-1)/part)
	other := append(slices.Clone(prompt[:shared]), fed...)
	kept := inParts(t, d, 0, 0, other, part)
	sameBits(t, "behind another's beginning", numbers(inParts(t, d, kept, shared, prompt, part)), parts)
	d.Drop(kept)
	if !anywhere {
		return
	}
	sameBits(t, "in parts", parts, whole)
	// an answer goes on where a slot ends
	handle := inParts(t, d, 0, 0, prompt[:shared], 3)
	after(t, d, handle, prompt[shared:len(prompt)-1])
	d.Drop(handle)
	saved, held, err := p.Save(0)
	check(t, err)
	d.Free(0)
	if held != len(prompt)-1 {
		t.Fatalf("the slot holds %d tokens of %d", held, len(prompt)-1)
	}
	sameBits(t, "behind a slot's tokens", numbers(inParts(t, d, saved, held, prompt, part)), whole)
	sameBits(t, "behind some of a slot's tokens", numbers(inParts(t, d, saved, held-1, prompt, part)), whole)
	d.Drop(saved)
}

// TestContinued: a prompt has the same bits whether its parts were kept of another prompt or not;
// in bfloat16 on the CPU, and in float32 with AVX-512, also in parts of any length, and behind tokens of steps.
func TestContinued(t *testing.T) {
	for _, dir := range allGoldens(t) {
		if filepath.Base(filepath.Dir(dir)) == "lora" {
			continue
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			env := runtimetest.Test(t)
			if env.Device() != "cpu" {
				t.Skip("is about the CPU")
			}
			m := open(t, env, dir)
			var prompt []int32
			for _, r := range m.Greedy.Rows {
				prompt = append(prompt, r.Prompt...)
			}
			prompt, fed := prompt[:min(len(prompt), 30)], prompt[:5]
			testContinued(t, env, m.ring, prompt, fed, 4)
			for _, adapted := range []bool{false, true} {
				_, m = onCPU(t, dir, adapted)
				testContinued(t, env, m.ring, prompt, fed, 4)
			}
		})
	}
	t.Run("long", func(t *testing.T) {
		env := runtimetest.Test(t)
		c := qwen2Of(models.Sizes{Hidden: 576, Layers: 2, Heads: 9, KVHeads: 3, HeadDim: 64, FFN: 1100, Vocab: 3000, MaxPositions: 512})
		c.Tied, c.RopeTheta = true, 1e6
		_, ring := madeUpRing(t, c, 1)
		ids, r := make([]int32, 308), rand.New(rand.NewPCG(1, 2))
		for i := range ids {
			ids[i] = int32(r.IntN(c.Vocab))
		}
		testContinued(t, env, ring, ids[:300], ids[300:], 128)
	})
}

// TestServedBits: a request gets the same bits alone, beside others, behind a prompt that was kept
// for its owner, and computed in parts between the steps of others.
func TestServedBits(t *testing.T) {
	for _, dtype := range []models.DType{models.F32, models.BF16} {
		t.Run(dtype.String(), func(t *testing.T) {
			env := runtimetest.Test(t)
			if env.Device() != "cpu" {
				t.Skip("is about the CPU")
			}
			c := qwen2Of(models.Sizes{Hidden: 576, Layers: 2, Heads: 9, KVHeads: 3, HeadDim: 64, FFN: 1100, Vocab: 3000, MaxPositions: 512})
			c.Tied, c.RopeTheta, c.Type = true, 1e6, dtype
			_, ring := madeUpRing(t, c, 1)
			d, err := env.NewDecoder(ring, 5, 400)
			check(t, err)
			defer d.Close()
			if alone := d.SetInvariant(sampler.InvariantToNeighbours); alone != (dtype == models.BF16 || host.Kind() != "plain") {
				t.Errorf("a row alone has its bits among others: %v, by the kernels of %s", alone, host.Kind())
			}
			if _, anywhere := d.PromptParts().Part(); anywhere != (dtype == models.BF16 || host.Kind() == "avx512") {
				t.Errorf("prompts go on at any token: %v, by the kernels of %s", anywhere, host.Kind())
			}
			invariant := sampler.NewInvariant(d, sampler.InvariantToNeighbours)
			defer invariant.Close()
			ids := func(seed uint64, n int) []int32 {
				r, x := rand.New(rand.NewPCG(seed, 2)), make([]int32, n)
				for i := range x {
					x[i] = int32(r.IntN(c.Vocab))
				}
				return x
			}
			prompt := ids(1, 300)
			type adder func(prompt []int32, tokens int) *sampler.Call
			served := func(before func(add adder, s *sampler.Scheduler)) (r sampler.Response, cached int) {
				s, err := sampler.NewScheduler(invariant)
				check(t, err)
				defer s.Close(nil)
				s.KeepPrefixes(4000)
				add := func(prompt []int32, tokens int) *sampler.Call {
					x := &sampler.Call{Options: sampler.Options{Sampling: sampler.Plain(tokens), Seed: 3}, Request: sampler.Request{Prompt: prompt, Samples: 1}}
					x.Done = func(sampler.Response) {}
					x.Failed = func(err error) { t.Error(err) }
					check(t, s.Add(x))
					return x
				}
				before(add, s)
				x := add(prompt, 6)
				x.Done = func(got sampler.Response) { r, cached = got, x.Cached }
				for s.Step() {
				}
				return r, cached
			}
			want, _ := served(func(adder, *sampler.Scheduler) {})
			for name, before := range map[string]func(add adder, s *sampler.Scheduler){
				"beside others": func(add adder, s *sampler.Scheduler) {
					add(ids(2, 9), 30)
					add(ids(3, 200), 30)
					s.Step()
				},
				"behind a kept prompt": func(add adder, s *sampler.Scheduler) {
					add(slices.Concat(prompt[:280], ids(4, 9)), 2)
					for s.Step() {
					}
				},
				"behind a cancelled prompt, beside others": func(add adder, s *sampler.Scheduler) {
					add(ids(2, 9), 30)
					x := add(prompt, 20)
					s.Step()
					s.Step()
					s.Cancel(x)
				},
			} {
				got, cached := served(before)
				if !slices.Equal(got.IDs, want.IDs) {
					t.Errorf("%s: sampled %v, alone %v", name, got.IDs, want.IDs)
				}
				sameBits(t, name, slices.Concat(got.LogProb, got.Entropy), slices.Concat(want.LogProb, want.Entropy))
				kept := map[string]int{"behind a kept prompt": 280, "behind a cancelled prompt, beside others": 256}[name]
				if _, anywhere := d.PromptParts().Part(); !anywhere {
					kept = kept / 128 * 128
				}
				if cached != kept {
					t.Errorf("%s: %d tokens are kept, not %d", name, cached, kept)
				}
			}
		})
	}
}
