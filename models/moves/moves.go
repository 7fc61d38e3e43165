// Package moves builds the graphs that copy and clear memory of a device whose
// provider has copies of whole buffers only.
package moves

import (
	"fmt"

	"onering/models"
	"onering/models/onnx"
)

// Prefix begins the names of the Programs.
const Prefix = "moves."

// Names of inputs and outputs. Elements are int32, which no kernel changes, whatever
// type they are of. Of several buffers each has its number behind the name.
const (
	From    = "from"     // int32 [F,u]
	FromIDs = "from_ids" // int64 [n], the rows to copy
	To      = "to"       // int32 [M,u]
	ToIDs   = "to_ids"   // int64 [n,1], where the rows go
	ToOut   = "to_out"   // int32 [M,u], onto to
	Size    = "size"     // int64 [1]
	Zeros   = "zeros"    // float32 [n]
	Number  = "number"   // float32 [1]
	Rounded = "rounded"  // float32 [1]
)

// Name returns the name of an input or output of buffer i.
func Name(port string, i int) string { return fmt.Sprint(port, ".", i) }

// Copy copies the same rows of n buffers: From, FromIDs, To, ToIDs -> ToOut. No row is
// written twice. Within it copies from To itself and has no From.
func Copy(n int, within bool) models.Program {
	g := onnx.Graph{Inputs: []onnx.ValueInfo{info(FromIDs, onnx.Int64, "n"), info(ToIDs, onnx.Int64, "n", "1")}}
	name, alias := "moves.copy", map[string]string{}
	if within {
		name = "moves.within"
	}
	for i := range n {
		from, to, out, rows := Name(From, i), Name(To, i), Name(ToOut, i), Name("rows", i)
		// The sizes of each buffer have letters of their own.
		size, width := fmt.Sprint("M", i), fmt.Sprint("u", i)
		if within {
			from = to
		} else {
			g.Inputs = append(g.Inputs, info(from, onnx.Int32, fmt.Sprint("F", i), width))
		}
		g.Inputs = append(g.Inputs, info(to, onnx.Int32, size, width))
		g.Outputs = append(g.Outputs, info(out, onnx.Int32, size, width))
		g.Nodes = append(g.Nodes,
			onnx.Node{Op: "Gather", Inputs: []string{from, FromIDs}, Outputs: []string{rows}},
			onnx.Node{Op: "ScatterND", Inputs: []string{to, ToIDs, rows}, Outputs: []string{out}})
		alias[out] = to
	}
	return program(name, g, alias)
}

// Clear makes zeros: Size -> Zeros.
func Clear() models.Program {
	g := onnx.Graph{
		Nodes:        []onnx.Node{{Op: "Expand", Inputs: []string{"zero", Size}, Outputs: []string{Zeros}}},
		Inputs:       []onnx.ValueInfo{info(Size, onnx.Int64, "1")},
		Outputs:      []onnx.ValueInfo{info(Zeros, onnx.Float, "n")},
		Initializers: []onnx.Tensor{onnx.Float32s("zero", []float32{0}, 1)},
	}
	return program("moves.clear", g, nil)
}

// Apart returns a Program for a device whose kernels may not read what they write: those
// that make an output in the place of an input read a copy of it.
func Apart(p models.Program) (models.Program, error) {
	model, err := onnx.Apart(p.ONNX, p.Alias)
	if err != nil {
		return p, fmt.Errorf("moves: program %q: %w", p.Name, err)
	}
	p.ONNX = model
	return p, nil
}

// Half rounds a number to float16 and back, where a device computes in it: Number ->
// Rounded.
func Half() models.Program {
	cast := func(from, to string, t onnx.ElemType) onnx.Node {
		return onnx.Node{Op: "Cast", Inputs: []string{from}, Outputs: []string{to}, Attrs: []onnx.Attr{{Name: "to", Value: int64(t)}}}
	}
	g := onnx.Graph{
		Nodes: []onnx.Node{
			cast(Number, "half", onnx.Float16),
			{Op: "Add", Inputs: []string{"half", "half"}, Outputs: []string{"twice"}},
			{Op: "Sub", Inputs: []string{"twice", "half"}, Outputs: []string{"once"}},
			cast("once", Rounded, onnx.Float),
		},
		Inputs:  []onnx.ValueInfo{info(Number, onnx.Float, "1")},
		Outputs: []onnx.ValueInfo{info(Rounded, onnx.Float, "1")},
	}
	return program("moves.half", g, nil)
}

// info declares an input or output; sizes are letters, or 1.
func info(name string, t onnx.ElemType, sizes ...string) onnx.ValueInfo {
	v := onnx.ValueInfo{Name: name, Type: t}
	for _, s := range sizes {
		d := onnx.Dim{Param: s}
		if s == "1" {
			d = onnx.Dim{Value: 1}
		}
		v.Dims = append(v.Dims, d)
	}
	return v
}

// program encodes a graph.
func program(name string, g onnx.Graph, alias map[string]string) models.Program {
	g.Name = name
	p := models.Program{Name: name, Alias: alias}
	types := map[onnx.ElemType]models.DType{onnx.Float: models.F32, onnx.Int32: models.I32, onnx.Int64: models.I64}
	ports := func(of []onnx.ValueInfo) (out []models.Port) {
		for _, v := range of {
			port := models.Port{Name: v.Name, DType: types[v.Type]}
			for _, d := range v.Dims {
				size := d.Param
				if size == "" {
					size = "1"
				}
				port.Shape = append(port.Shape, size)
			}
			out = append(out, port)
		}
		return out
	}
	p.Inputs, p.Outputs = ports(g.Inputs), ports(g.Outputs)
	p.ONNX = onnx.Model{Producer: "onering", Opsets: []onnx.Opset{{Version: 23}}, Graph: g}.Encode()
	return p
}
