// Package adamw is the optimizer AdamW. It works on slices of elements and ignores where
// tensors begin.
//
// Weights, gradients and moments are always float32. If the model computes in 16 bits,
// the update also rounds the new weights into the copy that the model reads; the float32
// weights accumulate changes too small for 16 bits.
package adamw

import (
	"fmt"
	"math"

	"onering/models"
	"onering/models/graph"
	"onering/models/ports"
)

// AdamW is AdamW with decoupled weight decay (Loshchilov & Hutter 2019, algorithm
// 2); the names of its settings and of its state are PyTorch's. Update t = 1, 2,
// ... is
//
//	m = beta1 m + (1-beta1) g,  v = beta2 v + (1-beta2) g^2
//	p = keep p - rate m / (sqrt(v) root + eps)
//
// with g times clip for g, rate = lr/(1-beta1^t), root = 1/sqrt(1-beta2^t) and
// keep = 1 - lr*weight_decay.
type AdamW struct {
	Beta1       float64 `toml:"beta1" range:"[0,1)" help:"decay of the first moment"`
	Beta2       float64 `toml:"beta2" range:"[0,1)" help:"decay of the second moment"`
	Eps         float64 `toml:"eps" range:"(0,)" help:"added to the root of the second moment"`
	WeightDecay float64 `toml:"weight_decay" range:"[0,)" help:"decoupled weight decay: an update shrinks each weight by its learning rate times this share"`
}

func init() {
	models.RegisterOptimizer("adamw", func() models.Optimizer { a := Default(); return &a })
}

// Default has the settings of the paper's recipe.
func Default() AdamW { return AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8} }

// State names the running means of g and g^2.
func (AdamW) State() []models.OptimizerState {
	return []models.OptimizerState{{Name: "exp_avg", Port: ports.First}, {Name: "exp_avg_sq", Port: ports.Second}}
}

// ByTensor implements models.Optimizer: each element has its own update.
func (AdamW) ByTensor() bool { return false }

// Scalars implements models.Optimizer.
func (a AdamW) Scalars(t int, lr float64) map[string]float64 {
	return map[string]float64{
		ports.Beta1: a.Beta1, ports.Beta1Rest: 1 - a.Beta1, ports.Beta2: a.Beta2, ports.Beta2Rest: 1 - a.Beta2, ports.Eps: a.Eps,
		ports.Rate:        lr / (1 - math.Pow(a.Beta1, float64(t))),
		ports.SecondScale: 1 / math.Sqrt(1-math.Pow(a.Beta2, float64(t))),
		ports.Keep:        1 - lr*a.WeightDecay,
	}
}

// Program implements models.Optimizer: the update of AdamW as a graph over n elements, in place. It
// also writes the new weights in the type copy, unless that is float32.
func (AdamW) Program(_ []int, copy models.DType) (models.Program, error) {
	name := "adamw"
	switch copy {
	case models.F16, models.BF16:
		name = "adamw.copy"
	case models.F32:
	default:
		return models.Program{}, fmt.Errorf("adamw: a copy of the weights in %v: there are only those in BF16 and F16", copy)
	}
	return graph.Build(name, func(g *graph.Graph) {
		in := func(name string) *graph.Node { return g.Float(name, "n") }
		scalar := func(name string) *graph.Node { return g.Float(name) }
		p, grad, m, v := in(ports.Param), in(ports.Grad), in(ports.First), in(ports.Second)
		clip, beta1, beta2, rest1, rest2 := scalar(ports.Clip), scalar(ports.Beta1), scalar(ports.Beta2), scalar(ports.Beta1Rest), scalar(ports.Beta2Rest)
		rate, root, eps, keep := scalar(ports.Rate), scalar(ports.SecondScale), scalar(ports.Eps), scalar(ports.Keep)

		grad = graph.Mul(grad, clip)
		m1 := graph.Add(graph.Mul(m, beta1), graph.Mul(grad, rest1))
		v1 := graph.Add(graph.Mul(v, beta2), graph.Mul(graph.Mul(grad, grad), rest2))
		update := graph.Div(graph.Mul(m1, rate), graph.Add(graph.Mul(graph.Sqrt(v1), root), eps))
		p1 := graph.Sub(graph.Mul(p, keep), update)
		g.OutputOnto(ports.ParamOut, p1, ports.Param)
		g.OutputOnto("m1", m1, ports.First) // the ports of State with a 1, as models.Optimizer demands
		g.OutputOnto("v1", v1, ports.Second)
		if copy != models.F32 {
			g.Output(ports.Copy, graph.Cast(p1, copy))
		}
	})
}
