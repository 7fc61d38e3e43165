package decoder

import (
	"onering/models"
	"onering/models/graph"
	"onering/models/onnx"
	"onering/models/ports"
)

// Rows builds the graphs that look rows up and add rows up where the memory is a
// device's. Go does the same in the host's.
//
// rows.gather: X [M,D], ids int64 [n] -> y [n,D] = X[ids].
// rows.add: X [M,D], ids [n], rows [n,D] -> X_out, onto X: X[ids[i]] += rows[i].
// head.token: E [M,D], dE [M,D], h [n,D], y int64 [n], w [n,1] -> dh [n,D] = w E[y]
// and dE_out, onto dE: dE[y[i]] += w[i] h[i]; without h, dE and dE_out where there is
// an adapter.
//
// A device may add rows of the same index in any order, so their sum may differ
// in the last bits from one run to the next.
func (a Architecture) Rows() (gather, add, token models.Program, err error) {
	d := a.Hidden
	ids := func(g *graph.Graph, name string) *graph.Node { return g.Input(name, onnx.Int64, graph.Dims("n")) }
	gather, err = graph.Build("rows.gather", func(g *graph.Graph) {
		g.Output(ports.RowsOut, graph.Gather(g.Float(ports.Table, "M", d), ids(g, ports.RowIDs)))
	})
	if err == nil {
		add, err = graph.Build("rows.add", func(g *graph.Graph) {
			g.OutputOnto(ports.TableOut, graph.AddRows(g.Float(ports.Table, "M", d), ids(g, ports.RowIDs), g.Float(ports.Rows, "n", d)), ports.Table)
		})
	}
	if err == nil {
		token, err = graph.Build("head.token", func(g *graph.Graph) {
			y, w := ids(g, ports.Targets), g.Float(ports.LogProbGrad, "n", 1)
			g.Output(ports.NormedGrad, graph.Mul(graph.Gather(g.Float(ports.HeadSlice, "M", d), y), w))
			if a.Adapter != nil {
				return
			}
			g.OutputOnto(ports.HeadSliceGradOut, graph.AddRows(g.Float(ports.HeadSliceGrad, "M", d), y, graph.Mul(g.Float(ports.Normed, "n", d), w)), ports.HeadSliceGrad)
		})
	}
	return gather, add, token, err
}
