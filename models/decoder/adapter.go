package decoder

import (
	"fmt"
	"slices"

	"onering/models"
	"onering/models/graph"
)

// An adapter's matrices are float32, as all trained parameters are, and graphs of 16 bits
// round them as they run. The matrices A of modules with the same operand lie one behind
// the other, so one product computes all of them.

// adapted returns the parts that have low-rank products.
func (a Architecture) adapted(parts []module) []module {
	var out []module
	for _, m := range parts {
		if a.Adapter != nil && slices.Contains(a.Adapter.Modules, m.name) {
			out = append(out, m)
		}
	}
	return out
}

// operands groups the modules of a layer of a kind by their operand: the joined names of each
// group, and the width of its operand.
func (s Shape) operands(kind models.Kind) []operand {
	n, m := s.Names, s.mixer(kind)
	return []operand{
		{m.in.name, m.in.inputWidth, s.adapterModules(m.in.name, m.in.modules)}, m.out,
		{n.GateUp, s.Hidden, s.adapterModules(n.GateUp, s.gateUp())}, {n.Down, s.FFN, []module{{n.Down, s.Hidden}}},
	}
}

// adapterModules returns the modules of parts as an adapter has them: the one that stacks them if the block is Fused.
func (s Shape) adapterModules(name string, parts []module) []module {
	if !s.Block.Fused {
		return parts
	}
	whole := module{name: name}
	for _, p := range parts {
		whole.rows += p.rows
	}
	return []module{whole}
}

// An operand is what several modules multiply: the name of their joined matrix, the operand's width, and the modules.
type operand struct {
	name       string
	inputWidth int
	modules    []module
}

// checkAdapter reports impossible values in the Compute's Adapter.
func (a Architecture) checkAdapter() error {
	x := a.Adapter
	if x == nil {
		return nil
	}
	if x.Rank < 1 || x.Rank > maxSize {
		return fmt.Errorf("an adapter's rank (%d) must be from 1 to %d", x.Rank, maxSize)
	}
	var known []string
	for _, k := range a.kinds() {
		for _, o := range a.operands(k) {
			for _, m := range o.modules {
				if !slices.Contains(known, m.name) {
					known = append(known, m.name)
				}
			}
		}
	}
	for _, name := range x.Modules {
		if !slices.Contains(known, name) {
			return fmt.Errorf("an adapter of %q: a layer has only %q", name, known)
		}
	}
	if len(x.Modules) == 0 {
		return fmt.Errorf("an adapter of no modules: a layer has %q", known)
	}
	_, err := models.NewLayout(a.adapterFused()) // an error if there are too many elements
	return err
}

// AdapterLayout implements models.Architecture.
func (a Architecture) AdapterLayout() *models.Layout {
	if a.Adapter == nil {
		return nil
	}
	l, err := models.NewLayout(a.adapterFused())
	if err != nil {
		panic(err) // Shape.Architecture has checked the adapter
	}
	l.Modules = a.Names.modules
	return l
}

// adapterFused lists the adapter's matrices by layer: the As of modules with one operand as one matrix, and
// each module's B.
func (a Architecture) adapterFused() (table []models.Fused) {
	for i := range a.Layers {
		prefix := models.AdapterPrefix + a.LayerPrefix(i)
		for _, o := range a.operands(a.kind(i)) {
			parts := a.adapted(o.modules)
			if len(parts) == 0 {
				continue
			}
			matricesA := slices.Clone(parts)
			for i := range matricesA {
				matricesA[i].rows = a.Adapter.Rank
			}
			table = append(table, concat(prefix, o.name, models.AdapterA, matricesA, o.inputWidth))
			for _, m := range parts {
				table = append(table, a.stacked(prefix, m.name, models.AdapterB, a.partsOf(m), a.Adapter.Rank))
			}
		}
	}
	return table
}

// partsOf returns the modules that a layer reads as rows of m.
func (s Shape) partsOf(m module) []module {
	switch {
	case s.Block.Fused && m.name == s.Names.QKV:
		return s.qkv()
	case s.Block.Fused && m.name == s.Names.GateUp:
		return s.gateUp()
	}
	return []module{m}
}

// adapter declares a matrix of the adapter and returns it in the type of the products.
func (w *layerWeights) adapter(name string, sizes ...any) *graph.Node {
	n := parameter(w.g, w.prefix+name, models.F32, sizes...)
	w.trained = append(w.trained, n)
	return w.a.toComputeType(n)
}

// lowRank is Scale A x for each of the modules with operand x [N,in], in the orientation of
// orientedProduct; nil for modules without low-rank products.
func (w *layerWeights) lowRank(form models.Form, name string, parts []module, x *graph.Node) []*graph.Node {
	return w.lowRankBy(form, name, parts, x.Shape()[1].N, func(a *graph.Node) *graph.Node { return orientedProduct(form, x, a, nil) })
}

// lowRankBy returns Scale A x for each of the modules parts, nil where the adapter has no A. product multiplies their
// operand x, of width in, by a matrix A. The As of all modules are one matrix, which is named after name, and its product
// is split. Modules that an adapter has as one all get the same node.
func (w *layerWeights) lowRankBy(form models.Form, name string, parts []module, in int, product func(a *graph.Node) *graph.Node) []*graph.Node {
	out := make([]*graph.Node, len(parts))
	if asOne := w.a.adapterModules(name, parts); len(asOne) < len(parts) { // a Fused block, whose modules the adapter has as one
		return slices.Repeat(w.lowRankBy(form, name, asOne, in, product), len(parts))
	}
	adapted := w.a.adapted(parts)
	x := w.a.Adapter
	scaled := func(name string, modules int) *graph.Node {
		return graph.Mul(product(w.adapter(name+models.AdapterA, modules*x.Rank, in)), w.a.toComputeType(w.g.Scalar(x.Scale)))
	}
	var split []*graph.Node
	switch {
	case len(adapted) == 0:
		return out
	case len(adapted) == 1:
		split = append(split, scaled(name, 1))
	default:
		split = graph.Split(scaled(name, len(adapted)), outputAxis(form), slices.Repeat([]int{x.Rank}, len(adapted))...)
	}
	for i, m := range parts {
		if slices.Contains(adapted, m) {
			out[i], split = split[0], split[1:]
		}
	}
	return out
}

// withAdapter is y + low B^T, where y is a module's product in the orientation of orientedProduct; it is y where low is nil.
func (w *layerWeights) withAdapter(form models.Form, m module, low, y *graph.Node) *graph.Node {
	if low == nil {
		return y
	}
	b := w.adapter(m.name+models.AdapterB, m.rows, w.a.Adapter.Rank)
	if form == models.Direct {
		return graph.Gemm(low, b, y, false, true)
	}
	return graph.Gemm(b, low, y, false, false)
}

// adaptedProduct is the product of the modules of one operand with h, with their low-rank products.
func (a decoding) adaptedProduct(form models.Form, of operand, h, w, b *graph.Node, weights *layerWeights) *graph.Node {
	parts, sizes := of.modules, []int(nil)
	for _, m := range parts {
		sizes = append(sizes, m.rows)
	}
	low := weights.lowRank(form, of.name, parts, h)
	if len(parts) == 1 {
		return transposedBack(form, weights.withAdapter(form, parts[0], low[0], orientedProduct(form, h, w, b)))
	}
	split := slices.Clone(graph.Split(orientedProduct(form, h, w, b), outputAxis(form), sizes...))
	for i, m := range parts {
		split[i] = weights.withAdapter(form, m, low[i], split[i])
	}
	return transposedBack(form, graph.Concat(outputAxis(form), split...))
}
