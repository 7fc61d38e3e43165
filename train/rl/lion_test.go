//go:build !windows

package rl_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"onering/data"
	"onering/internal/settings"
	"onering/models"
	"onering/models/graph"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train/rl"
)

// lion is the optimizer Lion (Chen et al. 2023, algorithm 2), as somebody outside this
// repository would write it. Its step is the sign of beta1 m + (1-beta1) g; then m
// becomes beta2 m + (1-beta2) g.
type lion struct {
	Beta1       float64 `toml:"beta1" range:"[0,1)" help:"share of the moment in a step"`
	Beta2       float64 `toml:"beta2" range:"[0,1)" help:"decay of the moment"`
	WeightDecay float64 `toml:"weight_decay" range:"[0,)" help:"decoupled weight decay"`
}

func init() { models.RegisterOptimizer("lion", func() models.Optimizer { return newLion() }) }

func newLion() *lion { return &lion{Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1} }

func (lion) State() []models.OptimizerState {
	return []models.OptimizerState{{Name: "exp_avg", Port: "m"}}
}
func (lion) ByTensor() bool { return false }

func (l lion) Scalars(_ int, rate float64) map[string]float64 {
	return map[string]float64{
		"beta1": l.Beta1, "rest1": 1 - l.Beta1, "beta2": l.Beta2, "rest2": 1 - l.Beta2, "rate": rate, "keep": 1 - rate*l.WeightDecay,
	}
}

func (lion) Program(_ []int, copy models.DType) (models.Program, error) {
	return graph.Build("lion", func(g *graph.Graph) {
		p, m, grad := g.Float("p", "n"), g.Float("m", "n"), graph.Mul(g.Float("g", "n"), g.Float("clip"))
		step := graph.Sign(graph.Add(graph.Mul(m, g.Float("beta1")), graph.Mul(grad, g.Float("rest1"))))
		p1 := graph.Sub(graph.Mul(p, g.Float("keep")), graph.Mul(step, g.Float("rate")))
		g.OutputOnto("p1", p1, "p")
		g.OutputOnto("m1", graph.Add(graph.Mul(m, graph.After(g.Float("beta2"), step)), graph.Mul(grad, g.Float("rest2"))), "m")
		if copy != models.F32 {
			g.Output("copy", graph.Cast(p1, copy))
		}
	})
}

// TestLionStep: Lion computes its formula, element by element, in float32 and in float16,
// where ONNX Runtime writes the copy of the weights.
func TestLionStep(t *testing.T) {
	env := runtimetest.Test(t)
	for _, dtype := range []string{"float32", "float16"} {
		p, err := policy.Open(env, policy.Options{Path: data.Arithmetic, DType: dtype})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		w := p.Ring.Trained()
		gradients, err := models.NewWeights(w.Layout)
		if err != nil {
			t.Fatal(err)
		}
		defer gradients.Close()
		rule := newLion()
		o, err := env.NewOptimizer(p.Ring, gradients, rule)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		const rate, clip = 1e-3, 0.37
		r := rand.New(rand.NewPCG(1, 2))
		want, m := slices.Clone(w.Data), make([]float32, len(w.Data))
		for range 5 {
			for i := range gradients.Data {
				g := float32(r.NormFloat64())
				if i%7 == 0 {
					g = 0 // the sign of 0 is 0
				}
				gradients.Data[i] = g
				g *= clip
				step := float32(0)
				if c := float32(rule.Beta1)*m[i] + float32(1-rule.Beta1)*g; c != 0 {
					step = float32(math.Copysign(1, float64(c)))
				}
				want[i] = want[i]*float32(1-rate*rule.WeightDecay) - rate*step
				m[i] = float32(rule.Beta2)*m[i] + float32(1-rule.Beta2)*g
			}
			if err := env.Upload(gradients); err != nil {
				t.Fatal(err)
			}
			if err := o.Update(rate, clip); err != nil {
				t.Fatal(err)
			}
		}
		if err := env.Download(w, o.State["exp_avg"]); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if x, y := w.Data[i], o.State["exp_avg"].Data[i]; math.Abs(float64(x-want[i])) > 1e-6 || math.Abs(float64(y-m[i])) > 1e-6 {
				t.Fatalf("%s: element %d is %v with the moment %v, want %v and %v", dtype, i, x, y, want[i], m[i])
			}
		}
	}
}

// lionConfig is a run of a kind that Lion trains, with settings as --set states them.
func lionConfig(t *testing.T, kind, dir string) rl.Config {
	t.Helper()
	c := kindConfig(kind, dir)
	every(&c)
	sets, err := settings.Sets([]string{"optimizer.name=lion", "optimizer.beta2=0.95", "optimizer.learning_rate=1e-4"})
	if err == nil {
		_, err = settings.Resolve(&c, settings.Command{}, sets)
	}
	if l, ok := c.Optimizer.Rule.(*lion); err != nil || !ok || l.Beta1 != 0.9 || l.Beta2 != 0.95 {
		t.Fatalf("%+v, %v", c.Optimizer, err)
	}
	return c
}

// TestLionTrains: with an optimizer from outside of onering, a run that is stopped and resumed ends
// with the same bytes, and so do two ranks that each hold a part of the optimizer's one moment.
func TestLionTrains(t *testing.T) {
	env := runtimetest.Test(t)
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := continueRun(env, lionConfig(t, "reference", dir), false); err != nil {
		t.Fatal(err)
	}
	want, names := contents(t, dir), list(t, dir)
	state, _ := filepath.Glob(filepath.Join(dir, "checkpoints", names[0], "state", "exp_avg*.safetensors"))
	if len(state) != 1 || filepath.Base(state[0]) != "exp_avg.safetensors" {
		t.Errorf("a checkpoint keeps %v", state)
	}
	for _, name := range names[len(names)/2:] {
		if err := os.RemoveAll(filepath.Join(dir, "checkpoints", name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := continueRun(env, lionConfig(t, "reference", dir), true); err != nil {
		t.Fatal(err)
	}
	same(t, "resumed", contents(t, dir), want)
	parts := map[string]string{}
	for _, shard := range []string{"none", "optimizer"} {
		parts[shard] = filepath.Join(t.TempDir(), "run")
		wellTogether(t, env, 2, false, func(int) rl.Config {
			c := lionConfig(t, "reference", parts[shard])
			c.Distributed.Shard = shard
			return c
		})
	}
	same(t, "in parts", lastFiles(t, parts["optimizer"]), lastFiles(t, parts["none"]))
}

// amsgrad has three arrays of state, as AMSGrad has; none has no state.
type (
	amsgrad struct{ lion }
	none    struct{ lion }
)

func (amsgrad) State() []models.OptimizerState {
	return []models.OptimizerState{{Name: "exp_avg"}, {Name: "exp_avg_sq"}, {Name: "max_exp_avg_sq"}}
}
func (none) State() []models.OptimizerState { return nil }

// TestEstimateMoments: a run takes the memory of as many moments as its optimizer has, on
// the device or on the host, whole or in parts, and so do its checkpoints.
func TestEstimateMoments(t *testing.T) {
	model, err := policy.ReadModel(data.Arithmetic)
	if err != nil {
		t.Fatal(err)
	}
	n := int64(model.Layout().Size)
	for moments, rule := range []models.Optimizer{none{}, newLion(), rl.Default().Optimizer.Rule, amsgrad{}} {
		moments := 4 * n * int64(moments)
		for _, device := range []string{"cpu", "cuda"} {
			c := lionConfig(t, "reference", "")
			c.Optimizer.Rule, c.Runtime.Device, c.Model.ReferenceUpdate = rule, device, 0
			t.Run(fmt.Sprintf("%d bytes on %s", moments, device), func(t *testing.T) {
				estimate := func(ranks int) rl.MemoryEstimate {
					e, err := c.EstimateMemory(model, rl.Split{Ranks: ranks})
					if err != nil {
						t.Fatal(err)
					}
					return e
				}
				e := estimate(1)
				_, largest := model.Layout().Largest()
				saving, copied := int64(0), 4*n+moments
				if device == "cuda" {
					saving, copied = 4*int64(largest), copied+4*int64(largest)
				}
				if got := e.Of("moments"); got.Device != moments || got.Host != 0 || e.Saving != saving || e.Copy != copied {
					t.Errorf("%+v, saving %d of %d, a copy of %d of %d", got, e.Saving, saving, e.Copy, copied)
				}
				c.Distributed.Shard = "optimizer"
				if two := estimate(2); two.Of("moments").Device != moments/2 || two.Gathered != moments/2 {
					t.Errorf("of two ranks: %+v, others %d", two.Of("moments"), two.Gathered)
				}
				c.Optimizer.Offload = runtime.OffloadMoments
				if got := estimate(1).Of("moments"); device == "cuda" && (got.Host != moments || got.Device != 0) || device == "cpu" && got.Device != moments {
					t.Errorf("offloaded: %+v", got)
				}
			})
		}
	}
}
