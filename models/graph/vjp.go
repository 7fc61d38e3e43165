package graph

import "onering/models"

// A rule is the vector-Jacobian product of one op: from the call and dL/dout for each of its outputs (nil where
// an output is not used) it returns dL/din for its inputs.
type rule func(c *call, dy []*Node) []*Node

// noGradient marks an op that must not lie on a differentiated path.
var noGradient rule

// rules has an entry for every op that this package emits. It is filled by init
// because its functions build calls, which look up rules.
//
// In the comments y is the op's output, dy = dL/dy its gradient, and da and db are those of its inputs. Where
// an input was broadcast, sumTo sums its gradient over the axes along which it was repeated.
var rules map[string]rule

func init() {
	rules = map[string]rule{
		// y = a + b:  da = dy, db = dy
		"Add": func(c *call, dy []*Node) []*Node { return []*Node{sumTo(dy[0], c.in[0]), sumTo(dy[0], c.in[1])} },
		// y = a - b:  da = dy, db = -dy
		"Sub": func(c *call, dy []*Node) []*Node { return []*Node{sumTo(dy[0], c.in[0]), sumTo(Neg(dy[0]), c.in[1])} },
		// y = a b:  da = dy b, db = dy a
		"Mul": func(c *call, dy []*Node) []*Node {
			a, b := c.in[0], c.in[1]
			return []*Node{sumTo(Mul(dy[0], b), a), sumTo(Mul(dy[0], a), b)}
		},
		// y = a/b:  da = dy/b, db = -dy a/b^2 = -da y
		"Div": func(c *call, dy []*Node) []*Node {
			a, b := c.in[0], c.in[1]
			da := Div(dy[0], b)
			return []*Node{sumTo(da, a), sumTo(Neg(Mul(da, c.out[0])), b)}
		},
		// y = -x:  dx = -dy
		"Neg": func(c *call, dy []*Node) []*Node { return []*Node{Neg(dy[0])} },
		// y = e^x:  dx = dy y
		"Exp": func(c *call, dy []*Node) []*Node { return []*Node{Mul(dy[0], c.out[0])} },
		// y = log x:  dx = dy/x
		"Log": func(c *call, dy []*Node) []*Node { return []*Node{Div(dy[0], c.in[0])} },
		// y = sqrt x:  dx = dy/(2 y)
		"Sqrt": func(c *call, dy []*Node) []*Node { return []*Node{Div(dy[0], Add(c.out[0], c.out[0]))} },
		// y = 1/(1+e^-x):  dx = dy y (1 - y)
		"Sigmoid": func(c *call, dy []*Node) []*Node {
			y := c.out[0]
			return []*Node{Mul(dy[0], Mul(y, Sub(y.g.fill(1, y), y)))}
		},
		// y = tanh x:  dx = dy (1 - y^2)
		"Tanh": func(c *call, dy []*Node) []*Node {
			y := c.out[0]
			return []*Node{Mul(dy[0], Sub(y.g.fill(1, y), Mul(y, y)))}
		},
		// y = 1/x:  dx = -dy y^2
		"Reciprocal": func(c *call, dy []*Node) []*Node { return []*Node{Neg(Mul(dy[0], Mul(c.out[0], c.out[0])))} },
		// A cast passes the gradient on in the type of its input.
		"Cast": func(c *call, dy []*Node) []*Node {
			if !c.in[0].floating() || !c.out[0].floating() {
				return []*Node{nil}
			}
			return []*Node{Cast(dy[0], c.in[0].elem)}
		},
		// y = a where cond, else b:  each gets dy at its own places, 0 elsewhere
		"Where": func(c *call, dy []*Node) []*Node {
			zero := dy[0].g.fill(0, dy[0])
			return []*Node{nil, sumTo(Where(c.in[0], dy[0], zero), c.in[1]), sumTo(Where(c.in[0], zero, dy[0]), c.in[2])}
		},
		"Gemm":        gemmVJP,
		"MatMul":      matMulVJP,
		"FusedMatMul": matMulVJP,
		// y = softmax(x):  dx = y (dy - sum(dy y)), the sum over the last axis
		"Softmax": func(c *call, dy []*Node) []*Node {
			y := c.out[0]
			return []*Node{Mul(y, Sub(dy[0], ReduceSum(Mul(dy[0], y), -1)))}
		},
		// y = sum x:  every summand gets dy
		"ReduceSum": func(c *call, dy []*Node) []*Node { return []*Node{ExpandLike(dy[0], c.in[0])} },
		// y = 1/n sum x:  every summand gets dy/n
		"ReduceMean": func(c *call, dy []*Node) []*Node {
			n, ok := c.in[0].shape.size().over(c.out[0].shape.size())
			if !ok || n.Letters != "" {
				fail("ReduceMean: the gradient needs a fixed size, not %v", n)
			}
			return []*Node{ExpandLike(Div(dy[0], dy[0].g.fill(float64(n.N), dy[0])), c.in[0])}
		},
		// Every later element depends on this one, so the sum runs back.
		"CumSum": func(c *call, dy []*Node) []*Node {
			axis := int(c.in[1].int64s()[0])
			return []*Node{cumSum(dy[0], axis, c.int("exclusive") == 1, c.int("reverse") == 0), nil}
		},
		// Ops that only move elements move the gradients back.
		"Reshape": func(c *call, dy []*Node) []*Node { return []*Node{reshapeLike(dy[0], c.in[0])} },
		"Squeeze": func(c *call, dy []*Node) []*Node { return []*Node{reshapeLike(dy[0], c.in[0])} },
		// The inverse order of the axes undoes a transpose.
		"Transpose": func(c *call, dy []*Node) []*Node {
			perm, _ := c.attr("perm").([]int64)
			inverse := make([]int, len(perm))
			for i, p := range perm {
				inverse[p] = i
			}
			return []*Node{Transpose(dy[0], inverse...)}
		},
		// The gradient of a slice is put back at its place among zeros.
		"Slice": func(c *call, dy []*Node) []*Node {
			x, start, end := c.in[0], c.in[1], c.in[2]
			axis := int(c.in[3].int64s()[0])
			return []*Node{Pad(dy[0], start, Sub(sizeOf(x, axis), end), axis, x.shape[axis])}
		},
		// What was put around the operand gets no gradient.
		"Pad": func(c *call, dy []*Node) []*Node {
			x, before := c.in[0], Slice(c.in[1], c.in[1].g.Ints(0), c.in[1].g.Ints(1), 0, 1)
			axis := int(c.in[3].int64s()[0])
			return []*Node{Slice(dy[0], before, Add(before, sizeOf(x, axis)), axis, x.shape[axis])}
		},
		// y = x, repeated:  dx is the sum over the repetitions
		"Expand": func(c *call, dy []*Node) []*Node { return []*Node{sumTo(dy[0], c.in[0])} },
		"Concat": concatVJP,
		"Scan":   scanVJP,
		// The parts of a split are joined again; an unread part has gradient 0.
		"Split": func(c *call, dy []*Node) []*Node {
			for i, o := range c.out {
				if dy[i] == nil {
					dy[i] = ExpandLike(o.g.fill(0, o), o)
				}
			}
			axis := int(c.int("axis"))
			return []*Node{concat(axis, c.in[0].shape[axis], dy...)}
		},

		// Comparisons, choices and looking up by index have no gradient here.
		"LessOrEqual": noGradient, "GreaterOrEqual": noGradient, "Max": noGradient, "Abs": noGradient, "Sign": noGradient,
		"ReduceMax": noGradient, "ReduceSumSquare": noGradient, "ArgMax": noGradient, "TopK": noGradient,
		"Gather": noGradient, "GatherND": noGradient, "ScatterND": noGradient, "Shape": noGradient, "Identity": noGradient,
		// Fused kernels: the composites that emit them have rules of their own.
		"RMSNormalization": noGradient, "RotaryEmbedding": noGradient, "QuickGelu": noGradient, "Gelu": noGradient,
		"GroupQueryAttention": noGradient, "LinearAttention": noGradient,
	}
}

// gemmVJP: for Y = A B, dA = dY B^T and dB = A^T dY, with the transposes that the call itself has folded in.
func gemmVJP(c *call, dy []*Node) []*Node {
	a, b, d := c.in[0], c.in[1], dy[0]
	tA, tB := c.int("transA") == 1, c.int("transB") == 1
	var da, db *Node
	if tA {
		da = Gemm(b, d, nil, tB, transposed)
	} else {
		da = Gemm(d, b, nil, plain, !tB)
	}
	switch {
	case tB && !tA: // that of Linear's weights
		db = Outer(d, a, nil)
	case tB:
		db = Gemm(d, a, nil, transposed, transposed)
	default:
		db = Gemm(a, d, nil, !tA, plain)
	}
	if len(c.in) == 2 {
		return []*Node{da, db}
	}
	return []*Node{da, db, sumTo(d, c.in[2])}
}

// matMulVJP is gemmVJP for batches, with the factor alpha.
func matMulVJP(c *call, dy []*Node) []*Node {
	a, b, d, alpha := c.in[0], c.in[1], dy[0], c.float("alpha", 1)
	tA, tB := c.int("transA") == 1, c.int("transB") == 1
	var da, db *Node
	if tA {
		da = MatMul(b, d, tB, transposed, alpha)
	} else {
		da = MatMul(d, b, plain, !tB, alpha)
	}
	if tB {
		db = MatMul(d, a, transposed, tA, alpha)
	} else {
		db = MatMul(a, d, !tA, plain, alpha)
	}
	return []*Node{da, db}
}

// concatVJP cuts the gradient at the parts' sizes, which are read when the graph runs.
func concatVJP(c *call, dy []*Node) []*Node {
	axis := int(c.int("axis"))
	out := make([]*Node, len(c.in))
	start := dy[0].g.Ints(0)
	for i, x := range c.in {
		end := Add(start, sizeOf(x, axis))
		out[i] = Slice(dy[0], start, end, axis, x.shape[axis])
		start = end
	}
	return out
}

// sizeOf returns the size of one axis as an int64 node of one element.
func sizeOf(x *Node, axis int) *Node {
	if d := x.shape[axis]; d.Letters == "" {
		return x.g.Ints(int64(d.N))
	}
	return x.g.call("Shape", "", models.I64, Dims(1), []*Node{x}, attr("start", axis), attr("end", axis+1))
}

// ExpandLike repeats x over the shape of like.
func ExpandLike(x, like *Node) *Node {
	shape := like.g.call("Shape", "", models.I64, Dims(len(like.shape)), []*Node{like})
	return x.g.call("Expand", "", x.elem, like.shape, []*Node{x, shape})
}

// attr is the value of an attribute, nil if the call does not have it.
func (c *call) attr(name string) any {
	for _, a := range c.attrs {
		if a.Name == name {
			return a.Value
		}
	}
	return nil
}

// int is an attribute of type int64, 0 if it is absent.
func (c *call) int(name string) int64 {
	v, _ := c.attr(name).(int64)
	return v
}

// float is an attribute of type float32, or otherwise if it is absent.
func (c *call) float(name string, otherwise float64) float64 {
	if v, ok := c.attr(name).(float32); ok {
		return float64(v)
	}
	return otherwise
}
