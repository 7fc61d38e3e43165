package graph_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"onering/internal/graphtest"
	"onering/models/graph"
)

func TestDims(t *testing.T) {
	for _, tt := range []struct {
		shape graph.Shape
		want  string
	}{
		{graph.Dims(), "[]"},
		{graph.Dims("B", 3, "T*B"), "[B,3,B*T]"},
		{graph.Dims(graph.Dim{N: 4, Letters: "B*T"}, graph.Dim{N: 1}), "[4*B*T,1]"},
	} {
		if got := tt.shape.String(); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// TestReshapeInfersTheRest: for any sizes of a tensor with letters, the result has the
// stated sizes.
func TestReshapeInfersTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := map[string]int{"A": rapid.IntRange(1, 5).Draw(t, "A"), "B": rapid.IntRange(1, 5).Draw(t, "B")}
		from := make([]any, rapid.IntRange(1, 4).Draw(t, "rank"))
		for i := range from {
			if rapid.Bool().Draw(t, "letter") {
				from[i] = rapid.SampledFrom([]string{"A", "B", "A*B"}).Draw(t, "size")
			} else {
				from[i] = rapid.SampledFrom([]int{1, 2, 3, 4, 6}).Draw(t, "size")
			}
		}
		to := rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 1, 2, 3, 4}), 0, 3).Draw(t, "to")
		to = slices.Insert(to, rapid.IntRange(0, len(to)).Draw(t, "at"), -1)
		p, err := graph.Build("reshape", func(g *graph.Graph) {
			x := g.Float("x", from...)
			g.Output("y", graph.Reshape(graph.Neg(x), to...))
		})
		if err != nil {
			if !strings.Contains(err.Error(), "Reshape: ") {
				t.Fatal(err)
			}
			return // The size of the result may not be an integer.
		}
		g, err := graphtest.Load(p)
		if err != nil {
			t.Fatal(err)
		}
		c := graphtest.Case{Sizes: sizes}
		if _, err := g.Run(c.Inputs(p)); err != nil {
			t.Fatal(err)
		}
	})
}
