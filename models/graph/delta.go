package graph

import (
	"math"

	"onering/models"
	"onering/models/onnx"
)

// chunk is the number of tokens that DeltaRule takes at once.
const chunk = 32

// DeltaRule is the gated delta rule over rows of tokens: queries and keys [B,T,G,K],
// values [B,T,H,V] with H a multiple of G (value head h reads key head h/(H/G)), logarithms
// of the decay g and factors beta [B,T,H]. For each head and token, in order,
//
//	S <- e^g S;  S <- S + k (beta (v - S^T k))^T;  o = S^T q
//
// It returns o [B,T,H,V] and the last S [B,H,K,V]. The first S is state; nil means 0.
// Tokens with keys, values, g and beta of 0 leave S as it is.
//
// The rule is computed by chunks of C tokens (Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024). With s_i the sum
// of g up to token i of a chunk and W_ij = e^(s_i - s_j) for i >= j, else 0, the corrections N that the tokens of a
// chunk make solve (I + A) N = beta (v - e^s k S), where A is beta (k k^T) W below the diagonal. Then
//
//	o = e^s q S + ((q k^T) W) N;  S <- e^s_C S + (W_C k)^T N
//
// where W multiplies element by element, and W_C is its last row, the decays up to the end of the chunk.
func DeltaRule(q, k, v, g, beta, state *Node) (o, last *Node) {
	d := newDelta(q, k, v, g, beta, state)
	q, k, v = d.chunks(q, d.groups), d.chunks(k, d.groups), d.chunks(v, d.heads) // n chunks: [n,B,G,C,K], v [n,B,H,C,V]
	beta = d.chunks(Reshape(beta, 0, 0, d.heads, 1), d.heads)                    // [n,B,H,C,1]
	g = d.chunks(Reshape(g, 0, 0, d.heads, 1), d.heads)
	sum, decays := CumSum(g, 3, false), decaysBetween(g) // s and W
	decay := Exp(sum)
	// (I + A)^-1; mulShared multiplies a key head with each of its value heads
	inverse := unitInverse(d.mulShared(MatMul(k, k, plain, transposed, 1), Mul(Mul(decays, beta), matrixWhere(q.g, 1, below))))
	// N = fromValues - fromState S, with S the state before the chunk
	fromValues := MatMul(inverse, Mul(v, beta), plain, plain, 1)
	fromState := MatMul(inverse, d.mulShared(k, Mul(beta, decay)), plain, plain, 1)
	totalDecay := Slice(sum, q.g.Ints(chunk-1), q.g.Ints(chunk), 3, 1)
	if state == nil {
		state = d.zeroState(v)
	}
	decaysToEnd := Transpose(Slice(decays, q.g.Ints(chunk-1), q.g.Ints(chunk), 3, 1), 0, 1, 2, 4, 3) // W_C, as a column
	stateDecay, keysToEnd := Exp(totalDecay), d.mulShared(k, decaysToEnd)                            // in this order, which the graph's file has
	const backward = false
	// per chunk: N = fromValues - fromState S; S <- stateDecay S + keysToEnd^T N; states are those before the chunks
	last, states, corrections := Recurrence(state, stateDecay, fromValues, keysToEnd, fromState, nil, backward)
	o = Add(MatMul(d.mulShared(q, decay), states, plain, plain, 1),
		MatMul(d.mulShared(MatMul(q, k, plain, transposed, 1), decays), corrections, plain, plain, 1))
	o = Reshape(Transpose(o, 1, 0, 3, 2, 4), 0, -1, d.heads, d.width)
	return Slice(o, o.g.Ints(0), d.length, 1, d.tokens), last // without those that fill the last chunk
}

// decaysBetween is W [...,C,C] for logarithms g [...,C,1] of the decay: e^(s_i - s_j) for i >= j, else 0. For W_ij it
// adds up those after token j alone: the difference of two running sums loses small ones that follow a large one.
func decaysBetween(g *Node) *Node {
	where := func(value float32, f func(row, column int) bool) *Node { return matrixWhere(g.g, value, f) }
	upTo := Mul(Transpose(g, 0, 1, 2, 4, 3), where(1, func(row, column int) bool { return column <= row }))
	sums := reshapeLike(Gemm(Reshape(upTo, -1, chunk), where(1, below), nil, plain, plain), upTo)
	return Exp(Add(sums, where(-math.MaxFloat32/2, func(row, column int) bool { return column > row })))
}

// DeltaStep is DeltaRule for one token of each row, after those that led to state [B,H,K,V]: T is 1, and its formulas
// are computed as they stand, without chunks. Where operator is set it is an operator of ONNX Runtime, which only
// CPUs have and which has no gradient: that reads and writes the state once and not five times. Shapes: q, k [B,1,G,K],
// v, o [B,1,H,V], g, beta [B,1,H]. For each head, with the row vectors q, k, v of its token,
//
//	S <- e^g S;  S <- S + k^T beta (v - k S);  o = q S
func DeltaStep(q, k, v, g, beta, state *Node, operator bool) (o, now *Node) {
	d := newDelta(q, k, v, g, beta, state)
	repeat := func(x *Node) *Node { // [B,1,G,K] to [B,H,1,K], by a product with ones
		ones := make([]float32, d.heads/d.groups)
		for i := range ones {
			ones[i] = 1
		}
		x = Mul(Reshape(x, 0, d.groups, 1, d.keys), x.g.Floats(Dims(len(ones), 1), ones...))
		return Reshape(x, 0, d.heads, 1, d.keys)
	}
	perHead := func(x *Node, width int) *Node { return Reshape(x, 0, d.heads, 1, width) }
	q, k = repeat(q), repeat(k)
	if operator {
		flat := func(x *Node) *Node { return Reshape(x, 0, 1, -1) } // the heads side by side, as g and beta have them
		out := q.g.calls("LinearAttention", onnx.Microsoft, []models.DType{v.elem, v.elem}, []Shape{{v.shape[0], {N: 1}, {N: d.heads * d.width}}, state.shape},
			[]*Node{flat(q), flat(k), flat(v), state, g, beta},
			attr("q_num_heads", d.heads), attr("kv_num_heads", d.heads), attr("scale", float32(1)), attr("update_rule", "gated_delta"))
		return Reshape(out[0], 0, 1, d.heads, d.width), out[1]
	}
	decayed := Mul(state, Exp(perHead(g, 1)))
	// MatMul with plain, plain, 1: neither factor is transposed, and the product is times 1.
	added := Mul(perHead(beta, 1), Sub(perHead(v, d.width), MatMul(k, decayed, plain, plain, 1)))
	now = Add(decayed, Mul(Reshape(k, 0, d.heads, d.keys, 1), added))
	return Reshape(MatMul(q, now, plain, plain, 1), 0, 1, d.heads, d.width), now
}

// delta has the sizes of a DeltaRule.
type delta struct {
	groups, heads, keys, width int   // G, H, K, V
	tokens                     Dim   // T
	length                     *Node // T as an int64 node
}

// newDelta checks the operands of the delta rule and returns its sizes G, H, K, V and T.
func newDelta(q, k, v, g, beta, state *Node) delta {
	const op = "DeltaRule"
	floats(op, q, k, v, g, beta)
	if len(q.shape) != 4 || len(v.shape) != 4 {
		fail("%s: queries %v and values %v are not [B,T,G,K] and [B,T,H,V]", op, q.shape, v.shape)
	}
	d := delta{q.fixed(op, "q", 2), v.fixed(op, "v", 2), q.fixed(op, "q", 3), v.fixed(op, "v", 3), v.shape[1], sizeOf(v, 1)}
	q.shaped(op, "q", Shape{v.shape[0], v.shape[1], q.shape[2], q.shape[3]})
	k.shaped(op, "k", q.shape)
	g.shaped(op, "g", v.shape[:3])
	beta.shaped(op, "beta", g.shape)
	if d.heads%d.groups != 0 {
		fail("%s: %d heads of values, %d of keys", op, d.heads, d.groups)
	}
	if state != nil {
		floats(op, q, state)
		state.shaped(op, "the state", Shape{v.shape[0], {N: d.heads}, {N: d.keys}, {N: d.width}})
	}
	return d
}

// chunks cuts rows x [B,T,h,w] into [n,B,h,C,w], with zeros at the end.
func (d delta) chunks(x *Node, heads int) *Node {
	g, size := x.g, Dim{N: chunk, Letters: "Tn"}
	if d.tokens.Letters == "" {
		size = Dim{N: (d.tokens.N + chunk - 1) / chunk * chunk}
	}
	most := Mul(Div(Add(d.length, g.Ints(chunk-1)), g.Ints(chunk)), g.Ints(chunk))
	x = Pad(x, g.Ints(0), Sub(most, d.length), 1, size)
	return Transpose(Reshape(x, 0, -1, chunk, heads, x.shape[3].N), 1, 0, 3, 2, 4)
}

// mulShared multiplies x [n,B,G,C,w], which the heads of a group share, with y [n,B,H,C,w] or [n,B,H,C,1].
func (d delta) mulShared(x, y *Node) *Node {
	if d.groups == d.heads {
		return Mul(x, y)
	}
	w := x.shape[4].N
	byGroup := Reshape(x, 0, 0, d.groups, 1, chunk, w)
	return Reshape(Mul(byGroup, Reshape(y, 0, 0, d.groups, d.heads/d.groups, chunk, -1)), 0, 0, d.heads, chunk, w)
}

// zeroState is [B,H,K,V] for the chunks v of values [n,B,H,C,V].
func (d delta) zeroState(v *Node) *Node {
	g := v.g
	shape := Concat(0, sizeOf(v, 1), g.Ints(int64(d.heads), int64(d.keys), int64(d.width)))
	return g.call("Expand", "", v.elem, Shape{v.shape[1], {N: d.heads}, {N: d.keys}, {N: d.width}}, []*Node{g.fill(0, v), shape})
}

// matrixWhere is a constant matrix [C,C] that has the value where f holds, and else 0.
func matrixWhere(g *Graph, value float32, f func(row, column int) bool) *Node {
	v := make([]float32, chunk*chunk)
	for i := range v {
		if f(i/chunk, i%chunk) {
			v[i] = value
		}
	}
	return g.Floats(Dims(chunk, chunk), v...)
}

func below(row, column int) bool { return column < row }

// unitInverse is (I + A)^-1, where A is the part of a [...,C,C] below the diagonal. It
// joins the inverses of the blocks on the diagonal, two and two:
//
//	[L 0]^-1   [    L^-1         0  ]
//	[P Q]    = [-Q^-1 P L^-1   Q^-1 ]
//
// This is as exact as a solver. The series (I-A)(I+A^2)(I+A^4)... is not: for tokens with
// like keys its error exceeds the result.
func unitInverse(a *Node) *Node {
	g := a.g
	// corners keeps what stands below the blocks of a size, in the blocks of twice the size.
	corners := func(size int) *Node {
		return Mul(a, matrixWhere(g, 1, func(row, column int) bool {
			return row/(2*size) == column/(2*size) && row/size > column/size
		}))
	}
	// the inverses of blocks of two
	m := Sub(matrixWhere(g, 1, func(row, column int) bool { return row == column }), corners(1))
	for size := 2; size < chunk; size *= 2 {
		m = Sub(m, MatMul(m, MatMul(corners(size), m, plain, plain, 1), plain, plain, 1))
	}
	return m.composite("UnitInverse", []*Node{a}, func(dm *Node) []*Node { // dA = -M^T dM M^T
		return []*Node{Mul(MatMul(m, MatMul(dm, m, plain, transposed, 1), transposed, plain, -1), matrixWhere(g, 1, below))}
	})
}
