package runtime

import (
	"fmt"
	"slices"
	"strconv"

	"onering/models"
	"onering/models/onnx"
)

// These are graphs for devices whose provider has copies of whole buffers only, and where
// each run and each copy is dear: they copy and clear memory, or are forms of other graphs
// with fewer inputs, outputs and runs.

// movesPrefix begins the names of those that copy and clear.
const movesPrefix = "moves."

// Names of inputs and outputs. Elements are int32, which no kernel changes, whatever
// type they are of. Of several buffers each has its number behind the name.
const (
	portFrom    = "from"     // int32 [F,u]
	portFromIDs = "from_ids" // int64 [n], the rows to copy
	portTo      = "to"       // int32 [M,u]
	portToIDs   = "to_ids"   // int64 [n,1], where the rows go
	portToOut   = "to_out"   // int32 [M,u], onto to
	portSize    = "size"     // int64 [1]
	portZeros   = "zeros"    // float32 [n]
	portNumber  = "number"   // float32 [1]
	portRounded = "rounded"  // float32 [1]
	portScalars = "scalars"  // float32 [m]
	portResults = "results"  // float32 [k*B]
	portColumns = "columns"  // float32 [B,w]
)

// numbered returns the name of an input or output of buffer i.
func numbered(port string, i int) string { return fmt.Sprint(port, ".", i) }

// copyProgram copies the same rows of n buffers: from, from_ids, to, to_ids -> to_out. No
// row is written twice. Within it copies from to itself and has no from.
func copyProgram(n int, within bool) models.Program {
	g := onnx.Graph{Inputs: []onnx.ValueInfo{portInfo(portFromIDs, onnx.Int64, "n"), portInfo(portToIDs, onnx.Int64, "n", "1")}}
	name, alias := "moves.copy", map[string]string{}
	if within {
		name = "moves.within"
	}
	for i := range n {
		from, to, out, rows := numbered(portFrom, i), numbered(portTo, i), numbered(portToOut, i), numbered("rows", i)
		// The sizes of each buffer have letters of their own.
		size, width := fmt.Sprint("M", i), fmt.Sprint("u", i)
		if within {
			from = to
		} else {
			g.Inputs = append(g.Inputs, portInfo(from, onnx.Int32, fmt.Sprint("F", i), width))
		}
		g.Inputs = append(g.Inputs, portInfo(to, onnx.Int32, size, width))
		g.Outputs = append(g.Outputs, portInfo(out, onnx.Int32, size, width))
		g.Nodes = append(g.Nodes,
			onnx.Node{Op: "Gather", Inputs: []string{from, portFromIDs}, Outputs: []string{rows}},
			onnx.Node{Op: "ScatterND", Inputs: []string{to, portToIDs, rows}, Outputs: []string{out}})
		alias[out] = to
	}
	return encoded(name, g, alias)
}

// clearProgram makes zeros of n buffers: size -> zeros.
func clearProgram(n int) models.Program {
	g := onnx.Graph{Initializers: []onnx.Tensor{onnx.Float32s("zero", []float32{0}, 1)}}
	for i := range n {
		g.Nodes = append(g.Nodes, onnx.Node{Op: "Expand", Inputs: []string{"zero", numbered(portSize, i)}, Outputs: []string{numbered(portZeros, i)}})
		g.Inputs = append(g.Inputs, portInfo(numbered(portSize, i), onnx.Int64, "1"))
		g.Outputs = append(g.Outputs, portInfo(numbered(portZeros, i), onnx.Float, fmt.Sprint("n", i)))
	}
	return encoded("moves.clear", g, nil)
}

// apart returns a Program for a device whose kernels may not read what they write: those
// that make an output in the place of an input read a copy of it.
func apart(p models.Program) (models.Program, error) {
	model, err := onnx.Apart(p.ONNX, p.Alias)
	if err != nil {
		return p, fmt.Errorf("runtime: program %q: %w", p.Name, err)
	}
	p.ONNX = model
	return p, nil
}

// scalarsOf returns the names of the inputs without dimensions, in the order of portScalars.
func scalarsOf(p models.Program) (names []string) {
	for _, in := range p.Inputs {
		if len(in.Shape) == 0 {
			names = append(names, in.Name)
		}
	}
	slices.Sort(names)
	return names
}

// several returns a Program that does for n tensors, or slices of elements, what p does
// for one: each node stands in it n times, so the bits are those of n runs. Where each run
// is handed to a device on its own, one is faster. Inputs without dimensions are the same
// for all: they are the elements of portScalars; see scalarsOf. The outputs
// joined, of one element each, are one of shape [n]. Other inputs and outputs, and the
// sizes that vary, have their number behind the name.
func several(p models.Program, n int, joined ...string) (models.Program, error) {
	g := onnx.Graph{Name: p.Name}
	shared := map[string]bool{}
	scalars := scalarsOf(p)
	for i, name := range scalars {
		shared[name] = true
		index := onnx.Int64s(numbered(portScalars, i), []int64{int64(i)})
		index.Dims = nil
		g.Initializers = append(g.Initializers, index)
		g.Nodes = append(g.Nodes, onnx.Node{Op: "Gather", Inputs: []string{portScalars, index.Name}, Outputs: []string{name}})
	}
	if len(scalars) > 0 {
		g.Inputs = append(g.Inputs, portInfo(portScalars, onnx.Float, fmt.Sprint(len(scalars))))
	}
	join := joining(&g, n, joined)
	alias := map[string]string{}
	for i := range n {
		for _, in := range p.Inputs {
			if !shared[in.Name] {
				g.Inputs = append(g.Inputs, declared(in, numbered(in.Name, i), fmt.Sprint(i)))
			}
		}
		for _, out := range p.Outputs {
			if !slices.Contains(joined, out.Name) {
				g.Outputs = append(g.Outputs, declared(out, numbered(out.Name, i), fmt.Sprint(i)))
			}
		}
		for out, in := range p.Alias {
			alias[numbered(out, i)] = numbered(in, i)
		}
	}
	several := models.Program{Name: p.Name, Inputs: portsOf(g.Inputs), Outputs: portsOf(g.Outputs), Alias: alias, Options: p.Options}
	var err error
	several.ONNX, err = onnx.Repeat(p.ONNX, n, func(i int, name string) string {
		if shared[name] {
			return name
		}
		return numbered(name, i)
	}, g, join)
	if err != nil {
		return p, fmt.Errorf("runtime: program %q: %w", p.Name, err)
	}
	return several, nil
}

// joining adds outputs [n] to a graph and returns the nodes that make each of the results
// of n copies, of one element and of one dimension or none.
func joining(g *onnx.Graph, n int, outputs []string) (nodes []onnx.Node) {
	const one = "moves.one"
	if len(outputs) > 0 {
		g.Initializers = append(g.Initializers, onnx.Int64s(one, []int64{1}))
	}
	for _, name := range outputs {
		g.Outputs = append(g.Outputs, portInfo(name, onnx.Float, fmt.Sprint(n)))
		all := onnx.Node{Op: "Concat", Outputs: []string{name}, Attrs: []onnx.Attr{{Name: "axis", Value: int64(0)}}}
		for i := range n {
			part := numbered(name, i)
			all.Inputs = append(all.Inputs, part+".one")
			nodes = append(nodes, onnx.Node{Op: "Reshape", Inputs: []string{part, one}, Outputs: []string{part + ".one"}})
		}
		nodes = append(nodes, all)
	}
	return nodes
}

// together returns a Program whose outputs of the names given are one output portResults, in
// float32 and one after the other, each row by row: where each copy to the host is
// dear, that is one. Integers must be less than 2^24.
func together(p models.Program, names ...string) (models.Program, error) {
	g, together := onnx.Graph{Name: p.Name}, p
	together.Outputs = nil
	join := onnx.Node{Op: "Concat", Outputs: []string{portResults}, Attrs: []onnx.Attr{{Name: "axis", Value: int64(0)}}}
	size := fmt.Sprintf("%d*B", len(names))
	var nodes []onnx.Node
	flat := map[string]string{}
	for _, out := range p.Outputs {
		if !slices.Contains(names, out.Name) {
			g.Outputs, together.Outputs = append(g.Outputs, declared(out, out.Name, "")), append(together.Outputs, out)
			continue
		}
		flat[out.Name] = out.Name + ".float"
		nodes = append(nodes, onnx.Node{Op: "Cast", Inputs: []string{out.Name}, Outputs: []string{out.Name + ".float"}, Attrs: []onnx.Attr{{Name: "to", Value: int64(onnx.Float)}}})
		if len(out.Shape) > 1 {
			if len(g.Initializers) == 0 {
				g.Initializers = append(g.Initializers, onnx.Int64s(portResults+".flat", []int64{-1}))
			}
			size, flat[out.Name] = "all", out.Name+".flat"
			nodes = append(nodes, onnx.Node{Op: "Reshape", Inputs: []string{out.Name + ".float", portResults + ".flat"}, Outputs: []string{out.Name + ".flat"}})
		}
	}
	for _, name := range names {
		join.Inputs = append(join.Inputs, flat[name])
	}
	g.Outputs = append(g.Outputs, portInfo(portResults, onnx.Float, size))
	together.Outputs = append(together.Outputs, portsOf(g.Outputs[len(g.Outputs)-1:])...)
	for _, in := range p.Inputs {
		g.Inputs = append(g.Inputs, declared(in, in.Name, ""))
	}
	return around(together, g, append(nodes, join))
}

// beside returns a Program whose integer inputs of the names given, [B,...] each with sizes
// that are numbers behind B, are columns of one input portColumns, in that order and in
// float32: where each copy to the device is dear, that is one. Integers must be from 0 to
// 2^24. The last column comes out again as last [B], for another run to read it there.
func beside(p models.Program, last string, names ...string) (models.Program, error) {
	split := onnx.Node{Op: "Split", Inputs: []string{portColumns, portColumns + ".widths"}, Attrs: []onnx.Attr{{Name: "axis", Value: int64(1)}}}
	g, beside := onnx.Graph{Name: p.Name}, p
	beside.Inputs = nil
	var nodes []onnx.Node
	var widths []int64
	total, rows := int64(0), "B"
	column := func(name, out string, sizes ...int64) {
		width := int64(1)
		for _, n := range sizes {
			width *= n
		}
		total, widths = total+width, append(widths, width)
		split.Outputs = append(split.Outputs, name+".column")
		g.Initializers = append(g.Initializers, onnx.Int64s(name+".sizes", append([]int64{-1}, sizes...)))
		nodes = append(nodes, onnx.Node{Op: "Reshape", Inputs: []string{name + ".column", name + ".sizes"}, Outputs: []string{out}})
	}
	for _, name := range names {
		i := slices.IndexFunc(p.Inputs, func(in models.Port) bool { return in.Name == name })
		if i < 0 {
			return p, fmt.Errorf("runtime: program %q has no input %q", p.Name, name)
		}
		in := p.Inputs[i]
		var sizes []int64
		for _, size := range in.Shape[1:] {
			n, err := strconv.ParseInt(size, 10, 64)
			if err != nil {
				return p, fmt.Errorf("runtime: program %q: the size %s of input %q varies", p.Name, size, name)
			}
			sizes = append(sizes, n)
		}
		rows = in.Shape[0]
		column(name, name+".shaped", sizes...)
		nodes = append(nodes, onnx.Node{Op: "Cast", Inputs: []string{name + ".shaped"}, Outputs: []string{name}, Attrs: []onnx.Attr{{Name: "to", Value: int64(in.DType.ONNX())}}})
	}
	column(last, last)
	g.Initializers = append(g.Initializers, onnx.Int64s(portColumns+".widths", widths))
	g.Nodes = append([]onnx.Node{split}, nodes...)
	g.Inputs = []onnx.ValueInfo{portInfo(portColumns, onnx.Float, rows, fmt.Sprint(total))}
	g.Outputs = []onnx.ValueInfo{portInfo(last, onnx.Float, rows)}
	beside.Inputs, beside.Outputs = portsOf(g.Inputs), append(portsOf(g.Outputs), p.Outputs...)
	for _, in := range p.Inputs {
		if !slices.Contains(names, in.Name) {
			g.Inputs, beside.Inputs = append(g.Inputs, declared(in, in.Name, "")), append(beside.Inputs, in)
		}
	}
	for _, out := range p.Outputs {
		g.Outputs = append(g.Outputs, declared(out, out.Name, ""))
	}
	return around(beside, g, nil)
}

// around is p with the nodes of g before its own and others after them.
func around(p models.Program, g onnx.Graph, after []onnx.Node) (models.Program, error) {
	model, err := onnx.Repeat(p.ONNX, 1, func(_ int, name string) string { return name }, g, after)
	if err != nil {
		return p, fmt.Errorf("runtime: program %q: %w", p.Name, err)
	}
	p.ONNX = model
	return p, nil
}

// declared declares a port by a name, with letters behind which there is a suffix.
func declared(p models.Port, name, suffix string) onnx.ValueInfo {
	var sizes []string
	for _, size := range p.Shape {
		if _, err := strconv.Atoi(size); err != nil {
			size += suffix
		}
		sizes = append(sizes, size)
	}
	return portInfo(name, onnx.ElemType(p.DType.ONNX()), sizes...)
}

// halfProgram rounds a number to float16 and back, where a device computes in it: number ->
// rounded.
func halfProgram() models.Program {
	cast := func(from, to string, t onnx.ElemType) onnx.Node {
		return onnx.Node{Op: "Cast", Inputs: []string{from}, Outputs: []string{to}, Attrs: []onnx.Attr{{Name: "to", Value: int64(t)}}}
	}
	g := onnx.Graph{
		Nodes: []onnx.Node{
			cast(portNumber, "half", onnx.Float16),
			{Op: "Add", Inputs: []string{"half", "half"}, Outputs: []string{"twice"}},
			{Op: "Sub", Inputs: []string{"twice", "half"}, Outputs: []string{"once"}},
			cast("once", portRounded, onnx.Float),
		},
		Inputs:  []onnx.ValueInfo{portInfo(portNumber, onnx.Float, "1")},
		Outputs: []onnx.ValueInfo{portInfo(portRounded, onnx.Float, "1")},
	}
	return encoded("moves.half", g, nil)
}

// portInfo declares an input or output; sizes are letters or numbers.
func portInfo(name string, t onnx.ElemType, sizes ...string) onnx.ValueInfo {
	v := onnx.ValueInfo{Name: name, Type: t}
	for _, s := range sizes {
		d := onnx.Dim{Param: s}
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			d = onnx.Dim{Value: n}
		}
		v.Dims = append(v.Dims, d)
	}
	return v
}

// portsOf returns the ports of inputs or outputs.
func portsOf(of []onnx.ValueInfo) (out []models.Port) {
	for _, v := range of {
		port := models.Port{Name: v.Name, DType: models.FromONNX(v.Type)}
		for _, d := range v.Dims {
			size := d.Param
			if size == "" {
				size = fmt.Sprint(d.Value)
			}
			port.Shape = append(port.Shape, size)
		}
		out = append(out, port)
	}
	return out
}

// encoded encodes a graph.
func encoded(name string, g onnx.Graph, alias map[string]string) models.Program {
	g.Name = name
	p := models.Program{Name: name, Inputs: portsOf(g.Inputs), Outputs: portsOf(g.Outputs), Alias: alias}
	p.ONNX = onnx.Model{Producer: "onering", Opsets: []onnx.Opset{{Version: 23}}, Graph: g}.Encode()
	return p
}
