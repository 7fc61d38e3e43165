package runtime_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"onering/models"
	"onering/models/graph"
	"onering/models/optim/adamw"
	"onering/runtime"
	"onering/runtime/runtimetest"
)

// rowSteps is an optimizer that needs the shape of tensors: each row of a matrix takes a
// step of length rate against the running mean of its gradients, of any length; vectors
// are one row.
type rowSteps struct{ asked map[string]int }

func (rowSteps) State() []models.OptimizerState {
	return []models.OptimizerState{{Name: "mean", Port: "m"}}
}
func (rowSteps) ByTensor() bool { return true }
func (rowSteps) Scalars(n int, rate float64) map[string]float64 {
	return map[string]float64{"rate": rate, "old": 1 - 1/float64(n), "new": 1 / float64(n)}
}

func (r rowSteps) Program(shape []int, copy models.DType) (models.Program, error) {
	r.asked[fmt.Sprint(shape, copy)]++
	var sizes []any
	for _, d := range shape {
		sizes = append(sizes, d)
	}
	return graph.Build("rowsteps", func(g *graph.Graph) {
		p, grad, mean := g.Float("p", sizes...), g.Float("g", sizes...), g.Float("m", sizes...)
		m1 := graph.Add(graph.Mul(mean, g.Float("old")), graph.Mul(graph.Mul(grad, g.Float("clip")), g.Float("new")))
		squares := graph.ReduceSum(graph.Mul(m1, m1), len(shape)-1)
		p1 := graph.Sub(p, graph.Div(graph.Mul(m1, g.Float("rate")), graph.Sqrt(squares)))
		g.OutputOnto("p1", p1, "p")
		g.OutputOnto("m1", m1, "m")
		if copy != models.F32 {
			g.Output("copy", graph.Cast(p1, map[models.DType]models.DType{models.F16: models.F16, models.BF16: models.BF16}[copy]))
		}
	})
}

// otherNames returns as many scalars as its update reads, but one of them has another name.
type otherNames struct{ rowSteps }

func (o otherNames) Scalars(n int, rate float64) map[string]float64 {
	given := o.rowSteps.Scalars(n, rate)
	given["young"] = given["new"]
	delete(given, "new")
	return given
}

// Scalars reach an update by their order, so their names must match those that the update reads.
func TestScalarsByName(t *testing.T) {
	onDevices(t, func(t *testing.T, env *runtime.Env) {
		w, ring := madeUpRing(t, halfModel(), 3)
		l, err := env.NewLearner(ring, runtime.LearnerOptions{})
		check(t, err)
		defer l.Close()
		o, err := env.NewOptimizer(ring, l.Gradients, otherNames{rowSteps{map[string]int{}}})
		check(t, err)
		defer o.Close()
		check(t, env.Download(w))
		before := slices.Clone(w.Data)
		if err := o.Update(1e-2, 1); err == nil || !strings.Contains(err.Error(), `"young"`) {
			t.Errorf("error %v", err)
		}
		if check(t, env.Download(w)); !slices.Equal(w.Data, before) {
			t.Error("weights were updated")
		}
	})
}

// An optimizer that is not AdamW trains: its state has its names, its Programs see whole
// tensors with their shapes, one Program for all of a shape, and the 16-bit copy holds
// the new weights.
func TestOptimizerByTensor(t *testing.T) {
	onDevices(t, func(t *testing.T, env *runtime.Env) {
		for _, compute := range []models.DType{models.F32, models.F16, models.BF16} {
			if compute == models.BF16 && env.Device() != "cpu" {
				continue // of 16 bits devices have one type here
			}
			c := halfModel()
			c.Type = compute
			w, ring := madeUpRing(t, c, 3)
			check(t, env.Download(w))
			before := slices.Clone(w.Data)
			l, err := env.NewLearner(ring, runtime.LearnerOptions{StashBytes: everything})
			check(t, err)
			defer l.Close()
			rule := rowSteps{map[string]int{}}
			o, err := env.NewOptimizer(ring, l.Gradients, rule)
			check(t, err)
			defer o.Close()
			l.ZeroGradients()
			p, err := l.Forward(madeSequences(), 1, true)
			check(t, err)
			check(t, p.Backward(likeLogProb(p, 0.01), nil))
			p.Release()
			const rate = 1e-2
			_, err = clipAndUpdate(o, rate)
			check(t, err)
			check(t, env.Download(w, o.State["mean"], l.Gradients))
			if o.Updates != 1 || len(o.State) != 1 {
				t.Errorf("%d updates, state %v", o.Updates, o.State)
			}
			for shape, n := range rule.asked {
				// beside a copy, a CPU computes in float32 and rounds afterwards
				if n != 1 && (compute == models.F32 || n > 2) {
					t.Errorf("%d Programs for %s", n, shape)
				}
			}
			moved := 0
			for _, name := range w.Layout.Names() {
				place, _ := w.Layout.Find(name)
				width := place.Shape[len(place.Shape)-1]
				for row := place.Offset; row < place.Offset+place.Size; row += width {
					length, g := 0.0, 0.0
					for i := row; i < row+width; i++ {
						d := float64(w.Data[i]) - float64(before[i])
						length += d * d
						g += math.Abs(float64(l.Gradients.Data[i]))
					}
					if g == 0 {
						continue // a token that is in no sequence: its gradient is 0, and 0/0 must not appear
					}
					moved++
					if length = math.Sqrt(length); math.Abs(length-rate) > 1e-3*rate {
						t.Errorf("%v: a row of %s moved by %v, want %v", compute, name, length, rate)
						break
					}
				}
			}
			if moved < len(w.Layout.Names()) {
				t.Errorf("%v: %d rows moved", compute, moved)
			}
		}
	})
}

// Tiles and ONNX Runtime update to the same bits, and so does a device, also
// with gradients and moments that are zero, subnormal or huge, and in ranges whose length is not a multiple of a vector's.
func TestTilesAreONNXRuntimes(t *testing.T) {
	cpu := runtimetest.Test(t)
	c := halfModel()
	c.Type = models.F32
	var bits [3][]uint32
	for side := range bits {
		env := cpu
		if side == 2 {
			if cpu.Device() != "cpu" {
				bits[2] = bits[0] // the device's weights equal those of side 0
				break
			}
			env = runtime.OpenStandIn(t, cpu, "stand-in-cuda")
		}
		w, ring := madeUpRing(t, c, 3)
		gradients, err := models.NewWeights(c.Layout())
		check(t, err)
		defer gradients.Close()
		rule := adamw.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}
		o, err := env.NewOptimizer(ring, gradients, &rule)
		check(t, err)
		defer o.Close()
		if side == 1 {
			check(t, o.Untiled())
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 4 {
			for i := range gradients.Data {
				gradients.Data[i] = float32(r.NormFloat64() * math.Pow(10, float64(r.IntN(60)-42)))
				if i%7 == 0 {
					gradients.Data[i] = 0
				}
			}
			check(t, o.Update(1e-3, 0.37))
		}
		for _, x := range []*models.Weights{w, o.State["exp_avg"], o.State["exp_avg_sq"]} {
			check(t, env.Download(x))
			for _, v := range x.Data {
				bits[side] = append(bits[side], math.Float32bits(v))
			}
		}
	}
	for i, x := range bits[0] {
		if y, z := bits[1][i], bits[2][i]; x != y || x != z {
			t.Fatalf("element %d of %d: %08x by tiles, %08x by ONNX Runtime, %08x on a device", i, len(bits[0]), x, y, z)
		}
	}
}

// BenchmarkAdamW updates a model of 64 million parameters, with the norm that clips
// the gradients, and says how many nanoseconds a parameter takes.
func BenchmarkAdamW(b *testing.B) {
	env := runtimetest.Test(b)
	c := qwen2Of(models.Sizes{Layers: 2, Hidden: 512, Heads: 8, KVHeads: 2, HeadDim: 64, FFN: 4096, Vocab: 100000, MaxPositions: 64})
	w, ring := madeUpRing(b, c, 3)
	gradients, err := models.NewWeights(c.Layout())
	check(b, err)
	defer gradients.Close()
	for i := range gradients.Data {
		gradients.Data[i] = float32(i%1021-510) * 1e-6
	}
	rule := adamw.Default()
	o, err := env.NewOptimizer(ring, gradients, &rule)
	check(b, err)
	defer o.Close()
	norm, update := time.Hour, time.Hour // the least
	for b.Loop() {
		began := time.Now()
		x, err := o.GradNorm()
		check(b, err)
		norm = min(norm, time.Since(began))
		began = time.Now()
		check(b, o.Update(1e-6, min(1, 1/x)))
		update = min(update, time.Since(began))
	}
	n := float64(len(w.Data))
	b.ReportMetric(float64(norm.Nanoseconds())/n, "norm-ns/parameter")
	b.ReportMetric(float64(update.Nanoseconds())/n, "update-ns/parameter")
}

// In bfloat16 a CPU holds the matrices' float32 in halves: updates give them the bits that those of
// float32 give, but for a number halfway between two bfloat16, and the host has them only between
// Download and Forget.
func TestHalvesUpdateAsFloat32(t *testing.T) {
	env := runtimetest.Test(t)
	if env.Device() != "cpu" {
		t.Skip("is about the CPU")
	}
	var weights, gradients [2]*models.Weights
	var optimizers [2]*runtime.Optimizer
	for i, compute := range []models.DType{models.F32, models.BF16} {
		c := halfModel()
		c.Type, c.Vocab = compute, 1000 // so that the embedding is put together in several portions
		w, ring := madeUpRing(t, c, 3)
		l, err := env.NewLearner(ring, runtime.LearnerOptions{})
		check(t, err)
		defer l.Close()
		o, err := env.NewOptimizer(ring, l.Gradients, adamw.Default())
		check(t, err)
		defer o.Close()
		if env.OnHost(w) != (compute == models.F32) {
			t.Errorf("%v: the host has all weights: %v", compute, env.OnHost(w))
		}
		weights[i], gradients[i], optimizers[i] = w, l.Gradients, o
	}
	r := rand.New(rand.NewPCG(7, 8))
	for range 3 {
		for i := range gradients[0].Data {
			x := float32(r.NormFloat64())
			gradients[0].Data[i], gradients[1].Data[i] = x, x
		}
		for _, o := range optimizers {
			check(t, o.Update(1e-3, 0.5))
		}
	}
	check(t, env.Download(weights[1]))
	moved := 0
	for i, x := range weights[0].Data {
		if a, b := math.Float32bits(x), math.Float32bits(weights[1].Data[i]); a != b {
			moved++
			if max(a, b)-min(a, b) > 3 {
				t.Fatalf("element %d is %v, not %v", i, weights[1].Data[i], x)
			}
		}
	}
	if moved > 1+len(weights[0].Data)/1000 {
		t.Errorf("%d of %d elements differ", moved, len(weights[0].Data))
	}
	got := slices.Clone(weights[1].Data)
	env.Forget(weights[1])
	check(t, env.Download(weights[1]))
	if !slices.Equal(weights[1].Data, got) {
		t.Error("what the host forgot comes back otherwise")
	}
	check(t, env.Upload(weights[1]))
	check(t, env.Download(weights[1]))
	if !slices.Equal(weights[1].Data, got) {
		t.Error("what the host gives comes back otherwise")
	}
}
