// Package adamw builds the optimizer's Programs: the sum of squares for the
// gradient norm and one AdamW step, both over a slice of the arena, so that
// they know nothing of tensors.
//
// Weights, gradients and moments are float32 whatever the model computes in.
// Where that is a 16-bit type the step rounds the new weights into the copy
// that the model reads: the float32 ones keep what is too small for it.
package adamw

import (
	"math"

	"onering/models"
	"onering/models/graph"
	"onering/models/onnx"
	"onering/models/ports"
)

// Norm2 sums the squares of g [n]: the output "sum" has no dimensions.
func Norm2() (models.Program, error) {
	return graph.Build("norm2", func(g *graph.Graph) {
		g.Output(ports.SquareSum, graph.ReduceSumSquare(g.Float(ports.Grad, "n")))
	})
}

// Norm2Scaled is Norm2 for gradients that are 1/unscale times too large: "sum"
// is that of g*unscale, and "found" [1] is how many elements of g are infinite or
// NaN.
func Norm2Scaled() (models.Program, error) {
	return graph.Build("norm2.scaled", func(g *graph.Graph) {
		grad := g.Float(ports.Grad, "n")
		g.Output(ports.SquareSum, graph.ReduceSumSquare(graph.Mul(grad, g.Float(ports.Unscale))))
		finite := graph.LessOrEqual(graph.Abs(grad), g.Scalar(math.MaxFloat32))
		g.Output(ports.NotFinite, graph.ReduceSum(graph.Where(finite, g.Scalar(0), g.Scalar(1)), 0))
	})
}

// Step is AdamW with decoupled weight decay (Loshchilov & Hutter 2019,
// algorithm 2) over p, g, m, v [n]; p, m and v are updated in place. The
// scalars hold what depends on the step t = 1, 2, ...: clip scales g, rate is
// lr/(1-beta1^t), root is 1/sqrt(1-beta2^t), keep is 1 - lr*weight_decay. What
// the loss was scaled by is divided out in clip too.
//
//	m = beta1 m + (1-beta1) g,  v = beta2 v + (1-beta2) g^2
//	p = keep p - rate m / (sqrt(v) root + eps)
func Step() (models.Program, error) { return build("adamw", onnx.Float) }

// StepCopy is Step with a further output: "copy" [n], p1 rounded to a 16-bit
// type.
func StepCopy(elem onnx.ElemType) (models.Program, error) { return build("adamw.copy", elem) }

func build(name string, elem onnx.ElemType) (models.Program, error) {
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
		g.OutputOnto(ports.FirstOut, m1, ports.First)
		g.OutputOnto(ports.SecondOut, v1, ports.Second)
		if elem != onnx.Float {
			g.Output(ports.Copy, graph.Cast(p1, elem))
		}
	})
}
