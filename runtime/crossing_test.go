package runtime_test

import (
	"math"
	"slices"
	"testing"

	"onering/models"
	"onering/models/optim/adamw"
	"onering/runtime"
	"onering/runtime/runtimetest"
)

// TestCrossing counts the bytes that go between host and device in a training
// step: a few numbers for each token, and nothing that grows with the model.
func TestCrossing(t *testing.T) {
	cpu, env := hostAndDevice(t)
	for _, hidden := range []int{32, 64} {
		c := qwen2Of(models.Sizes{Layers: 3, Hidden: hidden, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 2 * hidden, Vocab: 300, MaxPositions: 64})
		c.Tied = true
		var results [2][]float32
		for i, e := range []*runtime.Env{cpu, env} {
			w, ring := madeUpRing(t, c, 7)
			start, _ := e.Crossed()
			l, err := e.NewLearner(ring, runtime.LearnerOptions{HeadRows: 128, BlockTokens: 8, EntropyGradient: true})
			check(t, err)
			defer l.Close()
			o, err := e.NewOptimizer(ring, l.Gradients, adamw.Default())
			check(t, err)
			defer o.Close()
			before, downBefore := e.Crossed()
			if up := int(before - start); e == env && up != 4*len(w.Data) {
				t.Errorf("%d bytes crossed to begin with, want the weights once, %d", up, 4*len(w.Data))
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
		if len(results[0]) != len(results[1]) || !(worst <= 1e-5) || far*200 > len(results[0]) {
			t.Errorf("hidden %d: device and CPU differ by up to %g, and %d of %d numbers by more than 1e-4", hidden, worst, far, len(results[0]))
		}
		t.Logf("hidden %d: device and CPU differ by at most %.2g in %d numbers", hidden, worst, len(results[0]))
	}
}

// TestUnorderedDevice: where a device adds rows in any order, rows of the same token
// are summed before, and the gradients are those of the CPU.
func TestUnorderedDevice(t *testing.T) {
	cpu := runtimetest.Test(t)
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
	const n = 3
	for _, hidden := range []int{32, 64} {
		c := qwen2Of(models.Sizes{Layers: 3, Hidden: hidden, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 2 * hidden, Vocab: 300, MaxPositions: 512})
		c.Tied = true
		var logps [2][]float32
		for i, e := range []*runtime.Env{cpu, env} {
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
				check(t, d.Step(fed(rows)))
				now, nowDown := e.Crossed()
				if e == cpu {
					continue
				}
				// Inputs: id, length and uniform; the largest length; the temperature.
				wantUp := n*(8+4+4) + 4 + 4
				wantDown := n * (8 + 4 + 4) // id, log-prob, entropy
				same := 4*n + 4             // without uniforms and temperature, which are as in the step before
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
		if !(worst <= 2e-5) { // the CPU may have operators of our own, with another order of sums
			t.Errorf("hidden %d: the log-probs differ from the CPU's by %g", hidden, worst)
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

// hostAndDevice returns an Env on the CPU and one on a stand-in for a device. CUDA's
// library has no graphs for the CPU.
func hostAndDevice(t *testing.T) (cpu, device *runtime.Env) {
	t.Helper()
	env := runtimetest.Test(t)
	if env.Device() != "cpu" {
		t.Skip("compares a stand-in with the CPU")
	}
	return env, runtime.OpenStandIn(t, env, "stand-in-cuda")
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
