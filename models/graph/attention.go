package graph

import (
	"fmt"
	"math"

	"onering/models"
)

// An Attention states the form of CausalAttention or of GroupQueryAttention.
type Attention struct {
	// Heads of queries and of keys: Heads is a multiple of KVHeads.
	Heads, KVHeads int
	// Blocks is the number of parts into which the queries are divided.
	Blocks int
	// InTurn makes each block depend on the one before, forward and backward, so that no
	// order of the nodes holds two at once; the gradient computes a block's probabilities
	// again. Then memory holds the scores of only one block. Without it the gradient
	// holds the probabilities, and mostly their gradients, of all blocks.
	InTurn bool
	// Scale multiplies the scores; 0 stands for 1/sqrt(K).
	Scale float64
	// Cap c makes c tanh(s/c) of each scaled score s before the mask is added; 0 stands for none.
	Cap float64
	// Window is how many keys a query sees: its own and those right before it; 0 stands for
	// all. The mask of CausalAttention says so too; blocks leave out keys that none of their
	// queries sees, unless they are InTurn.
	Window int
}

// scale returns Scale or its default for heads of a width.
func (a Attention) scale(width int) float64 {
	if a.Scale != 0 {
		return a.Scale
	}
	return 1 / math.Sqrt(float64(width))
}

// CausalAttention is softmax(Scale q k^T + mask) v for rows of tokens: q [B,T,H*K], k and v [B,T,G*K] with H a
// multiple of G (query head h reads key head h/(H/G)), mask [T,T]; the result is [B,T,H*K]. The queries are
// taken in blocks: bounds int64 [blocks+1] rises strictly from 0 to T, and block i reads only the keys before
// bounds[i+1], and with a Window only from that of its first query on, so the mask has to be causal. One block
// needs no bounds.
//
// Where q, k and v are of 16 bits, the scores, the softmax, both products, their gradients and the mask are in
// float32, and only the result is rounded to 16 bits. TensorFloat-32 holds 16-bit numbers exactly, so on a GPU
// that has it the products of q and k lose nothing, at half the speed of 16 bits.
func CausalAttention(q, k, v, mask, bounds *Node, form Attention) *Node {
	width := form.check(q, k, v, mask, bounds)
	a := &causalAttention{
		Attention: form, g: q.g, mask: mask, bounds: bounds, elem: q.elem, tokens: q.shape[1],
		width: width, scale: form.scale(width), recomputes: form.InTurn && form.Blocks > 1,
	}
	a.q, a.k, a.v = a.splitHeads(q, a.Heads), a.splitHeads(k, a.KVHeads), a.splitHeads(v, a.KVHeads)
	parts, out := a.forward()
	return out.composite("CausalAttention", []*Node{q, k, v}, func(dy *Node) []*Node {
		return a.backward(parts, out, dy)
	})
}

// causalAttention has what the blocks of one CausalAttention share.
type causalAttention struct {
	Attention
	g            *Graph
	mask, bounds *Node
	elem         models.DType // the element type of q, k, v and the result
	tokens       Dim          // T
	width        int          // K
	scale        float64      // the factor of the scores
	recomputes   bool         // whether the gradient computes each block again: InTurn with several blocks
	q, k, v      *Node        // [B,H,T,K], [B,G,T,K], [B,G,T,K] in the mask's type
}

// An attentionBlock is one block of queries with the keys that it reads. Heads that share
// keys are stacked: Tq rows of queries of each.
type attentionBlock struct {
	index                int
	firstQuery, endQuery *Node // the first query, and the query after the last; nil for the only block
	firstKey             *Node // the first key
	q                    *Node // [B,G,H/G*Tq,K]
	k, v                 *Node // [B,G,Tk,K]
	tanh                 *Node // tanh(s/c) of the scaled scores s, [B,H,Tq,Tk]; nil without Cap
	probs                *Node // the probabilities, [B,G,H/G*Tq,Tk]
}

// splitHeads splits x into its heads, in the mask's type: [B,T,n*K] to [B,n,T,K].
func (a *causalAttention) splitHeads(x *Node, n int) *Node {
	return Transpose(Reshape(Cast(x, a.mask.elem), 0, 0, n, a.width), 0, 2, 1, 3)
}

// joinHeads is the inverse of splitHeads.
func (a *causalAttention) joinHeads(x *Node, n int) *Node {
	return Cast(Reshape(Transpose(x, 0, 2, 1, 3), 0, 0, n*a.width), a.elem)
}

// stackShared stacks the heads that share keys: [B,H,Tq,C] to [B,G,H/G*Tq,C].
func (a *causalAttention) stackShared(x *Node) *Node {
	return Reshape(x, 0, a.KVHeads, -1, x.shape[3].N)
}

// unstackShared is the inverse of stackShared, for x of width K.
func (a *causalAttention) unstackShared(x *Node) *Node { return Reshape(x, 0, a.Heads, -1, a.width) }

// queries is the block's part of x along the axis of queries, 2.
func (a *causalAttention) queries(b *attentionBlock, x *Node) *Node {
	if a.Blocks == 1 {
		return x
	}
	return Slice(x, b.firstQuery, b.endQuery, 2, fmt.Sprintf("Tq%d", b.index))
}

// keys is the block's part of x along the axis of keys.
func (a *causalAttention) keys(b *attentionBlock, x *Node, axis int) *Node {
	if a.Blocks == 1 || a.InTurn && b.index == a.Blocks-1 { // the last block reads all keys
		return x
	}
	return Slice(x, b.firstKey, b.endQuery, axis, fmt.Sprintf("Tk%d", b.index))
}

// boundary returns bounds[i] as a node of one element.
func (a *causalAttention) boundary(bounds *Node, i int) *Node {
	return Slice(bounds, a.g.Ints(int64(i)), a.g.Ints(int64(i+1)), 0, 1)
}

// edges returns the first query of block i and the query after its last.
func (a *causalAttention) edges(i int, after []*Node) (from, to *Node) {
	bounds := computedAfter(a.bounds, after)
	return a.boundary(bounds, i), a.boundary(bounds, i+1)
}

// block computes P = softmax(scale Q K^T + mask) for block i of the queries, with the keys up to its last query, and
// with a Window only from the first that its first query sees. One of several blocks is computed after the nodes of
// after. With InTurn memory holds one block at a time; without it the gradient holds all blocks' probabilities.
func (a *causalAttention) block(i int, after ...*Node) *attentionBlock {
	b := &attentionBlock{index: i}
	mask := a.mask
	if a.Blocks > 1 {
		b.firstQuery, b.endQuery = a.edges(i, after) // nodes that are computed after those of after
		b.firstKey = a.g.Ints(0)                     // nil for the only block, which reads all keys
		if a.Window > 0 && !a.InTurn {               // blocks in turn begin with key 0, which addKeyGradients relies on
			b.firstKey = Max(Sub(b.firstQuery, a.g.Ints(int64(a.Window-1))), b.firstKey)
		}
		rows := func(x *Node) *Node { return Slice(x, b.firstQuery, b.endQuery, 0, fmt.Sprintf("Tq%d", i)) }
		if a.InTurn {
			mask = a.keys(b, rows(mask), 1) // axis 1 of [T,T]; rows first, so no intermediate value has the mask's size
		} else {
			mask = rows(a.keys(b, mask, 1)) // the same part; a mask is little beside all blocks' probabilities
		}
	}
	q := a.queries(b, a.q)
	b.q, b.k, b.v = a.stackShared(q), a.keys(b, a.k, 2), a.keys(b, a.v, 2)             // axis 2 of [B,G,T,K]
	scores := Reshape(MatMul(b.q, b.k, plain, transposed, a.scale), 0, a.Heads, -1, 0) // [B,H,Tq,Tk], as the mask needs
	if a.Cap != 0 {
		c := a.g.fill(a.Cap, scores)
		b.tanh = Tanh(Div(scores, c))
		scores = Mul(b.tanh, c)
	}
	b.probs = Softmax(Add(scores, mask))
	b.probs = Reshape(b.probs, 0, a.KVHeads, -1, 0) // stacked like b.q, for the products with keys and values
	return b
}

// order returns the order in which blocks are computed. With InTurn the last block, which
// is the largest, comes first: each other block fits in its memory.
func (a *causalAttention) order() []int {
	order := make([]int, a.Blocks)
	for i := range order {
		order[i] = i
		if a.recomputes {
			order[i] = a.Blocks - 1 - i
		}
	}
	return order
}

// forward returns the blocks and the result O = P V, [B,T,H*K].
func (a *causalAttention) forward() ([]*attentionBlock, *Node) {
	parts, outs := make([]*attentionBlock, a.Blocks), make([]*Node, a.Blocks)
	var before []*Node
	if a.recomputes {
		// Bounds that follow from a shape, here that of k, are computed on the CPU, where Slice needs them. Others
		// ONNX Runtime would compute on the GPU and send back.
		before = []*Node{a.k}
	}
	for _, i := range a.order() { // with recomputes from the last block, the largest, to the first, one after the other
		parts[i] = a.block(i, before...)
		outs[i] = a.unstackShared(MatMul(parts[i].probs, parts[i].v, plain, plain, 1))
		if a.recomputes {
			before = []*Node{outs[i]}
		}
	}
	return parts, a.joinHeads(a.joinBlocks(outs), a.Heads)
}

// joinBlocks joins the blocks' parts along the axis of queries.
func (a *causalAttention) joinBlocks(parts []*Node) *Node {
	if a.Blocks == 1 {
		return parts[0]
	}
	return concat(2, a.tokens, parts...)
}

// backward returns dL/dq, dL/dk and dL/dv for dL/dout. For each block
//
//	dP = dO V^T,  dS = P (dP - rowsum(dO O)),
//	dQ = scale dS K,  dK = scale dS^T Q,  dV = P^T dO,
//
// and dK and dV are summed over the blocks. With Cap dS is also multiplied by 1 - tanh^2.
func (a *causalAttention) backward(parts []*attentionBlock, out, dy *Node) []*Node {
	dOutAll := a.splitHeads(dy, a.Heads)
	rowSumsAll := ReduceSum(Mul(dOutAll, a.splitHeads(out, a.Heads)), -1) // rowsum(dO O), [B,H,T,1]
	dqs := make([]*Node, a.Blocks)
	before := []*Node{rowSumsAll} // which needs all blocks of the forward pass
	var dk, dv *Node
	for _, i := range a.order() { // with recomputes from the last block to the first
		b := parts[i]
		if a.recomputes {
			b = a.block(i, before...)
		}
		dOut, rowSums := a.stackShared(a.queries(b, dOutAll)), a.stackShared(a.queries(b, rowSumsAll))
		dScores := Mul(b.probs, Sub(MatMul(dOut, b.v, plain, transposed, 1), rowSums))
		if b.tanh != nil {
			slope := Sub(a.g.fill(1, b.tanh), Mul(b.tanh, b.tanh))
			dScores = Mul(dScores, Reshape(slope, 0, a.KVHeads, -1, 0))
		}
		dqs[i] = a.unstackShared(MatMul(dScores, b.k, plain, plain, a.scale))
		dk, dv = a.addKeyGradients(b, dk, dv, MatMul(dScores, b.q, transposed, plain, a.scale), MatMul(b.probs, dOut, transposed, plain, 1))
		before = []*Node{dqs[i], dk, dv} // read by the next block only with recomputes
	}
	return []*Node{a.joinHeads(a.joinBlocks(dqs), a.Heads), a.joinHeads(dk, a.KVHeads), a.joinHeads(dv, a.KVHeads)}
}

// addKeyGradients adds the block's gradients of its keys and values to the running sums, which are nil before the first
// block. With recomputes that block has all keys, and blocks begin with the first; else the gradients get zeros
// around them.
func (a *causalAttention) addKeyGradients(b *attentionBlock, dk, dv, partK, partV *Node) (*Node, *Node) {
	if a.recomputes {
		return addToFirst(dk, partK, b.endQuery, b.index), addToFirst(dv, partV, b.endQuery, b.index)
	}
	if a.Blocks > 1 {
		after := Sub(a.boundary(a.bounds, a.Blocks), b.endQuery)
		partK, partV = Pad(partK, b.firstKey, after, 2, a.tokens), Pad(partV, b.firstKey, after, 2, a.tokens)
	}
	return accumulate(dk, partK), accumulate(dv, partV)
}

// addToFirst is sum [B,G,T,K] with part added to its keys before end; sum may be nil if part
// covers all keys. i distinguishes the size letters of several calls.
func addToFirst(sum, part, end *Node, i int) *Node {
	if sum == nil {
		return part
	}
	g := sum.g
	added := Add(Slice(sum, g.Ints(0), end, 2, part.shape[2]), part)
	rest := Slice(sum, end, sizeOf(sum, 2), 2, fmt.Sprintf("Tr%d", i))
	return concat(2, sum.shape[2], added, rest)
}

// computedAfter returns the int64 vector x as a node that is computed only after the nodes of
// after: their shapes are appended behind the elements that are read.
func computedAfter(x *Node, after []*Node) *Node {
	if len(after) == 0 {
		return x
	}
	parts := []*Node{x}
	for _, n := range after {
		parts = append(parts, x.g.call("Shape", "", models.I64, Dims(len(n.shape)), []*Node{n}))
	}
	return Concat(0, parts...)
}

// check checks the operands of CausalAttention and returns K. The mask has the type of the scores: float32 for 16 bits.
func (a Attention) check(q, k, v, mask, bounds *Node) int {
	const op = "CausalAttention"
	floats(op, q, k, v)
	floats(op, mask)
	scoreType := q.elem
	if scoreType.Size() == 2 {
		scoreType = models.F32
	}
	mask.typed(op, "the mask", scoreType)
	heads, kvHeads, blocks := a.Heads, a.KVHeads, a.Blocks
	if heads < 1 || kvHeads < 1 || heads%kvHeads != 0 {
		fail("%s: %d heads, %d key heads", op, heads, kvHeads)
	}
	if len(q.shape) != 3 {
		fail("%s: q of shape %v is not [B,T,H*K]", op, q.shape)
	}
	width := q.fixed(op, "q", 2) / heads
	q.shaped(op, "q", Shape{q.shape[0], q.shape[1], {N: heads * width}})
	keys := Shape{q.shape[0], q.shape[1], {N: kvHeads * width}}
	k.shaped(op, "k", keys)
	v.shaped(op, "v", keys)
	mask.shaped(op, "the mask", Shape{q.shape[1], q.shape[1]})
	if blocks < 1 || blocks > 1 != (bounds != nil) {
		fail("%s: %d blocks need bounds where there is more than one, and only there", op, blocks)
	}
	if bounds != nil {
		operands(op, q, bounds)
		bounds.typed(op, "bounds", models.I64)
		bounds.shaped(op, "bounds", Dims(blocks+1))
	}
	return width
}
