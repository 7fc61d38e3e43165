package qwen2

import (
	"fmt"

	"onering/models"
	"onering/models/graph"
	"onering/models/onnx"
)

// The weights of a layer in Hugging Face's layout, less their prefix.
const (
	inputNorm = "input_layernorm.weight"
	qWeight   = "self_attn.q_proj.weight"
	qBias     = "self_attn.q_proj.bias"
	kWeight   = "self_attn.k_proj.weight"
	kBias     = "self_attn.k_proj.bias"
	vWeight   = "self_attn.v_proj.weight"
	vBias     = "self_attn.v_proj.bias"
	oWeight   = "self_attn.o_proj.weight"
	postNorm  = "post_attention_layernorm.weight"
	gateWt    = "mlp.gate_proj.weight"
	upWt      = "mlp.up_proj.weight"
	downWt    = "mlp.down_proj.weight"
)

// GradientPrefix and UpdatedPrefix name, before a weight's name, the running
// gradient that a backward Program reads and the sum that it writes onto it.
const (
	GradientPrefix = "grad."
	UpdatedPrefix  = "grad_out."
)

// A layer is the decoder layer under construction: an expression from x to y
// and the values on the way that may be stashed.
type layer struct {
	weights      []string // in the order of the inputs
	w            map[string]*graph.Node
	x, y         *graph.Node // [N,D]
	q, k, v      *graph.Node // [N,H*K], [N,G*K], [N,G*K]; q and k turned
	o            *graph.Node // [B,T,H*K]
	x2, gate, up *graph.Node // [N,D], [N,F], [N,F]
	packing      *graph.Packing
}

// newLayer declares the inputs and writes the layer's formula: pre-norm
// attention and pre-norm SwiGLU, each added to the stream.
func newLayer(g *graph.Graph, c Config, blocks int) *layer {
	l := &layer{w: make(map[string]*graph.Node)}
	d, f, hk, gk := c.HiddenSize, c.FFN, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	l.x = g.Float("x", "N", d)
	weight := func(name string, sizes ...any) *graph.Node {
		l.weights = append(l.weights, name)
		l.w[name] = c.weight(g, name, name, sizes...)
		return l.w[name]
	}
	pos := g.Input("pos", onnx.Int64, graph.Dims("N", 1))
	cos, sin := g.Float("cos", "P", c.HeadDim/2), g.Float("sin", "P", c.HeadDim/2)
	mask := g.Float("mask", "T", "T")
	l.packing = &graph.Packing{
		Rows:   g.Input("rows", onnx.Int64, graph.Dims("B", "T")),
		Tokens: g.Input("tokens", onnx.Int64, graph.Dims("N")),
	}
	var bounds *graph.Node
	if blocks > 1 {
		bounds = g.Input("bounds", onnx.Int64, graph.Dims(blocks+1))
	}

	turn := func(x *graph.Node) *graph.Node {
		return c.narrow(graph.Rotary(widen(x), pos, cos, sin))
	}
	h := c.narrow(graph.RMSNorm(l.x, weight(inputNorm, d), c.RMSEps))
	l.q = turn(graph.Linear(h, weight(qWeight, hk, d), weight(qBias, hk)))
	l.k = turn(graph.Linear(h, weight(kWeight, gk, d), weight(kBias, gk)))
	l.v = graph.Linear(h, weight(vWeight, gk, d), weight(vBias, gk))
	in := l.packing.Unpack
	l.o = graph.CausalAttention(in(l.q), in(l.k), in(l.v), mask, bounds,
		graph.Attention{Heads: c.Heads, KVHeads: c.KVHeads, Blocks: blocks, InTurn: c.forCUDA()})
	l.x2 = c.plus(l.x, l.packing.Pack(l.o), weight(oWeight, d, hk))
	h2 := c.narrow(graph.RMSNorm(l.x2, weight(postNorm, d), c.RMSEps))
	l.gate = graph.Linear(h2, weight(gateWt, f, d), nil)
	l.up = graph.Linear(h2, weight(upWt, f, d), nil)
	l.y = c.plus(l.x2, graph.SwiGLU(l.gate, l.up), weight(downWt, d, f))
	return l
}

// weight declares a weight of a layer: a norm's in float32, others in the type
// of the products. name is its name, input that of the graph's input.
func (c Config) weight(g *graph.Graph, name, input string, sizes ...any) *graph.Node {
	if name == inputNorm || name == postNorm {
		return g.Float(input, sizes...)
	}
	return g.Input(input, c.elem(), graph.Dims(sizes...))
}

// plus is the float32 stream + x w^T.
func (c Config) plus(stream, x, w *graph.Node) *graph.Node {
	if c.compute() == models.F32 {
		return graph.Gemm(x, w, stream, false, true)
	}
	return graph.Add(stream, widen(graph.Linear(x, w, nil)))
}

// stash returns what a level keeps besides x, in the order of the ports.
func (l *layer) stash(level models.Stash) (names []string, values []*graph.Node) {
	if level >= models.StashAttention {
		names = append(names, "q", "k", "v", "o", "x2")
		values = append(values, l.q, l.k, l.v, l.o, l.x2)
	}
	if level >= models.StashAll {
		names = append(names, "gate", "up")
		values = append(values, l.gate, l.up)
	}
	return names, values
}

// Layer builds layer.forward and layer.backward over packed tokens.
//
// Inputs of both: x [N,D]; the layer's weights; pos [N,1]; cos, sin [P,K/2];
// mask [T,T], 0 on and below the diagonal and very negative above; rows [B,T]
// and tokens [N], see graph.Packing; bounds [blocks+1] where blocks > 1, see
// graph.CausalAttention. forward returns y [N,D] and the stash. backward takes
// the stash, dy [N,D], valid [B,T,1] and the running gradient of each weight,
// and returns dx [N,D] and the gradients, added onto the running ones. All are
// float32 but, where Compute is of 16 bits, the matrices, the biases and the
// stash but for x2.
func (c Config) Layer(level models.Stash, blocks int) (forward, backward models.Program, err error) {
	if err := c.checkCompute(); err != nil {
		return forward, backward, err
	}
	if forward, err = graph.Build("layer.forward", c.layerForward(level, blocks)); err != nil {
		return forward, backward, err
	}
	backward, err = graph.Build("layer.backward", c.layerBackward(level, blocks))
	return forward, backward, err
}

func (c Config) layerForward(level models.Stash, blocks int) func(g *graph.Graph) {
	return func(g *graph.Graph) {
		l := newLayer(g, c, blocks)
		g.Output("y", l.y)
		names, values := l.stash(level)
		for i, n := range names {
			g.Output(n, values[i])
		}
	}
}

func (c Config) layerBackward(level models.Stash, blocks int) func(g *graph.Graph) {
	return func(g *graph.Graph) {
		l := newLayer(g, c, blocks)
		l.packing.Valid = g.Float("valid", "B", "T", 1)
		dy := g.Float("dy", "N", c.HiddenSize)
		names, values := l.stash(level)
		for i, n := range names {
			graph.Stash(values[i], g.Input(n, values[i].Elem(), values[i].Shape()))
		}
		wrt := []*graph.Node{l.x}
		for _, n := range l.weights {
			wrt = append(wrt, l.w[n])
		}
		d := graph.Gradient([]*graph.Node{l.y}, []*graph.Node{dy}, wrt)
		g.Output("dx", d[0])
		for i, n := range l.weights {
			running := g.Input(GradientPrefix+n, onnx.Float, l.w[n].Shape())
			g.OutputOnto(UpdatedPrefix+n, graph.AddTo(running, d[i+1]), running.Name())
		}
	}
}

// LayerBytes computes from shapes what a run of layer.forward and of
// layer.backward takes at its peak besides what goes in and comes out, for n
// tokens in rows rows of T places; see graph.Footprint.
func (c Config) LayerBytes(level models.Stash, blocks, n, rows, T int) (forward, backward int64, err error) {
	sizes := map[string]int{"N": n, "B": rows, "T": T, "P": T}
	for i := range blocks {
		sizes[fmt.Sprintf("Tq%d", i)] = (i+1)*T/blocks - i*T/blocks
		sizes[fmt.Sprintf("Tk%d", i)] = (i + 1) * T / blocks
		sizes[fmt.Sprintf("Tr%d", i)] = T - (i+1)*T/blocks
	}
	if forward, err = graph.Footprint(c.layerForward(level, blocks), sizes); err != nil {
		return forward, 0, err
	}
	backward, err = graph.Footprint(c.layerBackward(level, blocks), sizes)
	return forward, backward, err
}
