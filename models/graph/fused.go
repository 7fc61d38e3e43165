package graph

import (
	"encoding/binary"
	"fmt"
	"math"

	"onering/models/onnx"
)

// Composites: expressions with one fused kernel or a gradient better written
// by hand. Each sets unit on the node it returns, so that Gradient takes the
// rule given here and not those of the ops inside.

func (n *Node) composite(rule string, in []*Node, vjp func(dy *Node) []*Node) *Node {
	n.unit = &composite{rule: rule, in: in, vjp: vjp}
	return n
}

func (n *Node) int64s() []int64 {
	if n.data.Type != onnx.Int64 {
		fail("value %d is not a constant of int64", n.id)
	}
	v := make([]int64, len(n.data.Raw)/8)
	for i := range v {
		v[i] = int64(binary.LittleEndian.Uint64(n.data.Raw[8*i:]))
	}
	return v
}

// RMSNorm is x / sqrt(mean(x^2) + eps) * w over the last dimension.
func RMSNorm(x, w *Node, eps float64) *Node {
	floats("RMSNorm", x, w)
	x.ranked("RMSNorm", "the operand", 1)
	x.fixed("RMSNorm", "the operand", len(x.shape)-1)
	w.shaped("RMSNorm", "the weight", x.shape[len(x.shape)-1:])
	y := x.g.call("RMSNormalization", "", x.elem, x.shape, []*Node{x, w}, attr("axis", -1), attr("epsilon", float32(eps)))
	return y.composite("RMSNorm", []*Node{x, w}, func(dy *Node) []*Node {
		// r = 1/rms, n = x r:  dw = sum dy n,  dx = r (dy w - n mean(dy w n))
		r := Reciprocal(Sqrt(Add(ReduceMean(Mul(x, x), -1), x.g.fill(float64(float32(eps)), x))))
		n := Mul(x, r)
		dn := Mul(dy, w)
		dx := Mul(r, Sub(dn, Mul(n, ReduceMean(Mul(dn, n), -1))))
		return []*Node{dx, sumTo(Mul(dy, n), w)}
	})
}

// SwiGLU is gate * sigmoid(gate) * up.
func SwiGLU(gate, up *Node) *Node {
	floats("SwiGLU", gate, up)
	up.shaped("SwiGLU", "up", gate.shape)
	silu := gate.g.call("QuickGelu", microsoft, gate.elem, gate.shape, []*Node{gate}, attr("alpha", float32(1)))
	return Mul(silu, up).composite("SwiGLU", []*Node{gate, up}, func(dy *Node) []*Node {
		// d silu/d gate = s + silu (1 - s), with s the sigmoid
		s := Sigmoid(gate)
		y := Mul(gate, s)
		slope := Add(y, Mul(s, Sub(gate.g.fill(1, gate), y)))
		return []*Node{Mul(Mul(dy, up), slope), Mul(dy, y)}
	})
}

// Rotary turns each head of x [N,heads*K] by the angles of its position:
// pos int64 [N,1], cos and sin [P,K/2], halves paired as Hugging Face's Qwen2
// pairs them. The gradient turns back.
func Rotary(x, pos, cos, sin *Node) *Node {
	operands("Rotary", x, pos, cos, sin)
	floats("Rotary", x, cos, sin)
	pos.typed("Rotary", "pos", onnx.Int64)
	if len(x.shape) != 2 || len(cos.shape) != 2 {
		fail("Rotary: %v and angles %v are not matrices", x.shape, cos.shape)
	}
	sin.shaped("Rotary", "sin", cos.shape)
	pos.shaped("Rotary", "pos", Shape{x.shape[0], {N: 1}})
	width := x.fixed("Rotary", "the operand", 1)
	if head := 2 * cos.fixed("Rotary", "cos", 1); width%head != 0 {
		fail("Rotary: %v is not made of heads of %d", x.shape, head)
	}
	turn := func(x, sin *Node) *Node {
		rows := Reshape(x, -1, 1, width) // N rows of one token: the operator wants no row longer than P
		y := x.g.call("RotaryEmbedding", microsoft, x.elem, rows.shape, []*Node{rows, pos, cos, sin})
		return Reshape(y, -1, width)
	}
	return turn(x, sin).composite("Rotary", []*Node{x, pos, cos, sin}, func(dy *Node) []*Node {
		return []*Node{turn(dy, Neg(sin))}
	})
}

// A Packing says where packed tokens lie in rows of equal length.
type Packing struct {
	// Rows int64 [B,T] is the packed index of each place; any valid index
	// where a row is shorter than T.
	Rows *Node
	// Tokens int64 [N] is b*T+t for each packed token.
	Tokens *Node
	// Valid float32 [B,T,1] is 1 where a token is, 0 beyond the end of a row;
	// only gradients need it.
	Valid *Node
}

// Unpack lays packed tokens x [N,C] out in rows [B,T,C]. Places beyond the end
// of a row hold any token's values: what reads them must be masked.
func (p *Packing) Unpack(x *Node) *Node {
	operands("Unpack", x, p.Rows)
	if len(x.shape) != 2 || len(p.Rows.shape) != 2 {
		fail("Unpack: tokens %v and rows %v are not matrices", x.shape, p.Rows.shape)
	}
	return Gather(x, p.Rows).composite("Unpack", []*Node{x}, func(dy *Node) []*Node {
		return []*Node{p.Pack(dy)}
	})
}

// Pack is the inverse of Unpack: rows [B,T,C] to packed tokens [N,C].
func (p *Packing) Pack(x *Node) *Node {
	operands("Pack", x, p.Rows, p.Tokens)
	if len(x.shape) != 3 || !x.shape[:2].equal(p.Rows.shape) || len(p.Tokens.shape) != 1 {
		fail("Pack: %v is not laid out as rows %v of tokens %v", x.shape, p.Rows.shape, p.Tokens.shape)
	}
	n := Gather(Reshape(x, -1, x.fixed("Pack", "the operand", 2)), p.Tokens)
	return n.composite("Pack", []*Node{x}, func(dy *Node) []*Node {
		if p.Valid == nil {
			fail("Pack: the gradient needs Valid")
		}
		return []*Node{Mul(p.Unpack(dy), Cast(p.Valid, dy.elem))}
	})
}

// An Attention is the form of CausalAttention.
type Attention struct {
	// Heads of queries and of keys: Heads is a multiple of KVHeads.
	Heads, KVHeads int
	// Blocks is how many parts the queries are taken in.
	Blocks int
	// InTurn puts the blocks one after the other, forward and backward, in
	// whatever order the runtime takes nodes, and computes a block's
	// probabilities a second time for the gradient: of all that has the size of
	// the scores only one block's is ever held. Without it the gradient holds
	// the probabilities, and mostly their gradients, of all blocks.
	InTurn bool
}

// CausalAttention is softmax(q k^T / sqrt(K) + mask) v for rows of tokens:
// q [B,T,H*K], k and v [B,T,G*K] with H a multiple of G (query head h reads
// key head h/(H/G)), mask [T,T]; the result is [B,T,H*K]. The queries are
// taken in blocks: bounds int64 [blocks+1] rises strictly from 0 to T, and block i
// reads only the keys before bounds[i+1]: the mask has to be causal. One block needs no bounds.
//
// Of 16-bit q, k and v the scores, the softmax, both products and their
// gradients are in float32, as is the mask; only the result is rounded to 16
// bits. TensorFloat-32 holds 16-bit numbers exactly, so on a GPU that has it the
// products of q and k lose nothing, at half the speed of 16 bits.
func CausalAttention(q, k, v, mask, bounds *Node, form Attention) *Node {
	width := form.check(q, k, v, mask, bounds)
	heads, kvHeads, blocks := form.Heads, form.KVHeads, form.Blocks
	g := q.g
	perHead := func(x *Node, n int) *Node { // [B,T,n*K] -> [B,n,T,K]
		return Transpose(Reshape(Cast(x, mask.elem), 0, 0, n, width), 0, 2, 1, 3)
	}
	flat := func(x *Node, n int) *Node { // and back
		return Cast(Reshape(Transpose(x, 0, 2, 1, 3), 0, 0, n*width), q.elem)
	}
	scale := 1 / math.Sqrt(float64(width))
	tokens := q.shape[1]
	qh, kh, vh := perHead(q, heads), perHead(k, kvHeads), perHead(v, kvHeads)

	// part i of the queries, folded so that a group's heads share its keys.
	type block struct {
		from, to *Node
		q, k, v  *Node // [B,G,H/G*Tq,K], [B,G,Tk,K], [B,G,Tk,K]
		p        *Node // [B,G,H/G*Tq,Tk]
	}
	fold := func(x *Node) *Node { return Reshape(x, 0, kvHeads, -1, x.shape[3].N) }
	queries := func(b *block, i int, x *Node) *Node {
		if blocks == 1 {
			return x
		}
		return Slice(x, b.from, b.to, 2, fmt.Sprintf("Tq%d", i))
	}
	keys := func(b *block, i int, x *Node, axis int) *Node {
		if blocks == 1 || form.InTurn && i == blocks-1 { // which reads them all
			return x
		}
		return Slice(x, g.Ints(0), b.to, axis, fmt.Sprintf("Tk%d", i))
	}
	// compute is part i, not before the nodes given.
	compute := func(i int, after ...*Node) *block {
		b := &block{}
		m := mask
		if blocks > 1 {
			bounds := inTurn(bounds, after)
			b.from = Slice(bounds, g.Ints(int64(i)), g.Ints(int64(i+1)), 0, 1)
			b.to = Slice(bounds, g.Ints(int64(i+1)), g.Ints(int64(i+2)), 0, 1)
			rows := func(x *Node) *Node { return Slice(x, b.from, b.to, 0, fmt.Sprintf("Tq%d", i)) }
			if form.InTurn {
				m = keys(b, i, rows(mask), 1) // nothing of the size of the mask in between
			} else {
				m = rows(keys(b, i, mask, 1))
			}
		}
		b.q, b.k, b.v = fold(queries(b, i, qh)), keys(b, i, kh, 2), keys(b, i, vh, 2)
		s := MatMul(b.q, b.k, false, true, scale)
		s = Reshape(s, 0, heads, -1, 0)
		b.p = Softmax(Add(s, m))
		b.p = Reshape(b.p, 0, kvHeads, -1, 0)
		return b
	}
	again := form.InTurn && blocks > 1
	order := make([]int, blocks)
	for i := range order {
		if order[i] = i; again {
			// The last block is the largest: what it leaves has room for the others.
			order[i] = blocks - 1 - i
		}
	}
	parts, outs := make([]*block, blocks), make([]*Node, blocks)
	var before []*Node
	if again {
		// ONNX Runtime computes on the CPU what follows from shapes, which is where
		// Slice wants it. Of bounds alone a GPU would compute it and send it back.
		before = []*Node{kh}
	}
	for _, i := range order {
		parts[i] = compute(i, before...)
		outs[i] = Reshape(MatMul(parts[i].p, parts[i].v, false, false, 1), 0, heads, -1, width)
		if again {
			before = []*Node{outs[i]}
		}
	}
	oh := outs[0]
	if blocks > 1 {
		oh = concat(2, tokens, outs...)
	}
	var o *Node
	o = flat(oh, heads)
	return o.composite("CausalAttention", []*Node{q, k, v}, func(dy *Node) []*Node {
		// For each block: dP = dO V^T, dS = P (dP - rowsum(dO O)),
		// dQ = dS K / sqrt(K), dK = dS^T Q / sqrt(K), dV = P^T dO.
		doh := perHead(dy, heads)
		delta := ReduceSum(Mul(doh, perHead(o, heads)), -1) // [B,H,T,1]
		dqs := make([]*Node, blocks)
		before := []*Node{delta} // which needs all blocks of the forward pass
		var dk, dv *Node
		for _, i := range order {
			b := parts[i]
			if again {
				b = compute(i, before...)
			}
			do, d := fold(queries(b, i, doh)), fold(queries(b, i, delta))
			ds := Mul(b.p, Sub(MatMul(do, b.v, false, true, 1), d))
			dqs[i] = Reshape(MatMul(ds, b.k, false, false, scale), 0, heads, -1, width)
			dkb, dvb := MatMul(ds, b.q, true, false, scale), MatMul(b.p, do, true, false, 1)
			if again {
				dk, dv = addFirst(dk, dkb, b.to, i), addFirst(dv, dvb, b.to, i)
			} else {
				if blocks > 1 {
					after := Sub(Slice(bounds, g.Ints(int64(blocks)), g.Ints(int64(blocks+1)), 0, 1), b.to)
					dkb, dvb = Pad(dkb, g.Ints(0), after, 2, tokens), Pad(dvb, g.Ints(0), after, 2, tokens)
				}
				dk, dv = accumulate(dk, dkb), accumulate(dv, dvb)
			}
			before = []*Node{dqs[i], dk, dv}
		}
		dq := dqs[0]
		if blocks > 1 {
			dq = concat(2, tokens, dqs...)
		}
		return []*Node{flat(dq, heads), flat(dk, kvHeads), flat(dv, kvHeads)}
	})
}

// addFirst is sum [B,G,T,K] with part added to its first n keys; sum may be nil
// where part is of all keys. i tells the sizes' letters apart.
func addFirst(sum, part, n *Node, i int) *Node {
	if sum == nil {
		return part
	}
	g := sum.g
	first := Add(Slice(sum, g.Ints(0), n, 2, part.shape[2]), part)
	rest := Slice(sum, n, sizeOf(sum, 2), 2, fmt.Sprintf("Tr%d", i))
	return concat(2, sum.shape[2], first, rest)
}

// inTurn is x, an int64 vector, to be had only once the nodes of after are
// computed: their shapes are appended to it, where nobody looks.
func inTurn(x *Node, after []*Node) *Node {
	if len(after) == 0 {
		return x
	}
	parts := []*Node{x}
	for _, n := range after {
		parts = append(parts, x.g.call("Shape", "", onnx.Int64, Dims(len(n.shape)), []*Node{n}))
	}
	return Concat(0, parts...)
}

// check checks the operands of CausalAttention and returns K.
func (a Attention) check(q, k, v, mask, bounds *Node) int {
	const op = "CausalAttention"
	floats(op, q, k, v)
	floats(op, mask)
	wide := q.elem
	if wide.Size() == 2 {
		wide = onnx.Float
	}
	mask.typed(op, "the mask", wide)
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
		bounds.typed(op, "bounds", onnx.Int64)
		bounds.shaped(op, "bounds", Dims(blocks+1))
	}
	return width
}

// A Cache is the keys and values of one layer: [B,G,S,K] each.
type Cache struct{ K, V *Node }

// GroupQueryAttention is the contrib operator over cached keys and values:
// qkv [B,T,(H+2G)*K] packed, seqlens int32 [B] and total int32 [] as its
// documentation asks (a first prompt: length-1 and T; one more token: tokens
// cached before it, and the largest of those plus 1), cos and sin [P,K/2]. It
// turns queries and keys, appends to the cache and returns [B,T,H*K] and the
// cache, which shares past's buffers. Without cos and sin queries and keys are
// taken as they are. scale multiplies the scores; K must be a multiple of 16.
func GroupQueryAttention(qkv *Node, past Cache, seqlens, total, cos, sin *Node, heads, kvHeads int, scale float64) (*Node, Cache) {
	const op = "GroupQueryAttention"
	floats(op, qkv, past.K, past.V)
	operands(op, qkv, seqlens, total)
	if heads < 1 || kvHeads < 1 || heads%kvHeads != 0 {
		fail("%s: %d heads, %d key heads", op, heads, kvHeads)
	}
	if len(qkv.shape) != 3 || len(past.K.shape) != 4 {
		fail("%s: qkv %v and cache %v are not [B,T,(H+2G)*K] and [B,G,S,K]", op, qkv.shape, past.K.shape)
	}
	width := qkv.fixed(op, "qkv", 2) / (heads + 2*kvHeads)
	qkv.shaped(op, "qkv", Shape{qkv.shape[0], qkv.shape[1], {N: (heads + 2*kvHeads) * width}})
	past.K.shaped(op, "the cache", Shape{qkv.shape[0], {N: kvHeads}, past.K.shape[2], {N: width}})
	past.V.shaped(op, "the cache of values", past.K.shape)
	seqlens.typed(op, "seqlens", onnx.Int32)
	seqlens.shaped(op, "seqlens", qkv.shape[:1])
	total.typed(op, "total", onnx.Int32)
	total.shaped(op, "total", Shape{})
	if cos != nil || sin != nil {
		floats(op, qkv, cos, sin)
		if len(cos.shape) != 2 {
			fail("%s: cos of shape %v is not [P,K/2]", op, cos.shape)
		}
		cos.shaped(op, "cos", Shape{cos.shape[0], {N: width / 2}})
		sin.shaped(op, "sin", cos.shape)
	}
	s := Shape{qkv.shape[0], qkv.shape[1], Dim{N: heads * width}}
	rotary := 0
	if cos != nil {
		rotary = 1
	}
	out := qkv.g.calls("GroupQueryAttention", microsoft,
		[]onnx.ElemType{qkv.elem, past.K.elem, past.V.elem}, []Shape{s, past.K.shape, past.V.shape},
		[]*Node{qkv, nil, nil, past.K, past.V, seqlens, total, cos, sin},
		attr("num_heads", heads), attr("kv_num_heads", kvHeads), attr("do_rotary", rotary), attr("scale", float32(scale)))
	return out[0], Cache{out[1], out[2]}
}

// Rows gives x [B*T,C] the sizes [B,T,C] of the ids [B,T] it was computed from.
func Rows(x, ids *Node) *Node {
	operands("Rows", x, ids)
	if len(x.shape) != 2 || len(ids.shape) != 2 || x.shape[0] != ids.shape.size() {
		fail("Rows: %v has no row for each of ids %v", x.shape, ids.shape)
	}
	x.fixed("Rows", "the operand", 1)
	shape := Concat(0, sizeOf(ids, 0), sizeOf(ids, 1), x.g.Ints(int64(x.shape[1].N)))
	return x.g.call("Reshape", "", x.elem, append(append(Shape{}, ids.shape...), x.shape[1]), []*Node{x, shape})
}
