package decoder

import (
	"onering/models"
	"onering/models/graph"
	"onering/models/ports"
)

// Rows builds the graphs that look up and add rows in a device's memory. In the host's
// memory Go does that.
//
// rows.gather: X [M,D], ids int64 [n] -> y [n,D] = X[ids].
// rows.add: X [M,D], ids [n], rows [n,D] -> X_out, onto X: X[ids[i]] += rows[i].
// rows.pair: rows [n,D], left, right int64 [m], pair [m,1] -> y [m,D] = rows[left] +
// pair rows[right].
// rows.embed and rows.learn: rows.gather from the embedding, which may have 16 bits, and rows.add
// onto its gradient, with the factor EmbeddingScale of y and of rows, where there is one.
//
// A device may add rows of the same index in any order, so the last bits of their sum may
// differ from one run to the next. rows.pair sums such rows first, two at a time.
func (a Architecture) Rows() (p models.RowPrograms, err error) {
	d := a.Hidden
	ids := func(g *graph.Graph, name, n string) *graph.Node { return g.Input(name, models.I64, graph.Dims(n)) }
	lookUp := func(g *graph.Graph, elem models.DType) *graph.Node {
		return toFloat32(graph.Gather(g.Input(ports.Table, elem, graph.Dims("M", d)), ids(g, ports.RowIDs, "n")))
	}
	for _, program := range []struct {
		into    *models.Program
		name    string
		declare func(g *graph.Graph)
	}{
		{&p.Gather, "rows.gather", func(g *graph.Graph) {
			g.Output(ports.RowsOut, lookUp(g, models.F32))
		}},
		{&p.Embed, "rows.embed", func(g *graph.Graph) { g.Output(ports.RowsOut, a.scaledEmbedding(lookUp(g, a.embeddingType()))) }},
		{&p.Learn, "rows.learn", func(g *graph.Graph) {
			table, at := g.Float(ports.Table, "M", d), ids(g, ports.RowIDs, "n")
			g.OutputOnto(ports.TableOut, graph.AddRows(table, at, a.scaledEmbedding(g.Float(ports.Rows, "n", d))), ports.Table)
		}},
		{&p.Add, "rows.add", func(g *graph.Graph) {
			g.OutputOnto(ports.TableOut, graph.AddRows(g.Float(ports.Table, "M", d), ids(g, ports.RowIDs, "n"), g.Float(ports.Rows, "n", d)), ports.Table)
		}},
		{&p.Pair, "rows.pair", func(g *graph.Graph) {
			x, left, right := g.Float(ports.Rows, "n", d), ids(g, ports.PairLeft, "m"), ids(g, ports.PairRight, "m")
			g.Output(ports.RowsOut, graph.Add(graph.Gather(x, left), graph.Mul(graph.Gather(x, right), g.Float(ports.Paired, "m", 1))))
		}},
	} {
		build := func(g *graph.Graph) {
			a.setProvider(g)
			program.declare(g)
		}
		if *program.into, err = graph.Build(program.name, build); err != nil {
			return models.RowPrograms{}, err
		}
	}
	if a.Block.EmbeddingScale == 0 { // they are the same graphs
		p.Learn = p.Add
		if a.embeddingType() == models.F32 {
			p.Embed = p.Gather
		}
	}
	return p, nil
}

// scaledEmbedding is x with the EmbeddingScale.
func (a Architecture) scaledEmbedding(x *graph.Node) *graph.Node {
	if k := a.Block.EmbeddingScale; k != 0 {
		return graph.Mul(x, x.Graph().Scalar(k))
	}
	return x
}
