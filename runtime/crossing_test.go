package runtime_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/optim/adamw"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// TestCrossing counts the bytes that go between host and device in a training
// step: a few numbers for each token, and nothing that grows with the model.
func TestCrossing(t *testing.T) {
	cpu, env := hostAndDevice(t)
	onWebGPU := env.Provider() == models.WebGPU
	for _, hidden := range []int{32, 64} {
		c := qwen2Of(models.Sizes{Layers: 3, Hidden: hidden, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 2 * hidden, Vocab: 300, MaxPositions: 64})
		c.Tied = true
		var results [2][]float32
		for i, e := range []*runtime.Env{cpu, env} {
			if onWebGPU {
				c.Provider = e.Provider()
			}
			w, ring := madeUpRing(t, c, 7)
			start, _ := e.Crossed()
			l, err := e.NewLearner(ring, runtime.LearnerOptions{HeadRows: 128, BlockTokens: 8, EntropyGradient: true})
			check(t, err)
			defer l.Close()
			o, err := e.NewOptimizer(ring, l.Gradients, adamw.Default(), runtime.OptimizerOptions{})
			check(t, err)
			defer o.Close()
			before, downBefore := e.Crossed()
			begin, sizes := 4*len(w.Data), 0
			if onWebGPU {
				sizes = 3 * 8 * o.Slices() // the lengths of what to clear: gradients and moments, each as often as it changes
			}
			if up := int(before - start); e == env && (up < begin || up > begin+sizes) {
				t.Errorf("%d bytes crossed to begin with, want %d and at most %d more; the weights, once, are %d", up, begin, sizes, 4*len(w.Data))
			}
			for step := range 3 {
				l.ZeroGradients()
				sequences := madeSequences()
				p, err := l.Forward(sequences, 0.8, true)
				check(t, err)
				results[i] = append(results[i], flat(p.LogProb)...)
				results[i] = append(results[i], flat(p.Entropy)...)
				check(t, p.Backward(likeLogProb(p, 0.3), likeLogProb(p, -0.1)))
				batch, longest, blocks, rows := p.Packed()
				n := p.Tokens()
				p.Release()
				norm, err := clipAndUpdate(o, 1e-2)
				check(t, err)
				results[i] = append(results[i], float32(norm))
				up, down := e.Crossed()
				if e == env && step > 0 { // The first step also uploads masks and angles.
					scalars := 2 + 9 // the temperature in two programs; AdamW's scalars
					// pos, ids, tokens; rows and valid; targets, places, z, u, w, v and entropy;
					// for each slice of the head where the targets are and their w;
					// the bounds of blocks for each layer, forward and backward; the place of
					// one token in copies and copied.
					wantUp := 8 + 4 + 3*8*n + 12*batch*longest + (2*8+5*4+(2*8+4)*l.Passes())*rows + 2*c.Layers*8*(blocks+1) + 4*scalars
					wantDown := 3*4*rows + 4*o.Slices() // results: z, u, logit; sums of squares
					// Unchanged scalars, places of tokens and bounds of blocks are not
					// sent again.
					same := 4*scalars + 3*8*n + 2*c.Layers*8*(blocks+1)
					if onWebGPU {
						more := webgpuUp(sequences, o.Slices())
						// The first and the last bound of the blocks are not sent.
						wantUp += more - 2*c.Layers*2*8
						same += more // The sequences are those of the step before.
					}
					if int(up-before) > wantUp || int(up-before) < wantUp-same || int(down-downBefore) != wantDown {
						t.Errorf("hidden %d: %d bytes up and %d down, want %d or up to %d less, and %d", hidden, up-before, down-downBefore, wantUp, same, wantDown)
					}
				}
				if e == cpu && up+down != 0 {
					t.Errorf("%d bytes crossed on the CPU", up+down)
				}
				before, downBefore = up, down
			}
			check(t, e.Download(w))
			results[i] = append(results[i], w.Data...)
			check(t, e.Download(o.State["exp_avg"]))
			results[i] = append(results[i], o.State["exp_avg"].Data...)
			check(t, e.Download(o.State["exp_avg_sq"]))
			results[i] = append(results[i], o.State["exp_avg_sq"].Data...)

			// The graphs read what the host changed after Upload.
			clear(w.Data)
			check(t, e.Upload(w))
			p, err := l.Forward(madeSequences(), 1, false)
			check(t, err)
			if got, want := p.LogProb[0][0], float32(-math.Log(300)); math.Abs(float64(got-want)) > 1e-5 {
				t.Errorf("with all weights zero: log-prob %v, want %v", got, want)
			}
			p.Release()
		}
		worst, far := 0.0, 0
		for i, x := range results[0] {
			d := math.Abs(float64(x - results[1][i]))
			if worst = max(worst, d); d > 1e-4 {
				far++
			}
		}
		most := 1e-5
		if onWebGPU { // AdamW divides gradients near 0 by themselves, as in TestGoldenAdamW.
			most = 5e-3
		}
		if len(results[0]) != len(results[1]) || !(worst <= most) || far*200 > len(results[0]) {
			t.Errorf("hidden %d: device and CPU differ by up to %g, and %d of %d numbers by more than 1e-4", hidden, worst, far, len(results[0]))
		}
		t.Logf("hidden %d: device and CPU differ by at most %.2g in %d numbers", hidden, worst, len(results[0]))
	}
}

// TestUnorderedDevice: where a device adds rows in any order, rows of the same token
// are summed before, and the gradients are those of the CPU.
func TestUnorderedDevice(t *testing.T) {
	cpu := onCPU(t)
	if cpu.Device() != "cpu" {
		t.Skip("compares a stand-in with the CPU")
	}
	env := runtime.OpenStandIn(t, cpu, "stand-in-cuda")
	runtime.Unordered(env)
	for _, tied := range []bool{true, false} {
		c := qwen2Of(models.Sizes{Layers: 2, Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 64, Vocab: 300, MaxPositions: 64})
		c.Tied = tied
		var gradients [2][]float32
		for i, e := range []*runtime.Env{cpu, env} {
			_, ring := madeUpRing(t, c, 7)
			l, err := e.NewLearner(ring, runtime.LearnerOptions{HeadRows: 128, BlockTokens: 8})
			check(t, err)
			defer l.Close()
			p, err := l.Forward(madeSequences(), 1, true)
			check(t, err)
			check(t, p.Backward(likeLogProb(p, 0.3), nil))
			p.Release()
			check(t, e.Download(l.Gradients))
			gradients[i] = l.Gradients.Data
		}
		largest, worst := 0.0, 0.0
		for i, x := range gradients[0] {
			largest = max(largest, math.Abs(float64(x)))
			worst = max(worst, math.Abs(float64(x-gradients[1][i])))
		}
		if !(worst <= 1e-6*largest) || largest == 0 {
			t.Errorf("tied %v: gradients differ by %g, the largest is %g", tied, worst, largest)
		}
	}
}

// TestDecodeCrossing counts the bytes of a step of decoding.
func TestDecodeCrossing(t *testing.T) {
	cpu, env := hostAndDevice(t)
	onWebGPU := env.Provider() == models.WebGPU
	const n, kvHeads = 3, 2
	for _, hidden := range []int{32, 64} {
		c := qwen2Of(models.Sizes{Layers: 3, Hidden: hidden, Heads: 4, KVHeads: kvHeads, HeadDim: 8, FFN: 2 * hidden, Vocab: 300, MaxPositions: 512})
		c.Tied = true
		var logps [2][]float32
		placed := false // The cache's places are numbered in the first step.
		for i, e := range []*runtime.Env{cpu, env} {
			if onWebGPU {
				c.Provider = e.Provider()
			}
			_, ring := madeUpRing(t, c, 7)
			d, err := e.NewDecoder(ring, n, 200)
			check(t, err)
			defer d.Close()
			prefixes, err := d.Prefill([][]int32{{1, 2, 3}, {4, 5}})
			check(t, err)
			rows := rowsOf([]int{2, 0, 1}, []int{prefixes[0], prefixes[1], prefixes[0]}, 0.1, 0.5, 0.9)
			check(t, d.Begin(rows))
			for _, x := range prefixes {
				d.Drop(x)
			}
			for range 90 { // The cache grows in the meantime.
				logp, _ := outs(rows)
				logps[i] = append(logps[i], logp...)
				up, down := e.Crossed()
				capacity := d.Capacity()
				check(t, d.Step(fed(rows)))
				now, nowDown := e.Crossed()
				if e == cpu {
					continue
				}
				// Inputs: id, pos, places and mask; uniform; the temperature.
				wantUp := n*(8+8+3*8*kvHeads+4*d.Capacity()+4) + 4
				wantDown := n * (8 + 4 + 4) // id, log-prob, entropy
				same := 4*n + 4             // without uniforms and temperature, which are as in the step before
				if onWebGPU {
					wantDown -= 4 * n                  // The ids are sent in float32, with the rest.
					wantUp = n*4*(1+1+3*kvHeads+1) + 4 // All inputs are in float32, and the device computes the mask.
					same = 4                           // The uniforms are sent with the inputs that change.
					if grown := d.Capacity() - capacity; grown > 0 || !placed {
						// the numbers of the places, and where the cached rows go
						wantUp += 8 * d.Capacity()
						if placed {
							wantUp = min(int(now-up), wantUp+16*2*c.Layers*kvHeads*n*capacity)
						}
						placed = true
					}
				}
				if int(now-up) > wantUp || int(now-up) < wantUp-same || int(nowDown-down) != wantDown {
					t.Fatalf("hidden %d: %d bytes up and %d down, want %d or up to %d less, and %d", hidden, now-up, nowDown-down, wantUp, same, wantDown)
				}
			}
			d.Free(2) // The last row moves into the place of the ended row.
			check(t, d.Step(fed(rows[1:])))
			logp, _ := outs(rows[1:])
			logps[i] = append(logps[i], logp...)
		}
		worst := 0.0
		for i, x := range logps[0] {
			worst = max(worst, math.Abs(float64(x-logps[1][i])))
		}
		if onWebGPU && !(worst <= 1e-4) || !onWebGPU && worst != 0 {
			t.Errorf("hidden %d: the log-probs differ from the CPU's by %g", hidden, worst)
		}
	}
}

// TestCalls counts the runs and copies of a training step and of a step of decoding where
// each tensor is a buffer of its own: on WebGPU each costs about a millisecond.
func TestCalls(t *testing.T) {
	env := runtimetest.Test(t)
	switch {
	case env.Device() == "cpu":
		env = runtime.OpenStandIn(t, env, "stand-in-webgpu")
	case env.Provider() != models.WebGPU:
		t.Skip("compares a stand-in with the CPU")
	}
	c := qwen2Of(models.Sizes{Layers: 6, Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 64, Vocab: 300, MaxPositions: 64})
	c.Tied, c.Provider = true, models.WebGPU
	_, ring := madeUpRing(t, c, 7)
	l, err := env.NewLearner(ring, runtime.LearnerOptions{BlockTokens: 8})
	check(t, err)
	defer l.Close()
	o, err := env.NewOptimizer(ring, l.Gradients, adamw.Default(), runtime.OptimizerOptions{})
	check(t, err)
	defer o.Close()
	calls := runtime.Calls(t, env)
	want := func(what string, runs, copies int) {
		t.Helper()
		if r, n := calls(); r != runs || n != copies {
			t.Errorf("%s: %d runs and %d copies, want %d and %d", what, r, n, runs, copies)
		}
	}
	tensors := len(c.Layout().Names())
	for step := range 2 {
		calls()
		l.ZeroGradients()
		want("clearing the gradients", 1, 0)
		p, err := l.Forward(madeSequences(), 1, true)
		check(t, err)
		check(t, p.Backward(likeLogProb(p, 0.3), nil))
		p.Release()
		runs, copies := calls()
		t.Logf("forward and backward: %d runs and %d copies", runs, copies)
		norm, err := o.GradNorm()
		check(t, err)
		want("norm", 1, 1)
		check(t, o.Update(1e-3, 1/norm))
		want("update", (tensors+31)/32, 1)
		if step > 0 && tensors < 70 {
			t.Errorf("%d tensors show nothing", tensors)
		}
	}

	const n = 3
	d, err := env.NewDecoder(ring, n, 60)
	check(t, err)
	defer d.Close()
	prefixes, err := d.Prefill([][]int32{{1, 2, 3}})
	check(t, err)
	rows := rowsOf([]int{2, 0, 1}, []int{prefixes[0], prefixes[0], prefixes[0]}, 0.1, 0.5, 0.9)
	check(t, d.Begin(rows))
	for i := range 3 {
		calls()
		rows[1].Uniform = 0.3 + float32(i)/10
		check(t, d.Step(fed(rows)))
		if i > 0 { // The first step numbers the cache's places.
			want("decode step", 2, 2) // one copy of ids, positions, places and uniforms together; one result
		}
	}
}

// TestUnchangedInputs: a small input in the host's memory is copied to a device only if
// it has changed since the last run, a larger input in each run.
func TestUnchangedInputs(t *testing.T) {
	_, env := hostAndDevice(t)
	for _, n := range []int{2, 20000} {
		x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
		size := 4 * n
		both := map[string]*runtime.Value{"x": value(t, x, int64(n)), "y": value(t, y, int64(n))}
		b := bind(t, env, add(), both, map[string]*runtime.Value{"z": value(t, z, int64(n))})
		for step, change := range []struct{ x, y float32 }{{1, 2}, {0, 0}, {3, 0}, {0, 0}, {0, -1}, {4, 4}} {
			want := 0
			for _, side := range []struct {
				data []float32
				by   float32
			}{{x, change.x}, {y, change.y}} {
				side.data[n-1] += side.by
				if step == 0 || side.by != 0 || size > 1<<16 {
					want += size
				}
			}
			before, _ := env.Crossed()
			check(t, b.Run())
			if up, _ := env.Crossed(); int(up-before) != want || z[n-1] != x[n-1]+y[n-1] {
				t.Errorf("%d numbers, run %d: %d bytes up, want %d; the sum is %v, want %v", n, step, up-before, want, z[n-1], x[n-1]+y[n-1])
			}
		}
		other := value(t, slices.Repeat([]float32{7}, n), int64(n))
		check(t, b.Input("x", other))
		check(t, b.Run())
		check(t, b.Input("x", both["x"])) // as before the other
		check(t, b.Run())
		if z[n-1] != x[n-1]+y[n-1] {
			t.Errorf("%d numbers, bound again: the sum is %v, want %v", n, z[n-1], x[n-1]+y[n-1])
		}
	}
}

// hostAndDevice returns an Env on the CPU and one on a device: a stand-in, or with the
// build tag webgpu the GPU. CUDA's library has no graphs for the CPU.
func hostAndDevice(t *testing.T) (cpu, device *runtime.Env) {
	t.Helper()
	env := runtimetest.Test(t)
	if env.Device() == "cpu" {
		return env, runtime.OpenStandIn(t, env, "stand-in-cuda")
	}
	if env.Provider() != models.WebGPU {
		t.Skip("compares a stand-in with the CPU")
	}
	return runtimetest.CPU(t), env
}

// pairBytes is how many bytes a device that adds in any order receives to sum rows of the
// same index first: two indices and a number for each sum of two, in each turn, and the
// indices that are left.
func pairBytes(ids []int32) (bytes int) {
	counts := map[int32]int{}
	for _, id := range ids {
		counts[id]++
	}
	for {
		rows, sums := 0, 0
		for id, n := range counts {
			rows += n
			counts[id] = (n + 1) / 2
			sums += counts[id]
		}
		if rows == sums {
			return bytes + 8*rows
		}
		bytes += 20 * sums
	}
}

// webgpuUp returns how many more bytes a step sends to WebGPU than to other devices.
func webgpuUp(sequences []runtime.Sequence, slices int) int {
	var fed, targets []int32
	for _, s := range sequences {
		if s.Count() == 0 {
			continue // nothing to learn from
		}
		fed, targets = append(fed, s.Tokens[:len(s.Tokens)-1]...), append(targets, s.Tokens[len(s.Prefix()):]...)
	}
	// lengths of what to clear: each tensor's gradient, and the gradient of the last
	// layer's output
	return 8*(slices+1) + pairBytes(fed) + pairBytes(targets)
}

func madeSequences() (s []runtime.Sequence) {
	for i, n := range []int{20, 7, 13, 1} {
		var tokens []int32
		for t := range n + i {
			tokens = append(tokens, int32((31*i+17*t*t)%300))
		}
		s = append(s, runtime.NewSequence(tokens[:1+i], tokens[1+i:]))
	}
	return s
}

func flat(rows [][]float32) (all []float32) {
	for _, r := range rows {
		all = append(all, r...)
	}
	return all
}

func likeLogProb(p *runtime.Pass, scale float64) (w [][]float64) {
	for i, row := range p.LogProb {
		w = append(w, make([]float64, len(row)))
		for t := range row {
			w[i][t] = scale * float64(1+(i+t)%3)
		}
	}
	return w
}

// TestLargestBuffer: if kernels take buffers of a bounded size, a prefill splits prompts
// by the size of their scores and samples the same tokens; a pass whose scores or logits
// are larger is refused, and one of fewer sequences is not. The cache is as large as
// CacheBuffer says.
func TestLargestBuffer(t *testing.T) {
	env := runtimetest.Test(t)
	switch {
	case env.Device() == "cpu":
		env = runtime.OpenStandIn(t, env, "stand-in-webgpu")
	case env.Provider() != models.WebGPU:
		t.Skip("CUDA has no such bound")
	}
	c := qwen2Of(models.Sizes{Layers: 2, Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 64, Vocab: 300, MaxPositions: 64})
	c.Tied, c.Provider = true, models.WebGPU
	_, ring := madeUpRing(t, c, 7)
	prompts := [][]int32{{1, 2, 3}, {4, 5}, {6, 7, 8, 9}, {10}, {11, 12}}
	var chosen [2][]int32
	for i, prompts4 := range []int64{0, 2} {
		runtime.Largest(t, env, prompts4*runtime.PromptBuffer(c.Geometry(), 4).Bytes)
		d, err := env.NewDecoder(ring, 5, 60)
		check(t, err)
		defer d.Close()
		calls := runtime.Calls(t, env)
		prefixes, err := d.Prefill(prompts)
		check(t, err)
		if runs, _ := calls(); runs != []int{1, 3}[i] {
			t.Errorf("%d runs for 5 prompts", runs)
		}
		rows := rowsOf([]int{0, 1, 2, 3, 4}, prefixes, 0)
		for i := range rows {
			rows[i].Way = sampler.Greedy(1)
		}
		check(t, d.Begin(rows))
		for _, r := range fed(rows) {
			chosen[i] = append(chosen[i], r.ID)
		}
		if want := runtime.CacheBuffer(c.Geometry(), 5, 60).Bytes; d.CacheBytes() != want {
			t.Errorf("the cache has %d bytes, want %d", d.CacheBytes(), want)
		}
		for _, x := range prefixes {
			d.Drop(x)
		}
	}
	if !slices.Equal(chosen[0], chosen[1]) {
		t.Errorf("at once %v, in turn %v", chosen[0], chosen[1])
	}

	l, err := env.NewLearner(ring, runtime.LearnerOptions{})
	check(t, err)
	defer l.Close()
	sequences := madeSequences()
	for what, limit := range map[string]int64{"logits": 4*300*37 - 1, "scores": 4*4*3*24*24 - 1} {
		runtime.Largest(t, env, limit)
		if _, err := l.Forward(sequences, 1, true); !errors.Is(err, runtime.ErrTooLarge) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), env.Device()) {
			t.Errorf("%s beyond the limit: %v", what, err)
		}
		p, err := l.Forward(sequences[1:2], 1, true)
		check(t, err)
		p.Release()
	}
}
