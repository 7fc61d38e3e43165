package decoder

import (
	"cmp"
	"fmt"

	"onering/models"
	"onering/models/graph"
	"onering/models/ports"
)

// gradientPrefix and updatedPrefix come before a weight's name: in the running gradient
// that a backward Program reads, and in the sum that it writes onto it.
const (
	gradientPrefix = "grad."
	updatedPrefix  = "grad_out."
)

// A layer is the decoder layer under construction: an expression from x to y, and the
// intermediate values that may be stashed.
type layer struct {
	weights      weights
	x, y         *graph.Node // [N,D]
	q, k, v      *graph.Node // [N,H*K], [N,G*K], [N,G*K]; see turn
	o            *graph.Node // [B,T,H*K]
	x2, gate, up *graph.Node // [N,D], [N,F], [N,F]
	packing      *graph.Packing
}

// newLayer declares the inputs and writes the layer's formula: pre-norm
// attention and pre-norm SwiGLU, each added to the stream.
func (a Architecture) newLayer(g *graph.Graph, blocks int) *layer {
	l := &layer{weights: weights{a: a, g: g}}
	d, n := a.Hidden, a.Names
	l.x = g.Float(ports.Stream, "N", d)
	pos := g.Input(ports.Positions, models.I64, graph.Dims("N", 1))
	cos, sin := g.Float(ports.Cos, "P", a.HeadDim/2), g.Float(ports.Sin, "P", a.HeadDim/2)
	mask := g.Float(ports.Mask, "T", "T")
	l.packing = &graph.Packing{
		Rows:   g.Input(ports.PackedRows, models.I64, graph.Dims("B", "T")),
		Tokens: g.Input(ports.PackedTokens, models.I64, graph.Dims("N")),
	}
	var bounds *graph.Node
	if blocks > 1 {
		bounds = g.Input(ports.BlockBounds, models.I64, graph.Dims(blocks+1))
	}

	linear := func(x *graph.Node, m module, bias bool, low *graph.Node) *graph.Node {
		w, b := l.weights.product(m, d, bias)
		return l.weights.withAdapter(models.Direct, m, low, graph.Linear(x, w, b))
	}
	// turn norms the heads if the block has QKNorm, and applies the rotary embedding.
	// kept is the value to stash, from which the result follows without a product.
	turn := func(x *graph.Node, normName string) (kept, turned *graph.Node) {
		if a.Block.QKNorm {
			return x, a.narrow(graph.Rotary(a.normHeads(widen(x), l.weights.norm(normName, a.HeadDim)), pos, cos, sin))
		}
		turned = a.narrow(graph.Rotary(widen(x), pos, cos, sin))
		return turned, turned
	}
	var q, k *graph.Node
	h := a.narrow(graph.RMSNorm(l.x, l.weights.norm(n.InputNorm, d), a.RMSEps))
	qkv := a.qkv()
	low := l.weights.low(models.Direct, n.QKV, qkv, h)
	l.q, q = turn(linear(h, qkv[0], a.Block.QKVBias, low[0]), n.QNorm)
	l.k, k = turn(linear(h, qkv[1], a.Block.QKVBias, low[1]), n.KNorm)
	l.v = linear(h, qkv[2], a.Block.QKVBias, low[2])
	in := l.packing.Unpack
	l.o = graph.CausalAttention(l.packing.UnpackOnce(q), in(k), in(l.v), mask, bounds,
		graph.Attention{Heads: a.Heads, KVHeads: a.KVHeads, Blocks: blocks, InTurn: a.forGPU()})
	o := l.packing.Pack(l.o)
	l.x2 = l.weights.onto(l.x, o, module{n.O, d}, a.Block.OBias)
	h = a.narrow(graph.RMSNorm(l.x2, l.weights.norm(n.PostNorm, d), a.RMSEps))
	gateUp := a.gateUp()
	low = l.weights.low(models.Direct, n.GateUp, gateUp, h)
	l.gate = linear(h, gateUp[0], a.Block.MLPBias, low[0])
	l.up = linear(h, gateUp[1], a.Block.MLPBias, low[1])
	l.y = l.weights.onto(l.x2, graph.SwiGLU(l.gate, l.up), module{n.Down, d}, a.Block.MLPBias)
	return l
}

// normHeads is the RMSNorm of each head of x [N,heads*K], in float32.
func (a Architecture) normHeads(x, w *graph.Node) *graph.Node {
	width := x.Shape()[1].N
	heads := graph.Reshape(x, -1, width/a.HeadDim, a.HeadDim)
	return graph.Reshape(graph.RMSNorm(heads, w, a.RMSEps), -1, width)
}

// parameter declares a tensor of the layout as an input.
func parameter(g *graph.Graph, name string, elem models.DType, sizes ...any) *graph.Node {
	g.Use(name, models.Use{Role: models.Parameter})
	return g.Input(name, elem, graph.Dims(sizes...))
}

// running declares the running gradient of a weight.
func running(g *graph.Graph, weight *graph.Node) *graph.Node {
	g.Use(gradientPrefix+weight.Name(), models.Use{Role: models.Gradient, Of: weight.Name()})
	return g.Input(gradientPrefix+weight.Name(), models.F32, weight.Shape())
}

// addGradient adds a gradient onto the running one of a weight.
func addGradient(g *graph.Graph, weight, running, d *graph.Node) {
	g.Use(updatedPrefix+weight.Name(), models.Use{Role: models.Gradient, Of: weight.Name()})
	g.OutputOnto(updatedPrefix+weight.Name(), graph.AddTo(running, d), running.Name())
}

// weights declares the weights of a layer as inputs of a graph.
type weights struct {
	a      Architecture
	g      *graph.Graph
	prefix string // the beginning of the inputs' names
	// trained are the weights that get gradients, in the order of the inputs: all, or
	// only the adapter's if there is one.
	trained []*graph.Node
	// widened are 16-bit matrices that have been cast already, by name.
	widened map[string]*graph.Node
}

// widen casts matrices of a Base of 16 bits before anything that they are multiplied with
// is computed. ONNX Runtime goes through a graph from its end and, of a node's operands,
// first to the one that was made last: a cast that is made after the other operand would
// run before the layers below, and its result would stay in memory while they run.
func (w *weights) widen(in int, parts ...module) {
	for _, m := range parts {
		if w.a.Compute.Narrow() {
			w.widened[m.name] = w.matrix(m, in)
		}
	}
}

// matrix declares the matrix of a module and returns it in the type of the products.
func (w *weights) matrix(m module, in int) *graph.Node {
	if w.a.Base != models.I8 {
		return graph.Cast(w.input(m.name+".weight", w.a.matrixType(), m.rows, in), w.a.compute())
	}
	blocks := in / models.Block // such a matrix has no gradient, even without an adapter
	name := w.prefix + m.name + ".weight"
	x := graph.Cast(parameter(w.g, name, models.I8, m.rows, in), models.F32)
	scales := parameter(w.g, name+models.ScaleSuffix, models.F32, m.rows, blocks)
	scaled := graph.Mul(graph.Reshape(x, m.rows, blocks, models.Block), graph.Reshape(scales, m.rows, blocks, 1))
	return graph.Reshape(scaled, m.rows, in)
}

func (w *weights) input(name string, elem models.DType, sizes ...any) *graph.Node {
	n := parameter(w.g, w.prefix+name, elem, sizes...)
	if w.a.Adapter == nil {
		w.trained = append(w.trained, n)
	}
	return n
}

// norm declares the weight of an RMSNorm, which is float32.
func (w *weights) norm(name string, size int) *graph.Node { return w.input(name, models.F32, size) }

// product declares the matrix [rows,in] of a module and its bias [rows], nil if it has
// none, and returns them in the type of the products.
func (w *weights) product(m module, in int, bias bool) (matrix, offset *graph.Node) {
	if matrix = w.widened[m.name]; matrix == nil {
		matrix = w.matrix(m, in)
	}
	if bias {
		offset = w.input(m.name+".bias", w.a.compute(), m.rows)
	}
	return matrix, offset
}

// onto is the float32 stream + the product of a module and x [N,in].
func (w *weights) onto(stream, x *graph.Node, m module, bias bool) *graph.Node {
	matrix, offset := w.product(m, x.Shape()[1].N, bias)
	return w.ontoBy(stream, x, m, matrix, offset)
}

// ontoBy is onto, with weights of the module that are declared already.
func (w *weights) ontoBy(stream, x *graph.Node, m module, matrix, offset *graph.Node) *graph.Node {
	y := w.a.plus(stream, x, matrix, offset)
	if low := w.low(models.Direct, m.name, []module{m}, x)[0]; low != nil {
		return w.a.plus(y, low, w.adapter(m.name+models.AdapterB, m.rows, w.a.Adapter.Rank), nil)
	}
	return y
}

// plus is the float32 stream + x w^T + b; b may be nil.
func (a Architecture) plus(stream, x, w, b *graph.Node) *graph.Node {
	if b == nil && a.compute() == models.F32 {
		return graph.Gemm(x, w, stream, false, true)
	}
	return graph.Add(stream, widen(graph.Linear(x, w, b)))
}

// stash returns the values besides x that a full layer stores, in the order of the ports.
func (l *layer) stash(full bool) (names []string, values []*graph.Node) {
	if !full {
		return nil, nil
	}
	return []string{"q", "k", "v", "o", "x2", "gate", "up"}, []*graph.Node{l.q, l.k, l.v, l.o, l.x2, l.gate, l.up}
}

// Layer builds layer.forward and layer.backward over packed tokens.
//
// Inputs of both: x [N,D]; the layer's weights; pos [N,1]; cos, sin [P,K/2];
// mask [T,T], 0 on and below the diagonal and very negative above; rows [B,T]
// and tokens [N], see graph.Packing; bounds [blocks+1] where blocks > 1, see
// graph.CausalAttention. forward returns y [N,D] and the stash. backward takes
// the stash, dy [N,D], valid [B,T,1], copies [M,J] and copied [M,1,J] (see
// graph.Packing) and the running gradient of each weight (of
// the adapter's alone where there is one), and returns dx [N,D] and the gradients, added onto the running ones. In 16 bits
// the matrices, the biases and the stash without x2 have that type; all else is
// float32.
func (a Architecture) Layer(full bool, blocks int) (forward, backward models.Program, err error) {
	forward, err = graph.Build("layer.forward", a.layerForward(full, blocks))
	backward, failed := graph.Build("layer.backward", a.layerBackward(full, blocks))
	return forward, backward, cmp.Or(err, failed)
}

func (a Architecture) layerForward(full bool, blocks int) func(g *graph.Graph) {
	return func(g *graph.Graph) {
		a.forProvider(g)
		l := a.newLayer(g, blocks)
		g.Output(ports.StreamOut, l.y)
		names, values := l.stash(full)
		for i, n := range names {
			g.Use(n, models.Use{Role: models.Kept})
			g.Output(n, values[i])
		}
	}
}

func (a Architecture) layerBackward(full bool, blocks int) func(g *graph.Graph) {
	return func(g *graph.Graph) {
		a.forProvider(g)
		l := a.newLayer(g, blocks)
		l.packing.Valid = g.Float(ports.Valid, "B", "T", 1)
		l.packing.Copies = g.Input(ports.TokenCopies, models.I64, graph.Dims("M", "J"))
		l.packing.Copied = g.Float(ports.TokenCopied, "M", 1, "J")
		dy := g.Float(ports.StreamGrad, "N", a.Hidden)
		names, values := l.stash(full)
		for i, n := range names {
			g.Use(n, models.Use{Role: models.Kept})
			values[i].Stash(g.Input(n, values[i].Elem(), values[i].Shape()))
		}
		d := graph.Gradient([]*graph.Node{l.y}, []*graph.Node{dy}, append([]*graph.Node{l.x}, l.weights.trained...))
		g.Output(ports.StreamGradOut, d[0])
		for i, w := range l.weights.trained {
			addGradient(g, w, running(g, w), d[i+1])
		}
	}
}

// LayerBytes computes from shapes the peak memory of a run of layer.forward and of
// layer.backward, without inputs and outputs, for n tokens in rows rows of T places; see
// graph.Footprint.
func (a Architecture) LayerBytes(full bool, blocks, n, rows, T int) (forward, backward int64, err error) {
	sizes := map[string]int{"N": n, "B": rows, "T": T, "P": T, "M": 1, "J": 1, "O": n - 1}
	for i := range blocks {
		sizes[fmt.Sprintf("Tq%d", i)] = (i+1)*T/blocks - i*T/blocks
		sizes[fmt.Sprintf("Tk%d", i)] = (i + 1) * T / blocks
		sizes[fmt.Sprintf("Tr%d", i)] = T - (i+1)*T/blocks
	}
	forward, err = graph.Footprint(a.layerForward(full, blocks), sizes)
	backward, failed := graph.Footprint(a.layerBackward(full, blocks), sizes)
	return forward, backward, cmp.Or(err, failed)
}
