package decoder

import (
	"math"

	"onering/models"
	"onering/models/graph"
	"onering/models/ports"
)

// Where a provider has no kernel for an operator, ONNX Runtime runs it on the CPU
// and copies its inputs and outputs there and back. At the versions of opset 23 the
// CUDA provider has no kernel for ReduceMax and Pad, and none in float32 for
// GroupQueryAttention (see testdata/cuda_kernels.txt). Graphs for CUDA use instead
//
//   - of ReduceMax: ArgMax and a lookup, or the first or last element of a row
//     that is sorted;
//   - of Pad: Concat; and the gradient of attention takes the blocks of queries in
//     turn, which needs no padding;
//   - of GroupQueryAttention: products. Heads then need not be padded to a multiple
//     of 16, and the cache is as wide as they are.
//
// The graphs of float32 for a CPU keep these operators, and their bytes.

// forGPU reports whether graphs are for a GPU. Graphs of 16 bits always are: a CPU runs
// them only in tests, which should run the GPU's graphs.
func (a Architecture) forGPU() bool { return a.Provider != models.CPU || a.compute() != models.F32 }

// setProvider makes a graph use the provider's operators, and makes the bits of a gradient equal in every run.
func (a Architecture) setProvider(g *graph.Graph) {
	if a.forGPU() {
		g.OrderSums()
	} else {
		g.TurnProducts()
	}
}

// byProducts reports whether Prefill and Decode compute attention by products, in place of GroupQueryAttention.
func (a Architecture) byProducts() bool {
	return a.Provider == models.CUDA && a.compute() == models.F32
}

// cacheWidth is the width of a head in the cache: K, or the next multiple of 16 where GroupQueryAttention needs it.
func (a Architecture) cacheWidth() int {
	if a.byProducts() || a.onHost() {
		return a.HeadDim
	}
	return (a.HeadDim + 15) / 16 * 16
}

// promptProducts declares attention within prompts by products, for providers without an operator for it. It holds the
// scores [B,H,T,T] of one layer at a time. The cache that it returns has the prompts' own keys and values. ids [B,T] only
// gives the shape, and x is the stream [B*T,D]. Layers with a window have another mask [T,T] than those without.
func (a decoding) promptProducts(g *graph.Graph, ids, x *graph.Node, angles []angle) attention {
	pos := g.Input(ports.Positions, models.I64, graph.Dims(x.Shape()[0], 1))
	masks := map[string]*graph.Node{}
	for _, k := range a.kinds() {
		if name := maskOf(k); masks[name] == nil {
			masks[name] = g.Float(name, "T", "T")
		}
	}
	heads := func(y *graph.Node, n int) *graph.Node { // [B*T,n*K] -> [B,n,T,K]; Rows makes it [B,T,n*K], by the shape of ids
		return graph.Transpose(graph.Reshape(graph.Rows(y, ids), 0, 0, n, a.HeadDim), 0, 2, 1, 3)
	}
	return func(layer int, qkv *graph.Node, _ graph.Cache) (*graph.Node, graph.Cache) {
		hk, gk := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
		parts := graph.Split(qkv, 1, hk+gk, gk)
		turned := graph.Split(a.turn(layer, parts[0], pos, angles), 1, hk, gk)
		now := graph.Cache{K: heads(turned[1], a.KVHeads), V: heads(parts[1], a.KVHeads)}
		// As in Decode, the heads of a group are rows of one product.
		q := graph.Reshape(heads(turned[0], a.Heads), 0, a.KVHeads, -1, a.HeadDim)
		s := graph.Reshape(graph.MatMul(q, now.K, false, true, a.scoreScale()), 0, a.Heads, -1, 0)
		s = softCap(s, a.Block.AttentionCap)
		p := graph.Reshape(graph.Softmax(graph.Add(s, masks[maskOf(a.kind(layer))])), 0, a.KVHeads, -1, 0)
		o := graph.Reshape(graph.MatMul(p, now.V, false, false, 1), 0, a.Heads, -1, a.HeadDim)
		return graph.Reshape(graph.Transpose(o, 0, 2, 1, 3), -1, hk), now
	}
}

// maskAfter is [B,1,1,S], 0 for places up to pos [B,1] and very negative beyond, and with a window also before it.
func (a Architecture) maskAfter(pos, places *graph.Node, window int) *graph.Node {
	g := pos.Graph()
	mask := graph.Where(graph.LessOrEqual(places, pos), g.Scalar(0), g.Scalar(-math.MaxFloat32))
	if window > 0 {
		first := graph.Sub(pos, g.Ints(int64(window-1)))
		mask = graph.Where(graph.GreaterOrEqual(places, first), mask, g.Scalar(-math.MaxFloat32))
	}
	return graph.Reshape(mask, 0, 1, 1, -1)
}

// padLast appends zeros to x so that its last axis has width elements.
func (a Architecture) padLast(x *graph.Node, width int) *graph.Node {
	g, last := x.Graph(), len(x.Shape())-1
	switch {
	case x.Shape()[last].N == width:
		return x
	case a.forGPU():
		return graph.PadLast(x, width)
	}
	return graph.Pad(x, g.Ints(0), g.Ints(int64(width-x.Shape()[last].N)), last, graph.Dims(width)[0])
}

// largest is the largest number of each row of x [R,n], as [R,1].
func (a sampleParts) largest(x *graph.Node) *graph.Node {
	if !a.forGPU() {
		return graph.ReduceMax(x, -1)
	}
	at := graph.Reshape(graph.ArgMax(x), -1, 1)
	return graph.Reshape(graph.GatherRows(x, at), -1, 1)
}

// total is the largest of running sums [R,n] of numbers that are not negative. That is
// the last one: adding such a number never lowers a rounded sum.
func (a sampleParts) total(running *graph.Node) *graph.Node {
	if !a.forGPU() {
		return graph.ReduceMax(running, -1)
	}
	return column(running, running.Shape()[1].N-1)
}

// before is the running sum [R,1] up to each row's index [R,1], without the number
// at the index: 0 for index 0. passed [R,n] is 1 before the index and 0 from it on.
func (a sampleParts) before(running, passed, index *graph.Node) *graph.Node {
	if !a.forGPU() {
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
