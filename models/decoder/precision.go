package decoder

import (
	"onering/models"
	"onering/models/adamw"
	"onering/models/graph"
	"onering/models/onnx"
)

// What is computed, and what is held, in which type where Compute is BF16 or
// F16:
//
//   - the matrices and biases of the layers, what they are multiplied by, their
//     products, the SwiGLU and the cache are of 16 bits;
//   - the stream from layer to layer, the norms, the rotary embedding, the
//     scores of attention with their softmax and its gradient, the logits and
//     everything after them are float32, and so are all sums of gradients.
//
// So Norm is the same graph in every type, and Head and Sample are those of
// float32 for the CUDA provider (see cuda.go); the ports of the others say which
// weights they take in 16 bits.
//
// Held once, in float32: every weight (the master, which alone the optimizer
// reads and writes), its gradient and its two moments, and of these the
// embedding, the head and the norms are read by the graphs directly. Held
// twice: the layers, of which the optimizer's step writes a rounded copy beside
// each float32 slice it updates (see Copied). A ring of one 16-bit copy
// alone could not learn: a step of 1e-6 is far below the 2^-8 of itself
// by which a bfloat16 number is rounded. The embedding and the head would gain nothing
// from a copy: the logits want float32 operands, or the rounding of logits
// (2^-4 at a logit of 16) would be the largest gap between the log-probs of
// rollout and training. Products of float32 may run in TensorFloat-32: its 11
// bits hold both 16-bit types' fractions.

// narrow is x in the type of the layers' products.
func (a Architecture) narrow(x *graph.Node) *graph.Node { return graph.Cast(x, a.elem()) }

// widen is x in float32.
func widen(x *graph.Node) *graph.Node { return graph.Cast(x, onnx.Float) }

// Copied returns the elements of the layers, which lie one after the other. Where
// Compute is float32 there are none.
func (a Architecture) Copied() (from, to int) {
	if a.compute() == models.F32 {
		return 0, 0
	}
	l := a.Layout()
	first, _ := l.Find(a.LayerPrefix(0) + a.Names.InputNorm)
	after, _ := l.Find(a.Names.Norm)
	return first.Offset, after.Offset
}

// GradNorm builds the sum of squares of package adamw, which is any model's but for
// the scale of the loss in float16.
func (a Architecture) GradNorm() (models.Program, error) {
	if a.compute() == models.F16 {
		return adamw.Norm2Scaled()
	}
	return adamw.Norm2()
}
