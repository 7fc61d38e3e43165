package graphtest

import (
	"slices"

	"onering/models"
)

func shape(c *call) []Tensor {
	x := c.operands(1, 1)[0]
	start, end := c.int("start", 0), c.int("end", len(x.Dims))
	if start < 0 || start > end || end > len(x.Dims) {
		fail("from %d to %d", start, end)
	}
	return []Tensor{Ints(slices.Clone(x.Dims[start:end]), end-start)}
}

// reshape gives x the stated sizes: 0 keeps that of x on the same axis, and one -1 is inferred from the others.
func reshape(c *call) []Tensor {
	in := c.operands(2, 2)
	x, spec := *in[0], *in[1]
	spec.checkType(models.I64)
	dims, inferred, known := spec.ints(), -1, 1
	for i, n := range dims {
		if n == 0 {
			dims[i] = x.Dims[i]
		}
		if n == -1 {
			if inferred >= 0 {
				fail("two sizes are -1")
			}
			inferred = i
			continue
		}
		known *= dims[i]
	}
	if inferred >= 0 {
		if known == 0 {
			fail("-1 beside a size of 0")
		}
		dims[inferred] = len(x.Data) / known
	}
	if size(dims) != len(x.Data) {
		fail("to %v", spec.ints())
	}
	return []Tensor{{x.Type, dims, x.Data}}
}

func squeeze(c *call) []Tensor {
	in := c.operands(2, 2)
	x := *in[0]
	var dims []int
	axes := in[1].ints()
	for i, n := range x.Dims {
		if !slices.Contains(axes, i) {
			dims = append(dims, n)
		} else if n != 1 {
			fail("axis %d has size %d", i, n)
		}
	}
	return []Tensor{{x.Type, dims, x.Data}}
}

func expand(c *call) []Tensor {
	in := c.operands(2, 2)
	in[1].checkType(models.I64)
	dims := broadcast(in[0].Dims, in[1].ints())
	return []Tensor{in[0].elementsAt(dims, in[0].broadcastPlaces(dims))}
}

func transpose(c *call) []Tensor {
	x := c.operands(1, 1)[0]
	perm := attribute(c, "perm", []int64(nil))
	if len(perm) != len(x.Dims) {
		fail("perm %v", perm)
	}
	dims, step, own := make([]int, len(perm)), make([]int, len(perm)), strides(x.Dims)
	for i, p := range perm {
		dims[i], step[i] = x.Dims[p], own[p]
	}
	return []Tensor{x.elementsAt(dims, viewOffsets(0, dims, step))}
}

// index demands 0 <= i < n: an index counted from the end is a mistake here.
func index(v float64, n int) int {
	i := int(v)
	if i < 0 || i >= n {
		fail("index %d of %d", i, n)
	}
	return i
}

func gather(c *call) []Tensor {
	in := c.operands(2, 2)
	x, at := *in[0], *in[1]
	at.checkType(models.I64, models.I32)
	if c.int("axis", 0) != 0 {
		fail("only the first axis")
	}
	out := Tensor{Type: x.Type, Dims: slices.Concat(at.Dims, x.Dims[1:])}
	for _, v := range at.Data {
		out.Data = append(out.Data, x.Row(index(v, x.Dims[0]))...)
	}
	return []Tensor{out}
}

// gatherND has one batch dimension and one index each.
func gatherND(c *call) []Tensor {
	in := c.operands(2, 2)
	x, at := *in[0], *in[1]
	at.checkType(models.I64)
	if c.int("batch_dims", 0) != 1 || !slices.Equal(at.Dims, []int{x.Dims[0], 1}) {
		fail("only one batch dimension and one index for each")
	}
	out := Tensor{Type: x.Type, Dims: slices.Concat(x.Dims[:1], x.Dims[2:])}
	for b, v := range at.Data {
		row := Tensor{Dims: x.Dims[1:], Data: x.Row(b)}
		out.Data = append(out.Data, row.Row(index(v, x.Dims[1]))...)
	}
	return []Tensor{out}
}

// scatterND writes rows [B,G,K] over those of x [B,G,S,K] at the places at [B,G,3], which name b, g and s. With the
// reduction add it adds elements or rows to a matrix instead.
func scatterND(c *call) []Tensor {
	in := c.operands(3, 3)
	x, at, rows := *in[0], *in[1], *in[2]
	at.checkType(models.I64)
	if attribute(c, "reduction", "none") == "add" {
		if len(rows.Dims) == 1 {
			return addElements(x, at, rows)
		}
		return addRows(x, at, rows)
	}
	if len(x.Dims) != 4 || !slices.Equal(at.Dims, []int{x.Dims[0], x.Dims[1], 3}) || !slices.Equal(rows.Dims, []int{x.Dims[0], x.Dims[1], x.Dims[3]}) {
		fail("only rows [B,G,K] into [B,G,S,K]")
	}
	out := Tensor{Type: x.Type, Dims: x.Dims, Data: slices.Clone(x.Data)}
	k := x.Dims[3]
	for i := 0; i < len(at.Data); i += 3 {
		row := 0
		for axis, v := range at.Data[i : i+3] {
			row = row*x.Dims[axis] + index(v, x.Dims[axis])
		}
		copy(out.Data[row*k:(row+1)*k], rows.Data[i/3*k:])
	}
	return []Tensor{out}
}

func addElements(x, at, y Tensor) []Tensor {
	if len(x.Dims) != 2 || !slices.Equal(at.Dims, []int{y.Dims[0], 2}) {
		fail("only elements [N] added to [R,C]")
	}
	out := Tensor{Type: x.Type, Dims: x.Dims, Data: slices.Clone(x.Data)}
	for i, v := range y.Data {
		out.Data[index(at.Data[2*i], x.Dims[0])*x.Dims[1]+index(at.Data[2*i+1], x.Dims[1])] += v
	}
	return []Tensor{out}
}

func addRows(x, at, rows Tensor) []Tensor {
	if len(x.Dims) != 2 || len(rows.Dims) != 2 || !slices.Equal(at.Dims, []int{rows.Dims[0], 1}) || rows.Dims[1] != x.Dims[1] {
		fail("only rows [N,D] added to [M,D]")
	}
	out := Tensor{Type: x.Type, Dims: x.Dims, Data: slices.Clone(x.Data)}
	d := x.Dims[1]
	for i, v := range at.Data {
		to := out.Data[index(v, x.Dims[0])*d:]
		for j, r := range rows.Data[i*d : (i+1)*d] {
			to[j] += r
		}
	}
	return []Tensor{out}
}

func slice(c *call) []Tensor {
	in := c.operands(4, 4)
	x := *in[0]
	for _, t := range in[1:] {
		t.checkType(models.I64)
		if !slices.Equal(t.Dims, []int{1}) {
			fail("only one axis")
		}
	}
	start, end, axis := in[1].ints()[0], in[2].ints()[0], x.axis(in[3].ints()[0])
	if end = min(end, x.Dims[axis]); start < 0 || start > end { // as in ONNX, an end may lie beyond the axis
		fail("from %d to %d of %d", start, end, x.Dims[axis])
	}
	return []Tensor{x.part(axis, start, end-start)}
}

// part returns n elements of an axis.
func (t Tensor) part(axis, start, n int) Tensor {
	dims, s := slices.Clone(t.Dims), strides(t.Dims)
	dims[axis] = n
	return t.elementsAt(dims, viewOffsets(start*s[axis], dims, s))
}

// pad adds zeros before and after the elements of one axis.
func pad(c *call) []Tensor {
	in := c.operands(2, 4)
	x := *in[0]
	if attribute(c, "mode", "constant") != "constant" || in[2] != nil || in[3] == nil || len(in[1].Data) != 2 || len(in[3].Data) != 1 {
		fail("only zeros along one axis")
	}
	in[1].checkType(models.I64)
	before, after, axis := in[1].ints()[0], in[1].ints()[1], x.axis(in[3].ints()[0])
	if before < 0 || after < 0 {
		fail("by %d and %d", before, after)
	}
	dims := slices.Clone(x.Dims)
	dims[axis] += before + after
	out, s := zeros(x.Type, dims), strides(dims)
	for i, o := range viewOffsets(before*s[axis], x.Dims, s) {
		out.Data[o] = x.Data[i]
	}
	return []Tensor{out}
}

// concat joins any number of tensors along an axis, in which alone their sizes may differ.
func concat(c *call) []Tensor {
	in := c.operands(1, len(c.in))
	axis := in[0].axis(c.int("axis", 0))
	dims := slices.Clone(in[0].Dims)
	dims[axis] = 0
	for _, t := range in {
		t.checkType(in[0].Type)
		for i, n := range t.Dims {
			if len(t.Dims) != len(dims) || i != axis && n != dims[i] {
				fail("parts differ")
			}
		}
		dims[axis] += t.Dims[axis]
	}
	out, s, start := zeros(in[0].Type, dims), strides(dims), 0
	for _, t := range in {
		for i, o := range viewOffsets(start*s[axis], t.Dims, s) {
			out.Data[o] = t.Data[i]
		}
		start += t.Dims[axis]
	}
	return []Tensor{out}
}

// split cuts an axis into parts of the stated sizes, one for each output.
func split(c *call) []Tensor {
	in := c.operands(2, 2)
	x, sizes := *in[0], in[1].ints()
	in[1].checkType(models.I64)
	axis := x.axis(c.int("axis", 0))
	var out []Tensor
	start := 0
	for _, n := range sizes {
		out = append(out, x.part(axis, start, n))
		start += n
	}
	if start != x.Dims[axis] || len(sizes) != len(c.Outputs) {
		fail("sizes %v", sizes)
	}
	return out
}
