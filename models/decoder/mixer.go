package decoder

import (
	"math"

	"onering/models"
	"onering/models/graph"
	"onering/models/ports"
)

// A mixer describes the half of a layer in which the tokens of a row meet: attention, or what
// takes its place in layers of another kind.
type mixer struct {
	in, out        operand // the products of the normed stream, and the one that is added to the stream
	bias, outBias  bool
	otherWeights   []models.Spec // the other weights, without the layer's prefix
	storedPerToken int           // how many elements of a token a full layer stores
	channels, taps int           // channels of the convolution, and how many tokens it sees
}

// mixer returns the mixer of a kind of layers. An operand has the name of its modules' joined matrix, its width and the
// modules, of which each has its name and how many rows it has; channels is 0 without a convolution.
func (s Shape) mixer(kind models.Kind) (m mixer) {
	n, d, b := s.Names, s.Hidden, s.Block
	switch kind.Mixer {
	case models.Attention:
		m.in, m.bias = operand{n.QKV, d, s.qkv()}, b.QKVBias
		m.out, m.outBias = operand{n.O, s.Heads * s.HeadDim, []module{{n.O, d}}}, b.OBias
		if b.QKNorm {
			m.otherWeights = []models.Spec{{Name: n.QNorm, Shape: []int{s.normWidth(s.Heads)}}, {Name: n.KNorm, Shape: []int{s.normWidth(s.KVHeads)}}}
		}
		m.storedPerToken = m.out.inputWidth // the output of attention; other mixers store only what follows
	case models.Convolution:
		m.in, m.bias = operand{n.ConvIn, d, []module{{n.ConvIn, 3 * d}}}, b.ConvBias
		m.out, m.outBias = operand{n.ConvOut, d, []module{{n.ConvOut, d}}}, b.ConvBias
		m.channels, m.taps = d, b.Taps
		m.otherWeights = []models.Spec{{Name: n.Conv + ".weight", Shape: []int{d, 1, b.Taps}}}
		if b.ConvBias {
			m.otherWeights = append(m.otherWeights, models.Spec{Name: n.Conv + ".bias", Shape: []int{d}})
		}
	case models.DeltaRule:
		x := b.Delta
		wide := x.ValueHeads * x.ValueWidth
		m.channels, m.taps = 2*x.KeyHeads*x.KeyWidth+wide, b.Taps
		m.in = operand{n.DeltaIn, d, []module{{n.DeltaQKV, m.channels}, {n.DeltaGate, wide}, {n.DeltaBeta, x.ValueHeads}, {n.DeltaDecay, x.ValueHeads}}}
		m.out = operand{n.DeltaOut, wide, []module{{n.DeltaOut, d}}}
		m.otherWeights = []models.Spec{{Name: n.DeltaConv + ".weight", Shape: []int{m.channels, 1, b.Taps}}, {Name: n.DeltaRate, Shape: []int{x.ValueHeads}},
			{Name: n.DeltaShift, Shape: []int{x.ValueHeads}}, {Name: n.DeltaNorm, Shape: []int{x.ValueWidth}}}
	}
	for _, p := range m.in.modules { // the products of the normed stream
		m.storedPerToken += p.rows
	}
	return m
}

// rows returns the number of rows of all modules.
func (o operand) rows() (n int) {
	for _, m := range o.modules {
		n += m.rows
	}
	return n
}

// states lists the tensors that the cache keeps of a row: keys and values of a layer with attention, a window
// and a memory of the others.
func (a Architecture) states() (list []models.State) {
	add := func(layer int, role models.Role, t models.DType, shape ...int) {
		list = append(list, models.State{Use: models.Use{Role: role, Layer: layer}, Type: t, Shape: shape})
	}
	for i := range a.Layers {
		kind := a.kind(i)
		if kind.Mixer == models.Attention {
			add(i, models.Keys, a.compute(), a.KVHeads, a.cacheWidth())
			add(i, models.Values, a.compute(), a.KVHeads, a.cacheWidth())
			continue
		}
		m := a.mixer(kind)
		add(i, models.Window, models.F32, m.taps-1, m.channels) // the convolution sees the new token, too
		x := a.Block.Delta
		if kind.Mixer == models.DeltaRule {
			add(i, models.Memory, models.F32, x.ValueHeads, x.KeyWidth, x.ValueWidth)
		}
	}
	return list
}

// A rowOps lays packed tokens [N,C] out in rows [B,T,C] (toRows) and back (toPacked), and computes along
// the rows: the convolution of x with w, and the delta rule, whose g is the logarithm of the decay.
type rowOps struct {
	toRows, toPacked func(x *graph.Node) *graph.Node
	convolve         func(x, w *graph.Node) *graph.Node
	deltaRule        func(q, k, v, g, beta *graph.Node) *graph.Node
}

// mixByRows is what a layer without attention makes of the products of the normed stream, in the order of the mixer's
// modules: the operand [N,width] of its last product. Between the two casts all is float32. Of a convolution the one
// product is three parts: a gate before it, a gate behind it, and its operand. The products of the delta rule are
// queries with keys and values, the gate of its output, beta and decay.
func (a Architecture) mixByRows(kind models.Kind, w *layerWeights, products []*graph.Node, r rowOps) *graph.Node {
	if kind.Mixer == models.Convolution {
		d, n := a.Hidden, a.Names
		parts := graph.Split(toFloat32(products[0]), 1, d, d, d)
		y := r.toPacked(r.convolve(r.toRows(graph.Mul(parts[0], parts[2])), w.input(n.Conv+".weight", models.F32, d, 1, a.Block.Taps)))
		if a.Block.ConvBias {
			y = graph.Add(y, w.input(n.Conv+".bias", models.F32, d))
		}
		return a.toComputeType(graph.Mul(parts[1], y))
	}
	x, n := a.Block.Delta, a.Names
	keys, wide := x.KeyHeads*x.KeyWidth, x.ValueHeads*x.ValueWidth
	conv := r.convolve(r.toRows(toFloat32(products[0])), w.input(n.DeltaConv+".weight", models.F32, 2*keys+wide, 1, a.Block.Taps))
	parts := graph.Split(graph.Mul(conv, graph.Sigmoid(conv)), 2, keys, keys, wide)
	unit := func(y *graph.Node) *graph.Node { // scales each head to length 1
		y = graph.Reshape(y, 0, 0, x.KeyHeads, x.KeyWidth)
		square := graph.ReduceSum(graph.Mul(y, y), -1)
		return graph.Mul(y, graph.Reciprocal(graph.Sqrt(graph.Add(square, y.Graph().Scalar(1e-6)))))
	}
	rate, shift := w.input(n.DeltaRate, models.F32, x.ValueHeads), w.input(n.DeltaShift, models.F32, x.ValueHeads)
	// The logarithm of the decay is -e^rate softplus(x + shift).
	decay := graph.Neg(graph.Mul(graph.Softplus(graph.Add(toFloat32(products[3]), shift)), graph.Exp(rate)))
	q := graph.Mul(unit(parts[0]), w.g.Scalar(1/math.Sqrt(float64(x.KeyWidth))))
	o := r.deltaRule(q, unit(parts[1]), graph.Reshape(parts[2], 0, 0, x.ValueHeads, x.ValueWidth),
		r.toRows(decay), r.toRows(graph.Sigmoid(toFloat32(products[2]))))
	o = graph.Reshape(r.toPacked(graph.Reshape(o, 0, 0, wide)), -1, x.ValueHeads, x.ValueWidth)
	o = graph.Reshape(graph.RMSNorm(o, w.input(n.DeltaNorm, models.F32, x.ValueWidth), a.RMSEps), -1, wide)
	return a.toComputeType(graph.SwiGLU(toFloat32(products[1]), o))
}

// trainingRows is the rowOps of training, in which rows begin with no state.
func trainingRows(p *graph.Packing) rowOps {
	return rowOps{toRows: p.Unpack, toPacked: p.Pack,
		convolve: func(x, w *graph.Node) *graph.Node {
			y, _ := graph.CausalConv(x, w, nil)
			return y
		},
		deltaRule: func(q, k, v, g, beta *graph.Node) *graph.Node {
			o, _ := graph.DeltaRule(q, k, v, g, beta, nil)
			return o
		}}
}

// declareRowOps declares the inputs that all layers without attention share, and returns what gives the rowOps of each;
// nil if no layer is one. Prompts take valid [B,T,1], which is 1 where a prompt has a token
// and else 0, and window int64 [B,L-1], the places of its last tokens in rows that L-1 zeros
// precede. Later tokens take active [B,1], which is 0 for rows that must not change.
func (a decoding) declareRowOps(g *graph.Graph, ids *graph.Node, prompts bool) func(layer int) rowOps {
	taps, hasRecurrent := 0, false
	for _, k := range a.kinds() {
		if k.Mixer != models.Attention {
			taps, hasRecurrent = a.mixer(k).taps, true
		}
	}
	switch {
	case !hasRecurrent:
		return nil
	case prompts:
		valid, window := g.Float(ports.Valid, "B", "T", 1), g.Input(ports.PromptWindow, models.I64, graph.Dims("B", taps-1))
		return func(layer int) rowOps { return a.promptRows(g, layer, ids, valid, window) }
	}
	active := g.Float(ports.Active, "B", 1)
	return func(layer int) rowOps { return a.tokenRows(g, layer, active) }
}

// promptRows is the rowOps of a layer for prompts, tokens ids [B,T], which also makes the first states of their rows
// outputs: the window that the convolution has at the end of each prompt, and the memory. See declareRowOps for valid
// and window.
func (a decoding) promptRows(g *graph.Graph, layer int, ids, valid, window *graph.Node) rowOps {
	return rowOps{
		toRows:   func(x *graph.Node) *graph.Node { return graph.Rows(x, ids) },
		toPacked: func(x *graph.Node) *graph.Node { return graph.Reshape(x, -1, x.Shape()[2].N) },
		convolve: func(x, w *graph.Node) *graph.Node {
			y, joined := graph.CausalConv(x, w, nil) // joined is x behind L-1 zeros
			var last []*graph.Node
			for j := range window.Shape()[1].N {
				at := graph.Slice(window, g.Ints(int64(j)), g.Ints(int64(j+1)), 1, 1)
				last = append(last, graph.Reshape(graph.GatherRows(joined, at), 0, 1, -1))
			}
			present(g, a.state(layer, models.Window), graph.Concat(1, last...), nil)
			return y
		},
		deltaRule: func(q, k, v, decay, beta *graph.Node) *graph.Node {
			four := graph.Reshape(valid, 0, 0, 1, 1) // for heads: padding changes no memory, since it has 0 for all
			o, last := graph.DeltaRule(q, graph.Mul(k, four), graph.Mul(v, four), graph.Mul(decay, valid), graph.Mul(beta, valid), nil)
			present(g, a.state(layer, models.Memory), last, nil)
			return o
		}}
}

// tokenRows is the rowOps of a layer for one token of each row, which reads and updates the states in the
// cache. Rows whose active is 0 keep their states.
func (a decoding) tokenRows(g *graph.Graph, layer int, active *graph.Node) rowOps {
	moves := func() *graph.Node { return graph.Reshape(active, 0, 1, 1) }
	return rowOps{
		toRows:   func(x *graph.Node) *graph.Node { return graph.Reshape(x, 0, 1, -1) },
		toPacked: func(x *graph.Node) *graph.Node { return graph.Reshape(x, 0, -1) },
		convolve: func(x, w *graph.Node) *graph.Node {
			window := a.state(layer, models.Window)
			before := past(g, window)
			y, joined := graph.CausalConv(x, w, before)
			taps := joined.Shape()[1].N // joined is the window before and the new token
			now := graph.Slice(joined, g.Ints(1), g.Ints(int64(taps)), 1, taps-1)
			present(g, window, graph.Where(graph.GreaterOrEqual(moves(), g.Scalar(0.5)), now, before), before)
			return y
		},
		deltaRule: func(q, k, v, decay, beta *graph.Node) *graph.Node {
			memory := a.state(layer, models.Memory)
			before, moves, byOperator := past(g, memory), moves(), a.Provider == models.CPU
			o, now := graph.DeltaStep(q, k, v, graph.Mul(decay, moves), graph.Mul(beta, moves), before, byOperator)
			present(g, memory, now, before)
			return o
		}}
}

// state returns a state of a layer.
func (a decoding) state(layer int, role models.Role) models.State {
	for _, s := range a.states() {
		if s.Layer == layer && s.Role == role {
			return s
		}
	}
	panic("decoder: a layer without this state")
}
