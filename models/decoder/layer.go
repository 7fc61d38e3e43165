package decoder

import (
	"cmp"
	"fmt"
	"math"

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
	weights      layerWeights
	x, y         *graph.Node   // [N,D]
	products     []*graph.Node // of the normed stream, [N,rows] each; of attention see attend
	attentionOut *graph.Node   // [B,T,H*K]; nil of other mixers
	x2, gate, up *graph.Node   // the stream between both halves [N,D], and two products [N,F] of its norm
	// The products of both halves [N,D], where norms follow them.
	mixerOut, mlpOut *graph.Node
	packing          *graph.Packing
}

// newLayer declares the inputs and writes the formula of a layer of the kind with a number: its mixer and
// SwiGLU, each added to the stream. Attention takes its queries in so many blocks.
func (a Architecture) newLayer(g *graph.Graph, kindNumber, blocks int) *layer {
	l := &layer{weights: layerWeights{a: a, g: g}}
	kind, n := a.kinds()[kindNumber], a.Names
	m := a.mixer(kind)
	l.x = g.Float(ports.Stream, "N", a.Hidden)
	var in attentionInputs
	if kind.Mixer == models.Attention {
		in.pos = g.Input(ports.Positions, models.I64, graph.Dims("N", 1))
		in.angle = a.angles(g, 0) // the graph has one kind of layers, so the ports have no number
		in.mask = g.Float(maskOf(kind), "T", "T")
	}
	l.packing = &graph.Packing{
		Rows:   g.Input(ports.PackedRows, models.I64, graph.Dims("B", "T")),
		Tokens: g.Input(ports.PackedTokens, models.I64, graph.Dims("N")),
	}
	if blocks > 1 && kind.Mixer == models.Attention {
		in.bounds = g.Input(ports.BlockBounds, models.I64, graph.Dims(blocks+1))
	}
	in.window = kind.Window
	h := a.toComputeType(l.weights.normed(l.x, n.InputNorm))
	low := l.weights.lowRank(models.Direct, m.in.name, m.in.modules, h)
	var o *graph.Node
	if kind.Mixer == models.Attention {
		o = l.attend(h, low, in, blocks)
	} else {
		for i := range m.in.modules {
			l.products = append(l.products, l.linear(h, m.in.modules[i], m.bias, low[i]))
		}
		o = a.mixByRows(kind, &l.weights, l.products, trainingRows(l.packing))
	}
	l.mixerOut, l.x2 = l.weights.addProduct(l.x, o, m.out.modules[0], m.outBias, n.AfterMixerNorm)
	h = a.toComputeType(l.weights.normed(l.x2, n.BeforeMLPNorm))
	gateUp := a.gateUp()
	low = l.weights.lowRank(models.Direct, n.GateUp, gateUp, h)
	l.gate = l.linear(h, gateUp[0], a.Block.MLPBias, low[0])
	l.up = l.linear(h, gateUp[1], a.Block.MLPBias, low[1])
	l.mlpOut, l.y = l.weights.addProduct(l.x2, a.gated(l.gate, l.up), module{n.Down, a.Hidden}, a.Block.MLPBias, n.AfterMLPNorm)
	return l
}

// linear is the product of a module and x [N,D], with its low-rank product low, which may be nil.
func (l *layer) linear(x *graph.Node, m module, bias bool, low *graph.Node) *graph.Node {
	w, b := l.weights.matrixAndBias(m, l.weights.a.Hidden, bias)
	return l.weights.withAdapter(models.Direct, m, low, graph.Linear(x, w, b))
}

// attentionInputs are the inputs of attention in a layer.
type attentionInputs struct {
	pos, mask, bounds *graph.Node
	window            int
	angle
}

// attend is attention [N,H*K] for the normed stream h [N,D]. low has the low-rank products of queries, keys and values,
// nil where there is none. It sets l.products to queries, keys and values as the backward pass reads them: turned,
// unless a norm, whose gradient needs its operand, comes before the turn, or a gate is a part of the queries.
func (l *layer) attend(h *graph.Node, low []*graph.Node, in attentionInputs, blocks int) *graph.Node {
	a := l.weights.a
	qkv, b := a.qkv(), a.Block
	// turn norms the heads if the block has QKNorm, and applies the rotary embedding.
	turn := func(x *graph.Node, normName string, heads int) *graph.Node {
		wide := toFloat32(x)
		if b.QKNorm {
			wide = a.normHeads(wide, l.weights.norm(normName, a.normWidth(heads)))
		}
		wide = graph.Rotary(wide, in.pos, in.cos, in.sin, heads)
		if b.QueryScale != 0 && normName == a.Names.QNorm { // not for keys
			wide = graph.Mul(wide, a.queryScale(in.pos))
		}
		return a.toComputeType(wide)
	}
	var gate *graph.Node
	keptQ := l.linear(h, qkv[0], b.QKVBias, low[0])
	q := keptQ
	if b.OutputGate {
		q, gate = a.queriesAndGate(keptQ)
	}
	q = turn(q, a.Names.QNorm, a.Heads)
	if !b.QKNorm && gate == nil {
		keptQ = q
	}
	keptK := l.linear(h, qkv[1], b.QKVBias, low[1])
	k := turn(keptK, a.Names.KNorm, a.KVHeads)
	if !b.QKNorm {
		keptK = k
	}
	l.products = []*graph.Node{keptQ, keptK, l.linear(h, qkv[2], b.QKVBias, low[2])}
	unpack := l.packing.Unpack // keys and values of a token that rows share count in all of them, its query in one
	l.attentionOut = graph.CausalAttention(l.packing.UnpackOnce(q), unpack(k), unpack(l.products[2]), in.mask, in.bounds,
		graph.Attention{Heads: a.Heads, KVHeads: a.KVHeads, Scale: a.scoreScale(), Cap: b.AttentionCap, Window: in.window, Blocks: blocks, InTurn: a.forGPU()})
	return a.throughGate(l.packing.Pack(l.attentionOut), gate)
}

// queriesAndGate splits the product x [N,2*H*K] of queries and an OutputGate, which each head
// has one after the other.
func (a Architecture) queriesAndGate(x *graph.Node) (q, gate *graph.Node) {
	parts := graph.Split(graph.Reshape(x, -1, a.Heads, 2*a.HeadDim), 2, a.HeadDim, a.HeadDim)
	return graph.Reshape(parts[0], -1, a.Heads*a.HeadDim), graph.Reshape(parts[1], -1, a.Heads*a.HeadDim)
}

// throughGate is x [N,H*K] times the sigmoid of a gate; without one it is x.
func (a Architecture) throughGate(x, gate *graph.Node) *graph.Node {
	if gate == nil {
		return x
	}
	return a.toComputeType(graph.Mul(toFloat32(x), graph.Sigmoid(toFloat32(gate))))
}

// angle is the inputs for the angles of a kind of layers: [P,n/2], for the first n elements
// of a head.
type angle struct{ cos, sin *graph.Node }

func (a Architecture) angles(g *graph.Graph, kind int) angle {
	half := len(a.kinds()[kind].Frequencies)
	return angle{g.Float(models.OfKind(ports.Cos, kind), "P", half), g.Float(models.OfKind(ports.Sin, kind), "P", half)}
}

// maskOf names the mask of a kind of layers.
func maskOf(k models.Kind) string {
	if k.Window > 0 {
		return ports.Band
	}
	return ports.Mask
}

// scoreScale is the factor of the scores of attention.
func (s Shape) scoreScale() float64 {
	return cmp.Or(s.Block.AttentionScale, 1/math.Sqrt(float64(s.HeadDim)))
}

// queryScale is the factor of the queries at pos [N,1]; see Block. The logarithm is in float64:
// on a CPU the last bit of one in float32 depends on how many there are.
func (a Architecture) queryScale(pos *graph.Node) *graph.Node {
	g := pos.Graph()
	lengths := graph.Cast(graph.Div(pos, g.Ints(int64(a.Block.QueryLength))), models.F64)
	grown := graph.Mul(graph.Log(graph.Add(lengths, g.Double(1))), g.Double(a.Block.QueryScale))
	return graph.Cast(graph.Add(grown, g.Double(1)), models.F32)
}

// gated is the product of the gate's activation and up.
func (a Architecture) gated(gate, up *graph.Node) *graph.Node {
	if a.Block.GELU {
		return a.toComputeType(graph.GeGLU(toFloat32(gate), toFloat32(up)))
	}
	return graph.SwiGLU(gate, up)
}

// softCap is c tanh(x/c), or x without a cap.
func softCap(x *graph.Node, c float64) *graph.Node {
	if c == 0 {
		return x
	}
	size := x.Graph().Scalar(c)
	return graph.Mul(graph.Tanh(graph.Div(x, size)), size)
}

// normHeads is the QKNorm of x [N,heads*K], in float32.
func (a Architecture) normHeads(x, w *graph.Node) *graph.Node {
	if a.Block.WideNorm {
		return graph.RMSNorm(x, w, a.RMSEps)
	}
	width := x.Shape()[1].N
	heads := graph.Reshape(x, -1, width/a.HeadDim, a.HeadDim)
	return graph.Reshape(graph.RMSNorm(heads, w, a.RMSEps), -1, width)
}

// parameter declares a tensor of the layout as an input.
func parameter(g *graph.Graph, name string, elem models.DType, sizes ...any) *graph.Node {
	g.Use(name, models.Use{Role: models.Parameter})
	return g.Input(name, elem, graph.Dims(sizes...))
}

// runningGradient declares the running gradient of a weight.
func runningGradient(g *graph.Graph, weight *graph.Node) *graph.Node {
	g.Use(gradientPrefix+weight.Name(), models.Use{Role: models.Gradient, Of: weight.Name()})
	return g.Input(gradientPrefix+weight.Name(), models.F32, weight.Shape())
}

// addGradient adds a gradient onto the running one of a weight.
func addGradient(g *graph.Graph, weight, running, d *graph.Node) {
	g.Use(updatedPrefix+weight.Name(), models.Use{Role: models.Gradient, Of: weight.Name()})
	g.OutputOnto(updatedPrefix+weight.Name(), graph.AddTo(running, d), running.Name())
}

// layerWeights declares the weights of a layer as inputs of a graph.
type layerWeights struct {
	a      Architecture
	g      *graph.Graph
	prefix string // the beginning of the inputs' names
	// trained are the weights that get gradients, in the order of the inputs: all, or
	// only the adapter's if there is one.
	trained []*graph.Node
	// castAlready are the matrices of a Base of fewer bits that have been cast already, by name.
	castAlready map[string]*graph.Node
}

// castBase casts matrices of a Base of fewer bits before anything that they are multiplied with
// is computed. ONNX Runtime goes through a graph from its end and, of a node's operands,
// first to the one that was made last: a cast that is made after the other operand would
// run before the layers below, and its result would stay in memory while they run.
func (w *layerWeights) castBase(in int, parts ...module) {
	for _, m := range parts {
		if w.a.Compute.Narrow() {
			w.castAlready[m.name] = w.matrix(m, in)
		}
	}
}

// matrix declares the matrix of a module and returns it in the type of the products.
func (w *layerWeights) matrix(m module, in int) *graph.Node {
	if models.BlockOf(w.a.Base) == 0 {
		return graph.Cast(w.input(m.name+".weight", w.a.matrixType(), m.rows, in), w.a.compute())
	}
	return w.a.baseMatrix(w.g, w.prefix+m.name+".weight", m.rows, in, nil, w.a.compute()) // it has no gradient, even without an adapter
}

func (w *layerWeights) input(name string, elem models.DType, sizes ...any) *graph.Node {
	n := parameter(w.g, w.prefix+name, elem, sizes...)
	if w.a.Adapter == nil {
		w.trained = append(w.trained, n)
	}
	return n
}

// norm declares the weight of an RMSNorm, which is float32, and returns what it multiplies by.
func (w *layerWeights) norm(name string, size int) *graph.Node {
	return w.a.plusOne(w.input(name, models.F32, size))
}

func (a Architecture) plusOne(w *graph.Node) *graph.Node {
	if a.Block.PlusOne {
		return graph.Add(w, w.Graph().Scalar(1))
	}
	return w
}

// normed is the RMSNorm of x [N,D] whose weight has a name; without one it is x.
func (w *layerWeights) normed(x *graph.Node, name string) *graph.Node {
	if name == "" {
		return x
	}
	return graph.RMSNorm(x, w.norm(name, w.a.Hidden), w.a.RMSEps)
}

// matrixAndBias declares the matrix [rows,in] of a module and its bias [rows], nil if it has
// none, and returns them in the type of the products.
func (w *layerWeights) matrixAndBias(m module, in int, bias bool) (matrix, offset *graph.Node) {
	if matrix = w.castAlready[m.name]; matrix == nil {
		matrix = w.matrix(m, in)
	}
	if bias {
		held := w.a.compute()
		if w.a.Compute.Narrow() {
			held = models.F32
		}
		offset = w.a.toComputeType(w.input(m.name+".bias", held, m.rows))
	}
	return matrix, offset
}

// addProduct returns sum, the float32 stream + the product y of a module and x [N,in], or what the norm of that name
// makes of y. It also returns y if a norm or a ResidualScale follows; else nil.
func (w *layerWeights) addProduct(stream, x *graph.Node, m module, bias bool, norm string) (y, sum *graph.Node) {
	matrix, offset := w.matrixAndBias(m, x.Shape()[1].N, bias)
	return w.addProductBy(stream, x, m, matrix, offset, norm)
}

// addProductBy is addProduct with weights of the module that are declared already.
func (w *layerWeights) addProductBy(stream, x *graph.Node, m module, matrix, offset *graph.Node, norm string) (y, sum *graph.Node) {
	low := func() *graph.Node { return w.lowRank(models.Direct, m.name, []module{m}, x)[0] }
	if norm != "" || w.a.Block.ResidualScale != 0 {
		y = graph.Linear(x, matrix, offset)
		y = w.withAdapter(models.Direct, m, low(), y)
		return y, w.addNormed(stream, y, norm)
	}
	sum = w.a.streamPlusProduct(stream, x, matrix, offset)
	if low := low(); low != nil {
		sum = w.a.streamPlusProduct(sum, low, w.adapter(m.name+models.AdapterB, m.rows, w.a.Adapter.Rank), nil)
	}
	return nil, sum
}

// addNormed is the stream + what the norm of a name and the ResidualScale make of y [N,D].
func (w *layerWeights) addNormed(stream, y *graph.Node, norm string) *graph.Node {
	y = w.normed(toFloat32(y), norm)
	if r := w.a.Block.ResidualScale; r != 0 {
		y = graph.Mul(y, w.g.Scalar(r))
	}
	return graph.Add(stream, y)
}

// streamPlusProduct is the float32 stream + x w^T + b; b may be nil.
func (a Architecture) streamPlusProduct(stream, x, w, b *graph.Node) *graph.Node {
	if b == nil && a.compute() == models.F32 {
		return graph.Gemm(x, w, stream, false, true)
	}
	return graph.Add(stream, toFloat32(graph.Linear(x, w, b)))
}

// stored returns the values besides x that a full layer stores for its backward pass, with their names, in the order of
// the ports; none of a layer that is not full, which is computed again. Where a norm follows the last product of a half,
// that product is stored, too.
func (l *layer) stored(full bool) (names []string, values []*graph.Node) {
	if !full {
		return nil, nil
	}
	if l.attentionOut != nil { // attention; a layer with another mixer has other products
		names, values = []string{"q", "k", "v", "o"}, append(l.products[:3:3], l.attentionOut) // 3:3 makes append copy
	} else {
		for i, p := range l.products {
			names, values = append(names, fmt.Sprintf("product%d", i)), append(values, p)
		}
	}
	names, values = append(names, "x2", "gate", "up"), append(values, l.x2, l.gate, l.up)
	if l.weights.a.Names.AfterMixerNorm != "" {
		names, values = append(names, "attended"), append(values, l.mixerOut)
	}
	if l.weights.a.Names.AfterMLPNorm != "" {
		names, values = append(names, "fed"), append(values, l.mlpOut)
	}
	return names, values
}

// Layer builds layer.forward and layer.backward over packed tokens.
//
// Inputs of both: x [N,D]; the layer's weights; pos [N,1]; cos, sin [P,n/2]; mask [T,T], 0 on and below the diagonal
// and very negative above, or for a kind with a window band, which is very negative also where a key lies before a
// query's window; rows [B,T] and tokens [N], see graph.Packing; bounds [blocks+1] where blocks > 1, see
// graph.CausalAttention. forward returns y [N,D] and the stash. backward takes the stash, dy [N,D], valid [B,T,1],
// copies [M,J] and copied [M,1,J] (see graph.Packing) and the running gradient of each weight (of the adapter's alone
// where there is one), and returns dx [N,D] and the gradients, added onto the running ones. In 16 bits the matrices,
// the biases and the stash without x2 have that type; all else is float32.
func (a Architecture) Layer(kind int, full bool, blocks int) (forward, backward models.Program, err error) {
	forward, err = graph.Build("layer.forward", a.layerForward(kind, full, blocks))
	backward, failed := graph.Build("layer.backward", a.layerBackward(kind, full, blocks))
	return forward, backward, cmp.Or(err, failed)
}

// layerForward returns what declares layer.forward of Layer.
func (a Architecture) layerForward(kind int, full bool, blocks int) func(g *graph.Graph) {
	return func(g *graph.Graph) {
		a.setProvider(g)
		l := a.newLayer(g, kind, blocks)
		g.Output(ports.StreamOut, l.y)
		names, values := l.stored(full)
		for i, n := range names {
			g.Use(n, models.Use{Role: models.Kept})
			g.Output(n, values[i])
		}
	}
}

// layerBackward returns what declares layer.backward of Layer: the forward expression again, in which a full layer reads
// the values that it stored as inputs, and its gradients for x and for what is trained.
func (a Architecture) layerBackward(kind int, full bool, blocks int) func(g *graph.Graph) {
	return func(g *graph.Graph) {
		a.setProvider(g)
		l := a.newLayer(g, kind, blocks)
		l.packing.Valid = g.Float(ports.Valid, "B", "T", 1)
		l.packing.Copies = g.Input(ports.TokenCopies, models.I64, graph.Dims("M", "J"))
		l.packing.Copied = g.Float(ports.TokenCopied, "M", 1, "J")
		dy := g.Float(ports.StreamGrad, "N", a.Hidden)
		names, values := l.stored(full)
		for i, n := range names {
			g.Use(n, models.Use{Role: models.Kept})
			values[i].Stash(g.Input(n, values[i].Elem(), values[i].Shape())) // the input takes the value's place
		}
		d := graph.Gradient([]*graph.Node{l.y}, []*graph.Node{dy}, append([]*graph.Node{l.x}, l.weights.trained...))
		g.Output(ports.StreamGradOut, d[0])
		for i, w := range l.weights.trained {
			addGradient(g, w, runningGradient(g, w), d[i+1])
		}
	}
}

// LayerBytes computes from shapes the peak memory of a run of layer.forward and of layer.backward, without inputs and
// outputs, for n tokens in rows rows of T places; see graph.Footprint.
func (a Architecture) LayerBytes(kind int, full bool, blocks, n, rows, T int) (forward, backward int64, err error) {
	sizes := map[string]int{"N": n, "B": rows, "T": T, "P": T, "M": 1, "J": 1, "O": n - 1, "Tn": (T + 31) / 32, "Tw": T + a.Block.Taps - 1}
	for i := range blocks {
		from, to, first := i*T/blocks, (i+1)*T/blocks, 0
		if w := a.kinds()[kind].Window; w > 0 && !a.forGPU() {
			first = max(0, from-w+1)
		}
		sizes[fmt.Sprintf("Tq%d", i)] = to - from
		sizes[fmt.Sprintf("Tk%d", i)] = to - first
		sizes[fmt.Sprintf("Tr%d", i)] = T - to
	}
	forward, err = graph.Footprint(a.layerForward(kind, full, blocks), sizes)
	backward, failed := graph.Footprint(a.layerBackward(kind, full, blocks), sizes)
	return forward, backward, cmp.Or(err, failed)
}
