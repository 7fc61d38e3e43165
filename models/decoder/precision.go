package decoder

import (
	"fmt"
	"math"
	"slices"

	"onering/models"
	"onering/models/graph"
	"onering/models/ports"
)

// Which types are used where Compute.Type is BF16 or F16:
//
//   - The matrices and biases of the layers have 16 bits. So have the operands
//     and results of their products, the SwiGLU and the cache.
//   - The stream from layer to layer, the norms, the rotary embedding, the scores
//     of attention with their softmax and its gradient, the logits and everything
//     after them are float32. So are all sums of gradients.
//
// Norm is therefore the same graph in every type, and Head and Sample are those
// of float32 for the CUDA provider (see cuda.go). The ports of the other Programs
// say which weights they take in 16 bits.
//
// For a GPU every weight is held in float32: the optimizer reads and writes it there,
// and the graphs read the embedding, the head and the norms there. The layers are
// held a second time, rounded to 16 bits: the optimizer's step writes this copy
// beside each float32 slice that it updates (see Copied). A single copy in 16
// bits could not learn: a step changes a weight by about 1e-6 of itself, and
// bfloat16 rounds to 2^-8 of a number. The embedding and the head would gain
// nothing from a copy: the logits need float32 operands, or their rounding (2^-4
// at a logit of 16) would be the largest gap between the log-probs of rollout and
// training. Products of float32 may run in TensorFloat-32: its 11 bits hold the
// fractions of both 16-bit types. On a CPU the head has a copy in bfloat16 all the same: its
// products take half the time, and as rollout and training round and add alike, there is no gap.
// An embedding that is the head, too, is read there, so that nothing reads its float32.

// With a Base of fewer bits everything is as without, but the inputs for the layers' matrices have
// that type, and those for biases are float32. A layer converts its matrices to the type of the
// products while it runs; on a CPU operators of our own do so within the products.

// checkBase reports a Base that the Programs cannot read, alone or with the Compute's Type and Provider.
func (a Architecture) checkBase() error {
	c := a.Compute
	if !slices.Contains([]models.DType{models.Invalid, models.F32, models.BF16, models.F16, models.I8, models.NF4}, c.Base) ||
		c.Narrow() && (c.Type == models.F16 || c.Provider != models.CPU) {
		return fmt.Errorf("a base in %v: it may be F32, BF16, F16, I8 or NF4, and fewer than 32 bits go with computing in F32 or BF16 on the CPU", c.Base)
	}
	if block := models.BlockOf(c.Base); block > 0 {
		for _, k := range a.kinds() {
			for _, o := range a.operands(k) {
				if o.inputWidth%block != 0 {
					held := map[models.DType]string{models.I8: "int8", models.NF4: "nf4"}[c.Base]
					return fmt.Errorf("a base in %s has a scale for every %d numbers of a row, and those of %q are %d: hold it in bfloat16", held, block, o.name, o.inputWidth)
				}
			}
		}
	}
	return nil
}

// matrixType returns the element type of the inputs for the layers' matrices.
func (a Architecture) matrixType() models.DType {
	if a.Compute.Narrow() {
		return a.Base
	}
	return a.compute()
}

// toComputeType casts x to the type of the layers' products.
func (a Architecture) toComputeType(x *graph.Node) *graph.Node { return graph.Cast(x, a.compute()) }

// toFloat32 casts x to float32.
func toFloat32(x *graph.Node) *graph.Node { return graph.Cast(x, models.F32) }

// Copied implements models.Architecture: the layers, but those that are Held, and a head in 16 bits,
// which lies before or behind them.
func (a Architecture) Copied() (from, to int) {
	if a.compute() != models.F32 && !a.Compute.Narrow() {
		from, to = a.layers()
	}
	if a.headType() == models.F32 || a.holdsHead() {
		return from, to
	}
	head, _ := a.Layout().Find(a.Geometry().Head)
	if from == to {
		return head.Offset, head.Offset + head.Size
	}
	return min(from, head.Offset), max(to, head.Offset+head.Size)
}

// Held implements models.Architecture.
func (a Architecture) Held() (from, to int) {
	if a.Compute.Narrow() {
		from, to = a.layers()
	}
	if a.holdsHead() {
		head, _ := a.Layout().Find(a.Geometry().Head)
		from, to = min(from, head.Offset), max(to, head.Offset+head.Size)
	}
	return from, to
}

// holdsHead reports whether the Base holds the head.
func (a Architecture) holdsHead() bool { return a.Compute.Narrow() && a.Sampled }

// layers is where the layers' tensors lie in the arena, one after the other.
func (a Architecture) layers() (from, to int) {
	l := a.Layout()
	first, _ := l.Find(l.Fused()[1].Name) // behind the embedding
	after, _ := l.Find(a.Names.Norm)
	return first.Offset, after.Offset
}

// onHost reports whether the layers compute in bfloat16 on a CPU, by operators of our own,
// which have one order of sums for decoding, prompts and training.
func (a Architecture) onHost() bool { return a.Provider == models.CPU && a.compute() == models.BF16 }

// headType is the type of the head's matrix in products.
func (a Architecture) headType() models.DType {
	if a.onHost() {
		return models.BF16
	}
	return models.F32
}

// embeddingType is the type of the embedding's matrix.
func (a Architecture) embeddingType() models.DType {
	if a.Tied {
		return a.headType()
	}
	return models.F32
}

// sampledHead declares the head [V,D] of graphs that choose tokens, in its type in products.
func (a Architecture) sampledHead(g *graph.Graph) *graph.Node {
	name := a.Geometry().Head
	if a.holdsHead() {
		return a.baseMatrix(g, name, a.Vocab, a.Hidden, nil, a.headType())
	}
	return parameter(g, name, a.headType(), a.Vocab, a.Hidden)
}

// embedding returns the rows [...,D] of the embedding of tokens, in float32.
func (a Architecture) embedding(g *graph.Graph, ids *graph.Node) *graph.Node {
	if a.holdsHead() && a.Tied {
		return toFloat32(a.baseMatrix(g, a.Names.Embedding, a.Vocab, a.Hidden, ids, a.embeddingType()))
	}
	return toFloat32(graph.Gather(parameter(g, a.Names.Embedding, a.embeddingType(), a.Vocab, a.Hidden), ids))
}

// baseMatrix declares a matrix [rows,in] that the Base holds, with its scales if it has any, and returns
// it in the type to: all rows if ids is nil, else those that ids name, one after the other. A type of 16
// bits is cast without float32 between, which would hide from products what they read.
func (a Architecture) baseMatrix(g *graph.Graph, name string, rows, in int, ids *graph.Node, to models.DType) *graph.Node {
	declared := func(elem models.DType, name string, in int) *graph.Node {
		x := parameter(g, name, elem, rows, in)
		if ids != nil {
			return graph.Reshape(graph.Gather(x, ids), -1, in)
		}
		return x
	}
	count := rows
	if ids != nil {
		count = -1 // as many as ids, for Reshape to infer
	}
	block := models.BlockOf(a.Base)
	var x *graph.Node
	switch {
	case block == 0:
		return graph.Cast(declared(a.Base, name, in), to)
	case a.Base == models.NF4: // each byte looks up its two numbers
		x = graph.Gather(g.Floats(graph.Dims(256, 2), models.NF4Pairs()...), graph.Cast(declared(models.U8, name, in/2), models.I64))
	default:
		x = toFloat32(declared(models.I8, name, in))
	}
	scales := declared(models.F32, name+models.ScaleSuffix, in/block)
	scaled := graph.Mul(graph.Reshape(x, count, in/block, block), graph.Reshape(scales, count, in/block, 1))
	return graph.Cast(graph.Reshape(scaled, count, in), to)
}

// logits is the float32 product of h [R,D] and the head e [v,D], which are rounded to the head's type.
func (a Architecture) logits(form models.Form, h, e *graph.Node) *graph.Node {
	return product(form, toFloat32(graph.Cast(h, a.headType())), toFloat32(e), nil)
}

// GradNorm sums the squares of g [n]: the output "sum" has no dimensions. In float16, where gradients are scaled by
// 1/unscale, it is the sum for g*unscale, and "found" [1] counts the elements of g that are infinite or NaN.
func (a Architecture) GradNorm() (models.Program, error) {
	if a.compute() == models.F16 {
		return graph.Build("norm2.scaled", func(g *graph.Graph) {
			grad := g.Float(ports.Grad, "n")
			g.Output(ports.SquareSum, graph.ReduceSumSquare(graph.Mul(grad, g.Float(ports.Unscale))))
			finite := graph.LessOrEqual(graph.Abs(grad), g.Scalar(math.MaxFloat32))
			g.Output(ports.NotFinite, graph.ReduceSum(graph.Where(finite, g.Scalar(0), g.Scalar(1)), 0))
		})
	}
	return graph.Build("norm2", func(g *graph.Graph) {
		g.Output(ports.SquareSum, graph.ReduceSumSquare(g.Float(ports.Grad, "n")))
	})
}
