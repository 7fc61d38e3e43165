package export

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A row describes a port of a graph, or several that are bound in a loop.
type row struct{ side, name, dtype, shape, doc string }

var (
	layerNumber = regexp.MustCompile(`\d+$`)
	layerOfDoc  = regexp.MustCompile(`(layer |_(?:key|value|window|memory)\.)\d+`)
)

// rowOf returns the row of a port.
func rowOf(side string, p port) row {
	r := row{side, "`" + p.Name + "`", p.DType.String(), "[" + strings.Join(p.Shape, ",") + "]", p.Doc}
	switch p.Role {
	case "weight":
		r.name, r.shape = "weights", "as in the manifest"
	case "gradient":
		prefix, _, _ := strings.Cut(p.Name, p.Of)
		r.name, r.shape, r.doc = "`"+prefix+"`W", "as W", strings.ReplaceAll(p.Doc, p.Of, "W")
	case "keys", "values", "window", "memory":
		r.name = "`" + layerNumber.ReplaceAllString(p.Name, "i") + "`"
		r.doc = layerOfDoc.ReplaceAllString(p.Doc, "${1}i")
	}
	return r
}

// Ports returns a table in Markdown for each graph: what it computes, what goes in and what
// comes out, with types, shapes and meanings.
func (g *Graphs) Ports() string {
	var out strings.Builder
	for _, x := range g.Graphs {
		fmt.Fprintf(&out, "## %s\n\n%s\n\n| | port | type | shape | holds |\n|---|---|---|---|---|\n", strings.TrimSuffix(x.File, ".onnx"), x.Doc)
		var rows []row
		for side, list := range [][]port{x.Inputs, x.Outputs} {
			for _, p := range list {
				if r := rowOf([]string{"in", "out"}[side], p); !slices.Contains(rows, r) {
					rows = append(rows, r)
				}
			}
		}
		for _, r := range rows {
			fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", r.side, r.name, r.dtype, r.shape, r.doc)
		}
		out.WriteString("\n")
	}
	return out.String()
}
