package graphtest

import (
	"math"
	"slices"
	"sort"

	"onering/models"
)

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

// product adds alpha op(a) op(b) to out for one pair of matrices, where op transposes if transA or transB
// is set; ar, ac and br, bc are the rows and columns of a and b before that.
func product(out, a, b []float64, ar, ac, br, bc int, transA, transB bool, alpha float64) {
	m, k, aRow, aColumn := ar, ac, ac, 1 // rows and columns of op(a), and the distances between them
	if transA {
		m, k, aRow, aColumn = ac, ar, 1, ac
	}
	k2, n, bRow, bColumn := br, bc, bc, 1
	if transB {
		k2, n, bRow, bColumn = bc, br, 1, bc
	}
	if k != k2 {
		fail("inner sizes %d and %d", k, k2)
	}
	for i := range m {
		for j := range n {
			s := 0.0
			for l := range k {
				s += a[i*aRow+l*aColumn] * b[l*bRow+j*bColumn]
			}
			out[i*n+j] += alpha * s
		}
	}
}

// gemm is op(a) op(b) plus, if there is a third operand, that broadcast to the product's shape. The attributes alpha and
// beta are not read here, so run refuses a node that has them.
func gemm(c *call) []Tensor {
	in := c.operands(2, 3)
	a, b, tA, tB := *in[0], *in[1], c.flag("transA"), c.flag("transB")
	a.checkType(floating...)
	b.checkType(a.Type)
	if len(a.Dims) != 2 || len(b.Dims) != 2 {
		fail("not matrices")
	}
	m, n := a.Dims[0], b.Dims[1]
	if tA {
		m = a.Dims[1]
	}
	if tB {
		n = b.Dims[0]
	}
	out := zeros(a.Type, []int{m, n})
	if in[2] != nil {
		in[2].checkType(a.Type)
		out = in[2].elementsAt(out.Dims, in[2].broadcastPlaces(out.Dims)) // broadcast; product adds to it
	}
	product(out.Data, a.Data, b.Data, a.Dims[0], a.Dims[1], b.Dims[0], b.Dims[1], tA, tB, 1) // 1: alpha
	return []Tensor{out}
}

func matMul(c *call) []Tensor { return batchedProduct(c, false, false, 1) }
func fusedMatMul(c *call) []Tensor {
	return batchedProduct(c, c.flag("transA"), c.flag("transB"), c.float("alpha", 1))
}

// batchedProduct multiplies over the last two dimensions; the other dimensions are equal, or b's third from last is 1.
func batchedProduct(c *call, tA, tB bool, alpha float64) []Tensor {
	in := c.operands(2, 2)
	a, b := *in[0], *in[1]
	a.checkType(floating...)
	b.checkType(a.Type)
	r := len(a.Dims)
	if r < 2 || len(b.Dims) != r {
		fail("batches differ")
	}
	share := 1 // how many matrices of a there are for each of b
	if r > 2 && b.Dims[r-3] == 1 {
		share = a.Dims[r-3]
	}
	if size(a.Dims[:r-2]) != share*size(b.Dims[:r-2]) || !slices.Equal(a.Dims[:max(0, r-3)], b.Dims[:max(0, r-3)]) {
		fail("batches differ")
	}
	ar, ac, br, bc := a.Dims[r-2], a.Dims[r-1], b.Dims[r-2], b.Dims[r-1]
	m, n := ar, bc
	if tA {
		m = ac
	}
	if tB {
		n = br
	}
	out := zeros(a.Type, append(slices.Clone(a.Dims[:r-2]), m, n))
	for i := range size(a.Dims[:r-2]) {
		product(out.Data[i*m*n:(i+1)*m*n], a.Data[i*ar*ac:(i+1)*ar*ac], b.Data[i/share*br*bc:(i/share+1)*br*bc], ar, ac, br, bc, tA, tB, alpha)
	}
	return []Tensor{out}
}

// softmax makes each line of an axis positive with the sum 1.
func softmax(c *call) []Tensor {
	x := c.operands(1, 1)[0]
	x.checkType(floating...)
	out := zeros(x.Type, x.Dims)
	x.eachLine(x.axis(c.int("axis", -1)), func(at []int) {
		top, total := math.Inf(-1), 0.0
		for _, o := range at {
			top = math.Max(top, x.Data[o])
		}
		for _, o := range at {
			out.Data[o] = math.Exp(x.Data[o] - top)
			total += out.Data[o]
		}
		for _, o := range at {
			out.Data[o] /= total
		}
	})
	return []Tensor{out}
}

// cumSum has running sums along an axis, with each element's own number or without (exclusive), perhaps from the end.
func cumSum(c *call) []Tensor {
	in := c.operands(2, 2)
	x, axis := *in[0], *in[1]
	x.checkType(numeric...)
	axis.checkType(models.I64)
	exclusive, reverse := c.flag("exclusive"), c.flag("reverse")
	out := zeros(x.Type, x.Dims)
	x.eachLine(x.axis(axis.ints()[0]), func(at []int) {
		if reverse {
			slices.Reverse(at)
		}
		s := 0.0
		for _, o := range at {
			if exclusive {
				out.Data[o] = s
			}
			s += x.Data[o]
			if !exclusive {
				out.Data[o] = s
			}
		}
	})
	return []Tensor{out}
}

// topK orders elements by value, largest first, then by index.
func topK(c *call) []Tensor {
	in := c.operands(2, 2)
	x, k := *in[0], *in[1]
	k.checkType(models.I64)
	if len(k.Dims) != 1 || k.Dims[0] != 1 {
		fail("k is %v", k)
	}
	if c.int("largest", 1) != 1 || c.int("sorted", 1) != 1 {
		fail("only largest and sorted")
	}
	axis, n := x.axis(c.int("axis", -1)), k.ints()[0]
	if axis != len(x.Dims)-1 || n > x.Dims[axis] {
		fail("the %d largest of axis %d", n, axis)
	}
	dims := append(slices.Clone(x.Dims[:axis]), n)
	values, indices := Tensor{Type: x.Type, Dims: dims}, Tensor{Type: models.I64, Dims: dims}
	x.eachLine(axis, func(at []int) {
		order := make([]int, len(at))
		for i := range order {
			order[i] = i
		}
		sort.SliceStable(order, func(i, j int) bool { return x.Data[at[order[i]]] > x.Data[at[order[j]]] })
		for _, i := range order[:n] {
			values.Data = append(values.Data, x.Data[at[i]])
			indices.Data = append(indices.Data, float64(i))
		}
	})
	return []Tensor{values, indices}
}

// argMax has the index of the largest number of each line of an axis, the first of equal ones.
func argMax(c *call) []Tensor {
	x := c.operands(1, 1)[0]
	axis := x.axis(c.int("axis", 0))
	if c.int("keepdims", 1) != 0 || c.flag("select_last_index") {
		fail("only the first index, without its axis")
	}
	out := Tensor{Type: models.I64, Dims: slices.Delete(slices.Clone(x.Dims), axis, axis+1)}
	x.eachLine(axis, func(at []int) {
		best := 0
		for i, o := range at {
			if x.Data[o] > x.Data[at[best]] {
				best = i
			}
		}
		out.Data = append(out.Data, float64(best))
	})
	return []Tensor{out}
}

// reduce reduces one axis, or all if no axes are given.
func reduce(f func([]float64) float64) func(*call) []Tensor {
	return func(c *call) []Tensor {
		in := c.operands(1, 2)
		x, keep := *in[0], c.int("keepdims", 1) == 1
		x.checkType(numeric...)
		if in[1] == nil {
			if keep {
				fail("all axes, but kept")
			}
			return []Tensor{{x.Type, []int{}, []float64{f(x.Data)}}}
		}
		in[1].checkType(models.I64)
		if len(in[1].Data) != 1 || !keep {
			fail("only one axis, kept")
		}
		axis := x.axis(in[1].ints()[0])
		out := Tensor{Type: x.Type, Dims: slices.Clone(x.Dims)}
		out.Dims[axis] = 1
		x.eachLine(axis, func(at []int) { out.Data = append(out.Data, f(x.elementsAt([]int{len(at)}, at).Data)) })
		return []Tensor{out}
	}
}
