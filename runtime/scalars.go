package runtime

import (
	"fmt"
	"slices"

	"onering/models"
	"onering/models/onnx"
)

// Names of inputs and outputs that Programs of this package have.
const (
	portSize    = "size"    // int64 [1]
	portZeros   = "zeros"   // float32 [n]
	portScalars = "scalars" // float32 [m]
	portFrom    = "from"    // float32 [n]; each of several has its number after the name
	portResults = "results" // float32 [n]
)

// numbered returns the name of number i of several inputs or values.
func numbered(port string, i int) string { return fmt.Sprint(port, ".", i) }

// clearProgram makes zeros: size -> zeros.
func clearProgram() models.Program {
	return models.Program{
		Name:      "clear",
		Constants: []onnx.Tensor{onnx.Float32s("zero", []float32{0}, 1)},
		Nodes:     []onnx.Node{{Op: "Expand", Inputs: []string{"zero", portSize}, Outputs: []string{portZeros}}},
		Inputs:    []models.Port{portOf(portSize, models.I64, "1")},
		Outputs:   []models.Port{portOf(portZeros, models.F32, "n")},
	}
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

// withScalars returns a Program whose inputs without dimensions are the elements of one
// input, portScalars, in the order of scalarsOf: a device gets them in one copy.
func withScalars(p models.Program) models.Program {
	scalars := scalarsOf(p)
	if len(scalars) == 0 {
		return p
	}
	p.Inputs = slices.DeleteFunc(slices.Clone(p.Inputs), func(in models.Port) bool { return len(in.Shape) == 0 })
	p.Inputs = append([]models.Port{portOf(portScalars, models.F32, fmt.Sprint(len(scalars)))}, p.Inputs...)
	p.Constants = slices.Clone(p.Constants)
	var nodes []onnx.Node
	for i, name := range scalars {
		index := onnx.Int64s(numbered(portScalars, i), []int64{int64(i)})
		index.Dims = nil
		p.Constants = append(p.Constants, index)
		nodes = append(nodes, onnx.Node{Op: "Gather", Inputs: []string{portScalars, index.Name}, Outputs: []string{name}})
	}
	p.Nodes = append(nodes, p.Nodes...)
	return p
}

// portOf makes a port; sizes are letters or numbers.
func portOf(name string, t models.DType, sizes ...string) models.Port {
	return models.Port{Name: name, DType: t, Shape: sizes}
}
