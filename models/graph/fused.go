package graph

import (
	"encoding/binary"
	"math"

	"onering/models"
	"onering/models/onnx"
)

// Composites are expressions that have one fused kernel, or a gradient that is better written by hand.

// composite gives n its own gradient rule, which Gradient uses in place of the rules of the ops inside.
func (n *Node) composite(rule string, in []*Node, vjp func(dy *Node) []*Node) *Node {
	n.composed = &composite{rule: rule, in: in, vjp: vjp}
	return n
}

// int64s returns the elements of a constant of int64.
func (n *Node) int64s() []int64 {
	if n.data.Type != models.I64 {
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

// Softplus is log(1+e^x), computed in float64: on a CPU the last bit of a logarithm in float32
// depends on how many there are. From 40 on it is x.
func Softplus(x *Node) *Node {
	floats("Softplus", x)
	wide, most := Cast(x, models.F64), x.g.Double(40)
	large := GreaterOrEqual(wide, most)
	y := Where(large, wide, Log(Add(Exp(Where(large, most, wide)), x.g.Double(1)))) // the inner one keeps Exp finite
	return Cast(y, x.elem).composite("Softplus", []*Node{x}, func(dy *Node) []*Node {
		return []*Node{Mul(dy, Sigmoid(x))}
	})
}

// SwiGLU is gate * sigmoid(gate) * up.
func SwiGLU(gate, up *Node) *Node {
	floats("SwiGLU", gate, up)
	up.shaped("SwiGLU", "up", gate.shape)
	silu := gate.g.call("QuickGelu", onnx.Microsoft, gate.elem, gate.shape, []*Node{gate}, attr("alpha", float32(1)))
	return Mul(silu, up).composite("SwiGLU", []*Node{gate, up}, func(dy *Node) []*Node {
		// d silu/d gate = s + silu (1 - s), with s the sigmoid
		s := Sigmoid(gate)
		y := Mul(gate, s)
		slope := Add(y, Mul(s, Sub(gate.g.fill(1, gate), y)))
		return []*Node{Mul(Mul(dy, up), slope), Mul(dy, y)}
	})
}

// GeGLU is gelu(gate) * up, with the approximation of gelu by tanh:
//
//	gelu(x) = x/2 (1 + t),  t = tanh u,  u = sqrt(2/pi) (x + 0.044715 x^3)
func GeGLU(gate, up *Node) *Node {
	floats("GeGLU", gate, up)
	up.shaped("GeGLU", "up", gate.shape)
	y := gate.g.call("Gelu", "", gate.elem, gate.shape, []*Node{gate}, attr("approximate", "tanh"))
	return Mul(y, up).composite("GeGLU", []*Node{gate, up}, func(dy *Node) []*Node {
		// d gelu/d gate = (1 + t)/2 + x/2 (1 - t^2) du/dx, du/dx = sqrt(2/pi) (1 + 3*0.044715 x^2)
		k := func(v float64) *Node { return gate.g.fill(v, gate) }
		root, cubic := k(math.Sqrt(2/math.Pi)), Mul(Mul(gate, gate), k(0.044715))
		t := Tanh(Mul(Mul(gate, root), Add(k(1), cubic)))
		du := Mul(root, Add(k(1), Mul(cubic, k(3))))
		inner := Mul(Mul(gate, k(0.5)), Mul(Sub(k(1), Mul(t, t)), du))
		slope := Add(Add(k(0.5), Mul(t, k(0.5))), inner)
		return []*Node{Mul(Mul(dy, up), slope), Mul(dy, y)}
	})
}

// Rotary turns the first elements of each of the heads of x [N,heads*K] by the angles of its
// position: pos int64 [N,1], cos and sin [P,n/2] for n elements of a head, halves paired as
// Hugging Face's Qwen2 pairs them. The gradient turns back.
func Rotary(x, pos, cos, sin *Node, heads int) *Node {
	operands("Rotary", x, pos, cos, sin)
	floats("Rotary", x, cos, sin)
	pos.typed("Rotary", "pos", models.I64)
	if len(x.shape) != 2 || len(cos.shape) != 2 {
		fail("Rotary: %v and angles %v are not matrices", x.shape, cos.shape)
	}
	sin.shaped("Rotary", "sin", cos.shape)
	pos.shaped("Rotary", "pos", Shape{x.shape[0], {N: 1}})
	width := x.fixed("Rotary", "the operand", 1)
	turned := 2 * cos.fixed("Rotary", "cos", 1)
	if heads < 1 || width%heads != 0 || width/heads < turned {
		fail("Rotary: %v is not made of %d heads of %d or more", x.shape, heads, turned)
	}
	var attrs []onnx.Attr
	if turned < width/heads { // else the operator takes the width of heads from cos
		attrs = append(attrs, attr("num_heads", heads), attr("rotary_embedding_dim", turned))
	}
	// A turn by the opposite angle, which has the same cosine and the negative sine, is the
	// inverse. As rotations are orthogonal, that is also the transpose, which the gradient needs.
	turn := func(x, sin *Node) *Node {
		rows := Reshape(x, -1, 1, width) // N rows of one token: the operator allows no row longer than P
		y := x.g.call("RotaryEmbedding", onnx.Microsoft, x.elem, rows.shape, []*Node{rows, pos, cos, sin}, attrs...)
		return Reshape(y, -1, width)
	}
	return turn(x, sin).composite("Rotary", []*Node{x, pos, cos, sin}, func(dy *Node) []*Node {
		return []*Node{turn(dy, Neg(sin))}
	})
}
