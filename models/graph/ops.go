package graph

import (
	"fmt"
	"slices"

	"onering/models"
	"onering/models/onnx"
)

// attr makes an attribute; ONNX has only 64-bit integers.
func attr(name string, v any) onnx.Attr {
	if i, ok := v.(int); ok {
		v = int64(i)
	}
	return onnx.Attr{Name: name, Value: v}
}

// pairwise adds an op of two numbers, element by element. Axes of size 1, and missing
// axes in front, are repeated to the size of the other operand.
func pairwise(op string, a, b *Node) *Node {
	numbers(op, a, b)
	return a.g.call(op, "", a.elem, broadcast(op, a.shape, b.shape), []*Node{a, b})
}

// compare adds an op that compares two numbers, element by element.
func compare(op string, a, b *Node) *Node {
	numbers(op, a, b)
	return a.g.call(op, "", models.Bool, broadcast(op, a.shape, b.shape), []*Node{a, b})
}

// unary adds an op of one number, element by element.
func unary(op string, x *Node) *Node {
	numbers(op, x)
	return x.g.call(op, "", x.elem, x.shape, []*Node{x})
}

// smooth is unary for differentiable functions of real numbers.
func smooth(op string, x *Node) *Node {
	floats(op, x)
	return unary(op, x)
}

// Arithmetic element by element, with broadcasting.

// Add is a + b.
func Add(a, b *Node) *Node { return pairwise("Add", a, b) }

// Sub is a - b.
func Sub(a, b *Node) *Node { return pairwise("Sub", a, b) }

// Mul is a * b.
func Mul(a, b *Node) *Node { return pairwise("Mul", a, b) }

// Div is a / b.
func Div(a, b *Node) *Node { return pairwise("Div", a, b) }

// Max is the larger of a and b; it has no gradient.
func Max(a, b *Node) *Node { return pairwise("Max", a, b) }

// Neg is -x.
func Neg(x *Node) *Node { return unary("Neg", x) }

// Exp is e^x.
func Exp(x *Node) *Node { return smooth("Exp", x) }

// Log is the natural logarithm.
func Log(x *Node) *Node { return smooth("Log", x) }

// Sqrt is the square root.
func Sqrt(x *Node) *Node { return smooth("Sqrt", x) }

// Reciprocal is 1/x.
func Reciprocal(x *Node) *Node { return smooth("Reciprocal", x) }

// Sigmoid is 1/(1+e^-x).
func Sigmoid(x *Node) *Node { return smooth("Sigmoid", x) }

// Tanh is (e^x-e^-x)/(e^x+e^-x).
func Tanh(x *Node) *Node { return smooth("Tanh", x) }

// Abs is |x|; it has no gradient.
func Abs(x *Node) *Node { return unary("Abs", x) }

// Sign is 1 where x is above 0, -1 where it is below, and else 0; it has no gradient.
func Sign(x *Node) *Node { return unary("Sign", x) }

// Comparison and selection. Only Where has a gradient, in the two values that it selects from.

// LessOrEqual is a <= b.
func LessOrEqual(a, b *Node) *Node { return compare("LessOrEqual", a, b) }

// GreaterOrEqual is a >= b.
func GreaterOrEqual(a, b *Node) *Node { return compare("GreaterOrEqual", a, b) }

// Where is a where cond holds, else b.
func Where(cond, a, b *Node) *Node {
	operands("Where", cond, a, b)
	alike("Where", a, b)
	cond.typed("Where", "the condition", models.Bool)
	s := broadcast("Where", cond.shape, broadcast("Where", a.shape, b.shape))
	return a.g.call("Where", "", a.elem, s, []*Node{cond, a, b})
}

// Cast converts the element type; if x has the type already, it returns x. The gradient
// is cast back. There is no gradient if either type is not floating-point.
func Cast(x *Node, to models.DType) *Node {
	operands("Cast", x)
	if to.Size() == 0 {
		fail("Cast: element type %v is not supported", to)
	}
	if x.elem == to {
		return x
	}
	return x.g.call("Cast", "", to, x.shape, []*Node{x}, attr("to", int(to)))
}

// Values of the parameters transA and transB of Gemm and MatMul.
const plain, transposed = false, true

// Gemm is op(a) op(b) + c for matrices, where op is the transpose if transA or transB asks for it: op(a) [m,k]
// and op(b) [k,n] give [m,n]. c may be nil, a row [n] that is added to every row, or a matrix [m,n].
func Gemm(a, b, c *Node, transA, transB bool) *Node {
	floats("Gemm", a, b)
	if len(a.shape) != 2 || len(b.shape) != 2 {
		fail("Gemm: %v and %v are not matrices", a.shape, b.shape)
	}
	m, n, attrs := productSizes("Gemm", a, b, transA, transB)
	in := []*Node{a, b}
	s := Shape{m, n}
	if c != nil {
		floats("Gemm", a, c)
		if !broadcast("Gemm", s, c.shape).equal(s) {
			fail("Gemm: c of shape %v does not broadcast to %v", c.shape, s)
		}
		in = append(in, c)
	}
	return a.g.call("Gemm", "", a.elem, s, in, attrs...)
}

// productSizes returns the rows and columns of op(a) op(b), over the last two dimensions, and the
// attributes for the transposes.
func productSizes(op string, a, b *Node, transA, transB bool) (m, n Dim, attrs []onnx.Attr) {
	r := len(a.shape)
	m, k, k2, n := a.shape[r-2], a.shape[r-1], b.shape[r-2], b.shape[r-1]
	if transA {
		m, k, attrs = k, m, append(attrs, attr("transA", 1))
	}
	if transB {
		k2, n, attrs = n, k2, append(attrs, attr("transB", 1))
	}
	if k != k2 {
		fail("%s: inner sizes %v and %v of %v and %v differ", op, k, k2, a.shape, b.shape)
	}
	return m, n, attrs
}

// Linear is x w^T + b: x [N,in], w [out,in] as Hugging Face stores it, and b [out],
// which may be nil, give [N,out].
func Linear(x, w, b *Node) *Node { return Gemm(x, w, b, plain, transposed) }

// turnFrom is the least size of a result, in rows and in columns, for which Outer transposes
// an operand first. For smaller results the transposes take longer than they save.
const turnFrom = 512

// Outer is d^T x + c: d [N,m] and x [N,n] give [m,n], such as the gradient of a matrix of weights; c [m,n] may
// be nil. After TurnProducts the narrower operand is transposed and comes first, as the product is fastest with
// few rows and many columns; its result is then transposed if that operand was x. Otherwise, and for small
// results, it is one Gemm.
func Outer(d, x, c *Node) *Node {
	large := func(n Dim) bool { return n.Letters != "" || n.N >= turnFrom }
	if len(d.shape) != 2 || len(x.shape) != 2 || !d.g.turnProducts || !large(d.shape[1]) || !large(x.shape[1]) {
		return Gemm(d, x, c, transposed, plain)
	}
	// otherwise the runtime would fold the transpose into the product again
	d.g.options = map[string]string{"optimization.disable_specified_optimizers": "GemmTransposeFusion"}
	turned := func(x *Node) *Node { return Transpose(x, 1, 0) }
	if m, n := d.shape[1], x.shape[1]; m.Letters == "" && (n.Letters != "" || m.N <= n.N) {
		return Gemm(turned(d), x, c, plain, plain)
	}
	y := turned(Gemm(turned(x), d, nil, plain, plain))
	if c != nil {
		y = Add(c, y)
	}
	return y
}

// MatMul is alpha op(a) op(b) over the last two dimensions, where op is the transpose if transA or transB asks
// for it: op(a) [...,m,k] and op(b) [...,k,n] give [...,m,n]. The leading dimensions of a and b are equal.
func MatMul(a, b *Node, transA, transB bool, alpha float64) *Node {
	floats("MatMul", a, b)
	r := len(a.shape)
	if r < 2 || len(b.shape) != r || !a.shape[:r-2].equal(b.shape[:r-2]) {
		fail("MatMul: shapes %v and %v do not fit", a.shape, b.shape)
	}
	return product(a, b, transA, transB, alpha)
}

// product is MatMul of operands whose leading dimensions agree.
func product(a, b *Node, transA, transB bool, alpha float64) *Node {
	m, n, attrs := productSizes("MatMul", a, b, transA, transB)
	s := append(append(Shape{}, a.shape[:len(a.shape)-2]...), m, n)
	if !transA && !transB && alpha == 1 {
		return a.g.call("MatMul", "", a.elem, s, []*Node{a, b})
	}
	attrs = append([]onnx.Attr{attr("alpha", float32(alpha))}, attrs...)
	return a.g.call("FusedMatMul", onnx.Microsoft, a.elem, s, []*Node{a, b}, attrs...)
}

// Softmax is e^x / sum e^x over the last dimension.
func Softmax(x *Node) *Node {
	floats("Softmax", x)
	x.ranked("Softmax", "the operand", 1)
	return x.g.call("Softmax", "", x.elem, x.shape, []*Node{x}, attr("axis", -1))
}

// reduce adds an op over one axis, whose size becomes 1.
func reduce(op string, x *Node, axis int) *Node {
	numbers(op, x)
	axis = x.axis(op, axis)
	s := append(Shape{}, x.shape...)
	s[axis] = Dim{N: 1}
	return x.g.call(op, "", x.elem, s, []*Node{x, x.g.Ints(int64(axis))}, attr("keepdims", 1))
}

// ReduceSum sums over one axis, whose size becomes 1.
func ReduceSum(x *Node, axis int) *Node { return reduce("ReduceSum", x, axis) }

// ReduceMean averages over one axis, whose size becomes 1.
func ReduceMean(x *Node, axis int) *Node {
	floats("ReduceMean", x)
	return reduce("ReduceMean", x, axis)
}

// ReduceMax is the largest over one axis, whose size becomes 1; no gradient.
func ReduceMax(x *Node, axis int) *Node { return reduce("ReduceMax", x, axis) }

// ReduceSumSquare is the sum of squares of all elements, of no dimensions; no gradient.
func ReduceSumSquare(x *Node) *Node {
	numbers("ReduceSumSquare", x)
	return x.g.call("ReduceSumSquare", "", x.elem, Shape{}, []*Node{x}, attr("keepdims", 0))
}

// ArgMax is the int64 index of the first largest value along the last axis, which it removes.
func ArgMax(x *Node) *Node {
	numbers("ArgMax", x)
	x.ranked("ArgMax", "the operand", 1)
	return x.g.call("ArgMax", "", models.I64, x.shape[:len(x.shape)-1], []*Node{x},
		attr("axis", -1), attr("keepdims", 0), attr("select_last_index", 0))
}

// CumSum is the running sum along one axis; if exclusive is set, without the element itself.
func CumSum(x *Node, axis int, exclusive bool) *Node { return cumSum(x, axis, exclusive, false) }

// cumSum sums from the end if reverse is set.
func cumSum(x *Node, axis int, exclusive, reverse bool) *Node {
	numbers("CumSum", x)
	var attrs []onnx.Attr
	if exclusive {
		attrs = append(attrs, attr("exclusive", 1))
	}
	if reverse {
		attrs = append(attrs, attr("reverse", 1))
	}
	return x.g.call("CumSum", "", x.elem, x.shape, []*Node{x, x.g.Ints(int64(x.axis("CumSum", axis)))}, attrs...)
}

// TopK returns the k largest of the last axis and their indices, largest first; equal values in the order of
// their index. k is an int64 node of one element, and letter names the size.
func TopK(x, k *Node, letter string) (values, indices *Node) {
	operands("TopK", x, k)
	numbers("TopK", x)
	x.ranked("TopK", "the operand", 1)
	k.single("TopK", "k")
	s := append(append(Shape{}, x.shape[:len(x.shape)-1]...), Dims(letter)...)
	out := x.g.calls("TopK", "", []models.DType{x.elem, models.I64}, []Shape{s, s}, []*Node{x, k},
		attr("axis", -1), attr("largest", 1), attr("sorted", 1))
	return out[0], out[1]
}

// Reshape gives x new sizes: an int, 0 to keep the size at that place, or -1 (at most
// once) for the remaining factor. Letters follow from x.
func Reshape(x *Node, sizes ...int) *Node {
	operands("Reshape", x)
	s := make(Shape, len(sizes))
	known, inferred := Dim{N: 1}, -1 // the product of the given sizes; where -1 stands
	spec := make([]int64, len(sizes))
	for i, n := range sizes {
		spec[i] = int64(n)
		switch {
		case n == -1 && inferred < 0:
			inferred = i
			continue
		case n == 0 && i < len(x.shape):
			s[i] = x.shape[i]
		case n > 0:
			s[i] = Dim{N: n}
		default:
			fail("Reshape: %v to %v", x.shape, sizes)
		}
		known = known.times(s[i])
	}
	// The number of elements stays equal. Sizes are products of letters, so a reshape
	// that would lose or invent a token is found here and not when the graph runs.
	left, ok := x.shape.size().over(known)
	if !ok || inferred < 0 && !left.isOne() {
		fail("Reshape: %v to %v", x.shape, sizes)
	}
	if inferred >= 0 {
		s[inferred] = left
	}
	return x.g.call("Reshape", "", x.elem, s, []*Node{x, x.g.Ints(spec...)})
}

// reshapeLike gives x the shape of like. Reshape can leave out one size; if like has more
// letters, its shape is read when the graph runs.
func reshapeLike(x, like *Node) *Node {
	if x.shape.equal(like.shape) {
		return x
	}
	spec, inferred := make([]int, len(like.shape)), false
	for i, d := range like.shape {
		switch {
		case d.Letters == "":
			spec[i] = d.N
		case i < len(x.shape) && x.shape[i] == d:
			spec[i] = 0
		case !inferred:
			spec[i], inferred = -1, true
		default:
			shape := x.g.call("Shape", "", models.I64, Dims(len(like.shape)), []*Node{like})
			return x.g.call("Reshape", "", x.elem, like.shape, []*Node{x, shape})
		}
	}
	return Reshape(x, spec...)
}

// Transpose permutes the axes: axis i of the result is axis perm[i] of x.
func Transpose(x *Node, perm ...int) *Node {
	operands("Transpose", x)
	sorted := slices.Clone(perm)
	slices.Sort(sorted)
	for i := range max(len(perm), len(x.shape)) {
		if len(perm) != len(x.shape) || sorted[i] != i {
			fail("Transpose: %v is not an order of the axes of %v", perm, x.shape)
		}
	}
	s, p := make(Shape, len(perm)), make([]int64, len(perm))
	for i, j := range perm {
		s[i], p[i] = x.shape[j], int64(j)
	}
	return x.g.call("Transpose", "", x.elem, s, []*Node{x}, attr("perm", p))
}

// Gather takes slices of the first axis: the result has the sizes of index, then those of
// x without the first. It has no gradient; see Unpack.
func Gather(x, index *Node) *Node {
	operands("Gather", x, index)
	x.ranked("Gather", "the operand", 1)
	index.typed("Gather", "the index", models.I64)
	s := append(append(Shape{}, index.shape...), x.shape[1:]...)
	return x.g.call("Gather", "", x.elem, s, []*Node{x, index}, attr("axis", 0))
}

// GatherRows takes x[b, index[b,0]] for every b: x [B,M,...] and index [B,1] give [B,...]. No gradient.
func GatherRows(x, index *Node) *Node {
	operands("GatherRows", x, index)
	x.ranked("GatherRows", "the operand", 2)
	index.typed("GatherRows", "the index", models.I64)
	index.shaped("GatherRows", "the index", Shape{x.shape[0], {N: 1}})
	s := append(Shape{x.shape[0]}, x.shape[2:]...)
	return x.g.call("GatherND", "", x.elem, s, []*Node{x, index}, attr("batch_dims", 1))
}

// ScatterRows writes rows [B,G,K] into x [B,G,S,K] at index int64 [B,G,3],
// whose last axis is (b, g, s). The result may be bound onto x. No gradient.
func ScatterRows(x, index, rows *Node) *Node {
	const op = "ScatterRows"
	operands(op, x, index, rows)
	if len(x.shape) != 4 {
		fail("%s: the operand has shape %v, not four axes", op, x.shape)
	}
	index.typed(op, "the index", models.I64)
	index.shaped(op, "the index", Shape{x.shape[0], x.shape[1], {N: 3}})
	rows.shaped(op, "the rows", Shape{x.shape[0], x.shape[1], x.shape[3]})
	return x.g.call("ScatterND", "", x.elem, x.shape, []*Node{x, index, rows})
}

// AddRows adds row i of rows [N,D] to row index[i] of x [M,D]; rows of equal indices add
// up. The result may be bound onto x. No gradient.
func AddRows(x, index, rows *Node) *Node {
	const op = "AddRows"
	operands(op, x, index, rows)
	if len(x.shape) != 2 || len(rows.shape) != 2 {
		fail("%s: shapes %v and %v are not both of two axes", op, x.shape, rows.shape)
	}
	index.typed(op, "the index", models.I64)
	index.shaped(op, "the index", Shape{rows.shape[0]})
	rows.shaped(op, "the rows", Shape{rows.shape[0], x.shape[1]})
	return x.g.call("ScatterND", "", x.elem, x.shape, []*Node{x, Reshape(index, -1, 1), rows}, attr("reduction", "add"))
}

// AddElements adds y[i] of y [N] to the element of x [R,C] at index int64 [N,2]. No gradient.
func AddElements(x, index, y *Node) *Node {
	const op = "AddElements"
	operands(op, x, index, y)
	if len(x.shape) != 2 || len(y.shape) != 1 {
		fail("%s: shapes %v and %v are not of two axes and one", op, x.shape, y.shape)
	}
	index.typed(op, "the index", models.I64)
	index.shaped(op, "the index", Shape{y.shape[0], {N: 2}})
	return x.g.call("ScatterND", "", x.elem, x.shape, []*Node{x, index, y}, attr("reduction", "add"))
}

// Slice takes the elements from start up to but without end (int64 nodes of one element,
// 0 <= start <= end <= the size) of one axis; size is the new size, a letter or an int.
func Slice(x, start, end *Node, axis int, size any) *Node {
	operands("Slice", x, start, end)
	axis = x.axis("Slice", axis)
	start.single("Slice", "the start")
	end.single("Slice", "the end")
	s := append(Shape{}, x.shape...)
	s[axis] = Dims(size)[0]
	return x.g.call("Slice", "", x.elem, s, []*Node{x, start, end, x.g.Ints(int64(axis))})
}

// Pad adds before and after (int64 nodes of one element, not negative) zeros
// along one axis, whose size becomes size.
func Pad(x, before, after *Node, axis int, size Dim) *Node {
	operands("Pad", x, before, after)
	axis = x.axis("Pad", axis)
	before.single("Pad", "before")
	after.single("Pad", "after")
	s := append(Shape{}, x.shape...)
	s[axis] = Dims(size)[0]
	return x.g.call("Pad", "", x.elem, s, []*Node{x, Concat(0, before, after), nil, x.g.Ints(int64(axis))})
}

// PadLast adds zeros at the end of the last axis, of fixed size, to make it width. It
// appends a block of zeros in place of the operator Pad.
func PadLast(x *Node, width int) *Node {
	operands("PadLast", x)
	x.ranked("PadLast", "the operand", 1)
	last := len(x.shape) - 1
	was := x.fixed("PadLast", "the operand", last)
	more := width - was
	if more < 0 {
		fail("PadLast: %v to %d", x.shape, width)
	}
	if more == 0 {
		return x
	}
	return Concat(last, x, columnsLike(x, 0, more)).composite("PadLast", []*Node{x}, func(dy *Node) []*Node {
		return []*Node{Slice(dy, x.g.Ints(0), x.g.Ints(int64(was)), last, was)}
	})
}

// columnsLike is [...,width], filled with a constant, whose other sizes are those of x.
func columnsLike(x *Node, constant float64, width int) *Node {
	last := len(x.shape) - 1
	s := append(slices.Clone(x.shape[:last]), Dim{N: width})
	// The sizes are read when the graph runs.
	shape := x.g.Ints(int64(width))
	if last > 0 {
		shape = Concat(0, x.g.call("Shape", "", models.I64, Dims(last), []*Node{x}, attr("start", 0), attr("end", last)), shape)
	}
	return x.g.call("Expand", "", x.elem, s, []*Node{x.g.fill(constant, x), shape})
}

// Concat joins along one axis of fixed sizes.
func Concat(axis int, parts ...*Node) *Node {
	if len(parts) == 0 {
		fail("Concat: no parts")
	}
	operands("Concat", parts...)
	total := 0
	for i, p := range parts {
		total += p.fixed("Concat", fmt.Sprintf("part %d", i+1), p.axis("Concat", axis))
	}
	return concat(axis, Dim{N: total}, parts...)
}

// concat joins along one axis whose total size the caller states.
func concat(axis int, total Dim, parts ...*Node) *Node {
	alike("Concat", parts...)
	x := parts[0]
	axis = x.axis("Concat", axis)
	s := append(Shape{}, x.shape...)
	for i, p := range parts {
		if len(p.shape) != len(s) || !p.shape[:axis].equal(s[:axis]) || !p.shape[axis+1:].equal(s[axis+1:]) {
			fail("Concat: part %d of shape %v does not fit %v but for axis %d", i+1, p.shape, s, axis)
		}
	}
	s[axis] = total
	return x.g.call("Concat", "", x.elem, s, parts, attr("axis", axis))
}

// Split cuts one axis of fixed size into parts of the given sizes.
func Split(x *Node, axis int, sizes ...int) []*Node {
	operands("Split", x)
	axis = x.axis("Split", axis)
	elems, shapes, spec, sum := make([]models.DType, len(sizes)), make([]Shape, len(sizes)), make([]int64, len(sizes)), 0
	for i, n := range sizes {
		if n <= 0 {
			fail("Split: sizes %v", sizes)
		}
		elems[i], spec[i] = x.elem, int64(n)
		shapes[i] = append(Shape{}, x.shape...)
		shapes[i][axis] = Dim{N: n}
		sum += n
	}
	if x.shape[axis] != (Dim{N: sum}) {
		fail("Split: sizes %v do not add up to axis %d of %v", sizes, axis, x.shape)
	}
	return x.g.calls("Split", "", elems, shapes, []*Node{x, x.g.Ints(spec...)}, attr("axis", axis))
}
