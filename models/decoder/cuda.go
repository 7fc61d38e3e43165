package decoder

import (
	"math"

	"onering/models"
	"onering/models/graph"
	"onering/models/onnx"
	"onering/models/ports"
)

// ONNX Runtime runs what a provider has no kernel for on the CPU, with all that
// goes in and out copied. Its CUDA provider has none, at the versions of opset
// 23, for ReduceMax and Pad, and none in float32 for GroupQueryAttention (see
// testdata/cuda_kernels.txt). Graphs for it use, in place of
//
//   - ReduceMax: ArgMax and a lookup, or what is known of a row that is sorted or
//     a running sum;
//   - Pad: Concat, and in the gradient of attention the form that takes blocks
//     of queries in turn, which needs neither;
//   - GroupQueryAttention: products. Nothing then wants heads of a multiple of
//     16, and the cache is as wide as they are.
//
// The graphs of float32 for a CPU keep their operators, and their bytes.

// forCUDA tells whether graphs are for the CUDA provider. Those of 16 bits are
// in any case: a CPU runs them only in tests, and then as a GPU has them.
func (a Architecture) forCUDA() bool { return a.Provider == models.CUDA || a.compute() != models.F32 }

// byProducts tells whether graphs for prompts do without GroupQueryAttention.
func (a Architecture) byProducts() bool {
	return a.Provider == models.CUDA && a.compute() == models.F32
}

// cacheWidth is K, or the next multiple of 16 where GroupQueryAttention wants it.
func (a Architecture) cacheWidth() int {
	if a.byProducts() {
		return a.HeadDim
	}
	return (a.HeadDim + 15) / 16 * 16
}

// promptProducts is attention of prompts to themselves by products. The scores
// [B,H,T,T] of one layer are held at a time.
func (a Architecture) promptProducts(g *graph.Graph, ids, x, cos, sin *graph.Node) attention {
	pos := g.Input(ports.Positions, onnx.Int64, graph.Dims(x.Shape()[0], 1))
	mask := g.Float(ports.Mask, "T", "T")
	heads := func(x *graph.Node, n int) *graph.Node { // [B*T,n*K] -> [B,n,T,K]
		return graph.Transpose(graph.Reshape(graph.Rows(x, ids), 0, 0, n, a.HeadDim), 0, 2, 1, 3)
	}
	return func(layer int, qkv *graph.Node, _ graph.Cache) (*graph.Node, graph.Cache) {
		hk, gk := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
		parts := graph.Split(qkv, 1, hk+gk, gk)
		turned := graph.Split(a.turn(layer, parts[0], pos, cos, sin), 1, hk, gk)
		now := graph.Cache{K: heads(turned[1], a.KVHeads), V: heads(parts[1], a.KVHeads)}
		// As in Decode, the heads of a group are rows of one product.
		q := graph.Reshape(heads(turned[0], a.Heads), 0, a.KVHeads, -1, a.HeadDim)
		s := graph.Reshape(graph.MatMul(q, now.K, false, true, 1/math.Sqrt(float64(a.HeadDim))), 0, a.Heads, -1, 0)
		p := graph.Reshape(graph.Softmax(graph.Add(s, mask)), 0, a.KVHeads, -1, 0)
		o := graph.Reshape(graph.MatMul(p, now.V, false, false, 1), 0, a.Heads, -1, a.HeadDim)
		return graph.Reshape(graph.Transpose(o, 0, 2, 1, 3), -1, hk), now
	}
}

// maskAfter is [B,1,1,S], 0 for places up to pos [B,1] and very negative beyond.
func maskAfter(pos, places *graph.Node) *graph.Node {
	g := pos.Graph()
	mask := graph.Where(graph.LessOrEqual(places, pos), g.Scalar(0), g.Scalar(-math.MaxFloat32))
	return graph.Reshape(mask, 0, 1, 1, -1)
}

// padLast is x with zeros that make its last axis width.
func (a Architecture) padLast(x *graph.Node, width int) *graph.Node {
	if a.forCUDA() {
		return graph.PadLast(x, width)
	}
	g, last := x.Graph(), len(x.Shape())-1
	return graph.Pad(x, g.Ints(0), g.Ints(int64(width-x.Shape()[last].N)), last, graph.Dims(width)[0])
}

// largest is the largest number of each row of x [R,n], as [R,1].
func (a Architecture) largest(x *graph.Node) *graph.Node {
	if !a.forCUDA() {
		return graph.ReduceMax(x, -1)
	}
	at := graph.Reshape(graph.ArgMax(x), -1, 1)
	return graph.Reshape(graph.GatherRows(x, at), -1, 1)
}

// foremost is largest for rows that begin with their largest.
func (a Architecture) foremost(x *graph.Node) *graph.Node {
	if !a.forCUDA() {
		return graph.ReduceMax(x, -1)
	}
	return column(x, 0)
}

// total is the end of running sums [R,n] of numbers not below 0, which is their
// largest: a sum that is rounded does not fall when such a number is added.
func (a Architecture) total(running *graph.Node) *graph.Node {
	if !a.forCUDA() {
		return graph.ReduceMax(running, -1)
	}
	return column(running, running.Shape()[1].N-1)
}

// before is the running sum before each row's index [R,1], 0 before the first, as
// [R,1]; passed [R,n] is 1 before the index and 0 from it on, so 0 at the end.
func (a Architecture) before(running, passed, index *graph.Node) *graph.Node {
	if !a.forCUDA() {
		return graph.ReduceMax(graph.Mul(passed, running), -1)
	}
	zero := column(passed, passed.Shape()[1].N-1)
	return graph.Reshape(graph.GatherRows(graph.Concat(1, zero, running), index), -1, 1)
}

// column is x[:,i] of x [R,n], as [R,1].
func column(x *graph.Node, i int) *graph.Node {
	g := x.Graph()
	return graph.Slice(x, g.Ints(int64(i)), g.Ints(int64(i+1)), 1, 1)
}
