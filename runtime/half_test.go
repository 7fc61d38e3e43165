package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
	"onering/models/optim/adamw"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// inHalf runs a test on every golden model computing in 16 bits: in float16, and on
// CUDA and the CPU also in bfloat16. unit is the distance
// of numbers of the type just above 1. On stand-ins it runs few models.
func inHalf(t *testing.T, test func(t *testing.T, env *runtime.Env, m *model, unit float64)) {
	on := func(t *testing.T, env *runtime.Env, goldens []string) {
		types := map[models.DType]float64{models.F16: 0x1p-10}
		if env.Device() == "cpu" || strings.HasPrefix(env.Device(), "cuda") {
			types[models.BF16] = 0x1p-7
		}
		for d, unit := range types {
			for _, dir := range goldens {
				t.Run(fmt.Sprintf("%v/%s", d, filepath.Base(dir)), func(t *testing.T) {
					m := open(t, env, dir)
					m.arch.Type = d
					ring := runtime.NewRing(m.arch, m.weights)
					t.Cleanup(ring.Close)
					m.ring = ring
					test(t, env, m, unit)
				})
			}
		}
	}
	onDevices(t, func(t *testing.T, env *runtime.Env) {
		dirs := goldens(t)
		if strings.HasPrefix(env.Device(), "stand-in") {
			dirs = unlessLong(dirs, "tied", "headdim-all", "llama_small")
		}
		on(t, env, dirs)
	})
	if env := runtimetest.Test(t); env.Device() == "cpu" && goruntime.GOOS == "linux" {
		few := unlessLong(goldens(t), "llama_small", "qwen3_small") // The CPU runs CUDA's kernels slowly.
		t.Run("stand-in-kernels", func(t *testing.T) { on(t, runtime.OpenStandIn(t, env, "stand-in-kernels"), few) })
	}
}

// TestHalfGoldens compares models that compute in 16 bits with PyTorch's numbers in
// float64.
func TestHalfGoldens(t *testing.T) {
	inHalf(t, func(t *testing.T, env *runtime.Env, m *model, unit float64) {
		m.ring.LossScale = 1 << 12
		for _, o := range learners {
			l, err := env.NewLearner(m.ring, o)
			check(t, err)
			defer l.Close()
			p, err := l.Forward(m.sequences, 1, true)
			check(t, err)
			near(t, "log-probs", p.LogProb, m.Batch.LogP, 20*unit)
			near(t, "entropies", p.Entropy, m.Batch.Entropy, 20*unit)
			check(t, p.Backward(m.w[0], nil))
			p.Release()
			check(t, env.Download(l.Gradients))
			farthest := 0.0
			compareTensors(t, filepath.Join(m.dir, "grads.safetensors"), l.Gradients, func(name string, got, want []float32) {
				var off, all float64
				for i := range want {
					off += math.Pow(float64(got[i])/m.ring.LossScale-float64(want[i]), 2)
					all += math.Pow(float64(want[i]), 2)
				}
				if math.Sqrt(off) > 10*unit*math.Sqrt(all) {
					t.Errorf("gradient of %s: off by %.2g of its norm", name, math.Sqrt(off/all))
				}
				farthest = max(farthest, math.Sqrt(off/all))
			})
			t.Logf("gradients off by at most %.2g of a tensor's norm", farthest)
		}
	})
}

// TestHalfRollout: the sampler's log-probs equal the learner's, and a step of many rows
// samples the same tokens as a step of few rows.
func TestHalfRollout(t *testing.T) {
	inHalf(t, func(t *testing.T, env *runtime.Env, m *model, unit float64) {
		var reqs []sampler.Request
		for i, r := range m.Greedy.Rows {
			reqs = append(reqs, sampler.Request{Prompt: r.Prompt, ID: uint64(i), Samples: 3})
		}
		opts := sampler.Options{Sampling: sampler.Plain(40), EOS: m.eos, Seed: 5}
		var first []sampler.Response
		for _, slots := range []int{1, 5, 16} {
			d, err := env.NewDecoder(m.ring, slots, 64)
			check(t, err)
			got, _, err := sampler.Sample(context.Background(), d, opts, reqs, nil)
			check(t, err)
			d.Close()
			if first == nil {
				first = got
			}
			same := 0
			for i := range got {
				if slices.Equal(got[i].IDs, first[i].IDs) {
					same++
				}
			}
			if same < len(got)*3/4 { // Rounding seldom changes a draw.
				t.Errorf("%d slots: %d of %d responses are those of one slot", slots, same, len(got))
			}
		}
		var sequences []runtime.Sequence
		for _, x := range first {
			prompt := m.Greedy.Rows[x.Request].Prompt
			sequences = append(sequences, runtime.NewSequence(prompt, x.IDs))
		}
		l, err := env.NewLearner(m.ring, runtime.LearnerOptions{ScoreOnly: true})
		check(t, err)
		defer l.Close()
		p, err := l.Forward(sequences, 1, false)
		check(t, err)
		defer p.Release()
		worst, outside, n := 0.0, 0, 0
		for i, x := range first {
			for k, v := range x.LogProb {
				gap := math.Abs(float64(v - p.LogProb[i][k]))
				worst = max(worst, gap)
				if n++; math.Exp(gap) > 1.1 {
					outside++
				}
			}
		}
		if most := 10 * unit; !(worst <= most) || m.arch.Type == models.BF16 && env.Device() == "cpu" && worst != 0 {
			t.Errorf("a log-prob of the rollout is %g off that of the learner", worst)
		}
		t.Logf("%d tokens: largest gap %.2g, %d ratios outside [0.9, 1.1]", n, worst, outside)
	})
}

// halfModel is a small model with heads whose width is not a multiple of 16.
func halfModel() decoder.Architecture {
	a := qwen2Of(models.Sizes{Layers: 2, Hidden: 40, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 72, Vocab: 300, MaxPositions: 64})
	a.Type = models.F16
	return a
}

// TestHalfCopy: an update writes both the weights and the 16-bit copy that graphs read,
// and Upload does the same with the host's changes.
func TestHalfCopy(t *testing.T) {
	onDevices(t, func(t *testing.T, env *runtime.Env) {
		c := halfModel()
		w := randomWeights(t, c, 3)
		score := func(w *models.Weights, ring *runtime.Ring) []float32 {
			l, err := env.NewLearner(ring, runtime.LearnerOptions{ScoreOnly: true})
			check(t, err)
			defer l.Close()
			p, err := l.Forward(madeSequences(), 1, false)
			check(t, err)
			defer p.Release()
			return flat(p.LogProb)
		}
		ring := runtime.NewRing(c, w)
		defer ring.Close()
		before := score(w, ring)
		for step := range 3 {
			l, o := train(t, env, ring)
			l.Close()
			o.Close()
			after := score(w, ring)
			check(t, env.Download(w))
			fresh, err := models.NewWeights(w.Layout)
			check(t, err)
			copy(fresh.Data, w.Data)
			other := runtime.NewRing(c, fresh)
			if slices.Equal(after, before) || !slices.Equal(after, score(fresh, other)) {
				t.Fatalf("step %d: the graphs do not read what the step wrote", step)
			}
			clear(fresh.Data)
			check(t, env.Upload(fresh))
			for _, x := range score(fresh, other) {
				if math.Abs(float64(x)+math.Log(300)) > 1e-5 {
					t.Fatalf("with all weights zero: log-prob %v, want %v", x, -math.Log(300))
				}
			}
			other.Close()
			fresh.Close()
			before = after
		}
	})
}

// train makes two updates and returns the Learner and Optimizer that made them.
func train(t *testing.T, env *runtime.Env, ring *runtime.Ring) (*runtime.Learner, *runtime.Optimizer) {
	t.Helper()
	l, err := env.NewLearner(ring, runtime.LearnerOptions{StashBytes: everything})
	check(t, err)
	o, err := env.NewOptimizer(ring, l.Gradients, adamw.Default())
	check(t, err)
	for range 2 {
		l.ZeroGradients()
		p, err := l.Forward(madeSequences(), 1, true)
		check(t, err)
		check(t, p.Backward(likeLogProb(p, 0.01), nil))
		p.Release()
		_, err = clipAndUpdate(o, 1e-2)
		check(t, err)
	}
	return l, o
}

// TestOffload: moments and weights that the host keeps give the same bits as on the
// device, also if the device cannot lock the host's memory, which a notice says. Nothing
// stays locked. Weights that the host keeps survive Forget, and are not on the device.
func TestOffload(t *testing.T) {
	cpu := runtimetest.Test(t)
	for _, tt := range []struct {
		device        string
		compute       models.DType
		offload       runtime.Offload
		most          int // how many ranges may be locked; 0 is any number
		locked, slots int
		crossing      int // bytes of a parameter, about
	}{
		{"stand-in-cuda", models.F32, runtime.OffloadAll, 0, 2, 3, 8},
		{"stand-in-cuda", models.F16, runtime.OffloadMoments, 0, 2, 3, 8},
		{"stand-in-cuda", models.F16, runtime.OffloadMoments, 1, 0, 1, 8},
		{"stand-in-cuda", models.F16, runtime.OffloadAll, 0, 3, 3, 10},
	} {
		t.Run(fmt.Sprintf("%s, %v, %s, at most %d", tt.device, tt.compute, tt.offload, tt.most), func(t *testing.T) {
			var want, logProbs []float32
			var moved [2]int64
			for i := range 2 {
				env := runtime.OpenStandIn(t, cpu, tt.device)
				c := halfModel()
				c.Type = tt.compute
				var notices []string
				env.SetNotice(func(text string) { notices = append(notices, text) })
				env.Locked(tt.most)
				w, ring := madeUpRing(t, c, 3)
				if i > 0 {
					ring.Offload = tt.offload
				}
				before, _ := env.Crossed()
				// The parts are so small that there are more parts than slots.
				check(t, ring.Divide(0, 1, 1000))
				l, o := train(t, env, ring)
				up, _ := env.Crossed()
				moved[i] = up - before
				if locked := env.Locked(0); i > 0 && (locked != tt.locked || o.Slots() != tt.slots || (len(notices) > 0) != (tt.most > 0) || tt.most > 0 && !strings.Contains(notices[0], "locks no more")) {
					t.Errorf("%d ranges are locked, %d slots, notices %q", locked, o.Slots(), notices)
				}
				all := []*models.Weights{w, o.State["exp_avg"], o.State["exp_avg_sq"]}
				for range 2 {
					check(t, env.Download(all...))
					got := slices.Concat(w.Data, all[1].Data, all[2].Data)
					if want == nil {
						want = got
					}
					if !slices.Equal(got, want) {
						t.Error("weights or moments differ")
					}
					env.Forget(all...)
				}
				// The device's copies are made again from the weights that the host uploads.
				check(t, env.Download(w))
				check(t, env.Upload(w))
				p, err := l.Forward(madeSequences(), 1, false)
				check(t, err)
				if i == 0 {
					logProbs = slices.Clone(p.LogProb[0])
				} else if !slices.Equal(logProbs, p.LogProb[0]) {
					t.Error("log-probs differ")
				}
				p.Release()
				l.Close()
				o.Close()
				if locked := env.Locked(0); locked != 0 {
					t.Errorf("%d ranges stay locked", locked)
				}
				if n := int64(len(w.Data)); i > 0 && (moved[1]-moved[0] < int64(2*tt.crossing-4)*n || moved[1]-moved[0] > int64(2*tt.crossing+4)*n) {
					t.Errorf("%d bytes went up where %d do without, for %d parameters", moved[1], moved[0], n)
				}
			}
		})
	}
}

// TestOffloadOnGPU: a GPU gives the same bits while CUDA copies and computes at the same time.
func TestOffloadOnGPU(t *testing.T) {
	env := runtimetest.Test(t)
	if env.Device() == "cpu" {
		t.Skip("is about a GPU")
	}
	var want []float32
	for _, offload := range []runtime.Offload{runtime.OffloadNone, runtime.OffloadAll} {
		w, ring := madeUpRing(t, halfModel(), 3)
		ring.Offload = offload
		check(t, ring.Divide(0, 1, 1000))
		l, o := train(t, env, ring)
		if slots := o.Slots(); offload == runtime.OffloadAll && slots != 3 && strings.HasPrefix(env.Device(), "cuda") {
			t.Errorf("%d slots: the host's memory was not locked", slots)
		}
		check(t, env.Download(w, o.State["exp_avg"], o.State["exp_avg_sq"]))
		got := slices.Concat(w.Data, o.State["exp_avg"].Data, o.State["exp_avg_sq"].Data)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Error("weights or moments differ")
		}
		l.Close()
		o.Close()
	}
}

// Optimizers that each own a part update as a single optimizer does: with all state on the host, of
// which each locks only its part, and other parts may be forgotten and overwritten there; and on a CPU
// in bfloat16, which holds the float32 weights of its part in halves.
func TestOffloadParts(t *testing.T) {
	env := runtimetest.Test(t)
	testParts(t, runtime.OpenStandIn(t, env, "stand-in-cuda"), models.F16, runtime.OffloadAll)
	if env.Device() == "cpu" {
		testParts(t, env, models.BF16, runtime.OffloadNone)
	}
}

func testParts(t *testing.T, env *runtime.Env, compute models.DType, offload runtime.Offload) {
	c := halfModel()
	c.Type = compute
	var want, joined []float32
	for part, parts := range []int{1, 3, 3, 3} {
		w, ring := madeUpRing(t, c, 3)
		if part > 0 {
			ring.Offload = offload
		}
		check(t, ring.Divide(max(0, part-1), parts, 1000))
		l, err := env.NewLearner(ring, runtime.LearnerOptions{})
		check(t, err)
		o, err := env.NewOptimizer(ring, l.Gradients, adamw.Default())
		check(t, err)
		p, err := l.Forward(madeSequences(), 1, true)
		check(t, err)
		check(t, p.Backward(likeLogProb(p, 0.01), nil))
		p.Release()
		check(t, o.Update(1e-2, 1))
		if part == 0 {
			check(t, env.Download(w))
			want, joined = slices.Clone(w.Data), make([]float32, len(w.Data))
		}
		for _, b := range o.Buckets() {
			from, to := b[part-1], b[part]
			check(t, env.DownloadPart(w, from, to))
			copy(joined[from:to], w.Data[from:to])
			o.State["exp_avg"].ForgetPart(b[0], from)
			o.State["exp_avg"].ForgetPart(to, b[parts])
			if slices.ContainsFunc(o.State["exp_avg_sq"].Data[b[0]:from], func(x float32) bool { return x != 0 }) {
				t.Errorf("part %d has updated others' state", part)
			}
		}
		l.Close()
		o.Close()
	}
	if !slices.Equal(joined, want) {
		t.Errorf("%v: the parts differ from the whole", compute)
	}
}

// A device that is lost in the middle of an update whose moments are on the host is an
// error; then no copy is under way, and no memory stays locked.
func TestOffloadLost(t *testing.T) {
	cpu := runtimetest.Test(t)
	met := 0
	for calls := 1; met < 3; calls += 7 {
		env := runtime.OpenStandIn(t, cpu, fmt.Sprintf("stand-in-cuda:%d", calls))
		c := halfModel()
		c.Type = models.F16
		_, ring := madeUpRing(t, c, 3)
		ring.Offload = runtime.OffloadMoments
		check(t, ring.Divide(0, 1, 1000))
		l, err := env.NewLearner(ring, runtime.LearnerOptions{})
		if err != nil {
			continue
		}
		o, err := env.NewOptimizer(ring, l.Gradients, adamw.Default())
		if err == nil {
			if err := o.Update(1e-2, 1); err == nil {
				t.Fatalf("%d calls are enough for an update, and %d losses were met", calls, met)
			} else if met++; !errors.Is(err, runtime.ErrLost) {
				t.Errorf("after %d calls: %v", calls, err)
			}
			o.Close()
		}
		if locked := env.Locked(0); locked != 0 {
			t.Errorf("after %d calls: %d ranges stay locked", calls, locked)
		}
		l.Close()
	}
}

// TestLossScale: gradients that float16 cannot hold are an error before anything is
// updated. Otherwise the loss scale changes no result.
func TestLossScale(t *testing.T) {
	onDevices(t, func(t *testing.T, env *runtime.Env) {
		w, ring := madeUpRing(t, halfModel(), 3)
		l, err := env.NewLearner(ring, runtime.LearnerOptions{StashBytes: everything})
		check(t, err)
		defer l.Close()
		o, err := env.NewOptimizer(ring, l.Gradients, adamw.Default())
		check(t, err)
		defer o.Close()
		var norms []float64
		for _, scale := range []float64{0, 1 << 8, 1 << 40, 1 << 10} {
			ring.LossScale = scale
			l.ZeroGradients()
			p, err := l.Forward(madeSequences(), 1, true)
			check(t, err)
			check(t, p.Backward(likeLogProb(p, 0.1), nil))
			p.Release()
			check(t, env.Download(w))
			was := slices.Clone(w.Data)
			norm, err := o.GradNorm()
			if scale < 1<<40 {
				check(t, err)
				norms = append(norms, norm)
				continue
			}
			_, step := clipAndUpdate(o, 1e-2)
			check(t, env.Download(w, o.State["exp_avg"]))
			if !errors.Is(err, runtime.ErrOverflow) || !errors.Is(step, runtime.ErrOverflow) || !slices.Equal(was, w.Data) || o.Updates != 0 || o.State["exp_avg"].Data[0] != 0 {
				t.Errorf("scale 2^40: %v, %v, %d steps", err, step, o.Updates)
			}
		}
		for _, n := range norms {
			if math.Abs(n-norms[0]) > 2e-3*norms[0] {
				t.Errorf("the norm depends on the scale: %v", norms)
			}
		}
	})
}

// TestHostForgets: weights on a device take no memory of the host until they are
// downloaded.
func TestHostForgets(t *testing.T) {
	if goruntime.GOOS != "linux" {
		t.Skip("elsewhere a system need not say at once what it took back")
	}
	env := runtime.OpenStandIn(t, runtimetest.Test(t), "stand-in-cuda")
	w, ring := madeUpRing(t, halfModel(), 3)
	was := slices.Clone(w.Data)
	l, err := env.NewLearner(ring, runtime.LearnerOptions{ScoreOnly: true})
	check(t, err)
	defer l.Close()
	for range 2 {
		if slices.ContainsFunc(w.Data, func(x float32) bool { return x != 0 }) {
			t.Fatal("the host still has the weights")
		}
		check(t, env.Download(w))
		if !slices.Equal(w.Data, was) {
			t.Fatal("the device does not have the weights")
		}
		env.Forget(w)
	}
}

// TestRingStaysOnDevice: weights on one device cannot be used on another.
func TestRingStaysOnDevice(t *testing.T) {
	cpu := runtimetest.Test(t)
	first, second := runtime.OpenStandIn(t, cpu, "stand-in-cuda"), runtime.OpenStandIn(t, cpu, "stand-in-cuda")
	_, ring := madeUpRing(t, halfModel(), 3)
	scores := runtime.LearnerOptions{ScoreOnly: true}
	for range 2 {
		l, err := first.NewLearner(ring, scores)
		check(t, err)
		l.Close()
	}
	if _, err := second.NewLearner(ring, scores); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second device: %v", err)
	}
}
