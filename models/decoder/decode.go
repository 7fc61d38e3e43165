package decoder

import (
	"fmt"

	"onering/models"
	"onering/models/graph"
	"onering/models/ports"
)

// wideOptions stops the runtime from folding the transpose of Wide back into the product,
// which would undo the form.
var wideOptions = map[string]string{"optimization.disable_specified_optimizers": "GemmTransposeFusion"}

// product is x w^T + b for x [N,in], w [out,in], b [out] or nil, in any form.
func product(form models.Form, x, w, b *graph.Node) *graph.Node {
	return transposedBack(form, orientedProduct(form, x, w, b))
}

// transposedBack transposes an oriented product to y [N,out].
func transposedBack(form models.Form, y *graph.Node) *graph.Node {
	if form == models.Direct {
		return y
	}
	return graph.Transpose(y, 1, 0)
}

// outputAxis returns the axis of the outputs in an oriented product.
func outputAxis(form models.Form) int {
	if form == models.Direct {
		return 1
	}
	return 0
}

// orientedProduct is product in the orientation of a form: [N,out], or [out,N] in Wide.
func orientedProduct(form models.Form, x, w, b *graph.Node) *graph.Node {
	if form == models.Direct {
		return graph.Linear(x, w, b)
	}
	if b != nil {
		b = graph.Reshape(b, -1, 1)
	}
	return graph.Gemm(w, x, b, false, true)
}

// Prefill builds the graph that computes prompts from their first token.
//
// Inputs: ids int64 [B,T], padded on the right; seqlens int32 [B], the lengths minus 1; total int32 [], which is T;
// last int64 [B], the index b*T+length-1; cos, sin [P,n/2], and those of further kinds of layers (see models.OfKind);
// the weights, qkv fused; the caches past_key.i and past_value.i [B,G,S,K]. Outputs: hidden [B,D], the normed state
// of the last tokens, and the caches, onto the inputs' buffers. Where K is not a multiple of 16, the caches have
// CacheWidth instead. Where Compute is of 16 bits, pos int64 [B*T,1] is an input too.
//
// CUDA in float32 has no operator for attention of prompts. There, pos and mask [T,T], which is Layer's, take the
// place of seqlens, total and the caches past_key.i and past_value.i, and present_key.i and present_value.i are the
// prompts' own keys and values [B,G,T,K], finite beyond a prompt's end. Layers with a window read band [T,T] in place
// of mask. Where the operator cannot turn the heads, pos is an input in float32 too.
func (a Architecture) Prefill() (models.Program, error) {
	d := decoding{a}
	if a.byProducts() {
		return d.build("prefill", "T", models.Direct, false, d.promptProducts)
	}
	return d.build("prefill", "T", models.Direct, true, d.groupQuery)
}

// decoding builds the parts of Prefill and Decode.
type decoding struct{ Architecture }

// groupQuery declares attention by ONNX Runtime's operator GroupQueryAttention, which turns the heads by the angles,
// too, where it can. Elsewhere they are turned before it, and the operator gets no angles. angles has those of each kind.
func (a decoding) groupQuery(g *graph.Graph, ids, x *graph.Node, angles []angle) attention {
	seqlens, total := g.Input(ports.CacheLengths, models.I32, graph.Dims("B")), g.Input(ports.CacheTotal, models.I32, graph.Dims())
	all := a.Heads + 2*a.KVHeads
	operator := func(layer int, qkv *graph.Node, past graph.Cache, by angle) (*graph.Node, graph.Cache) { // angle{}: no turn
		if a.cacheWidth() != a.HeadDim {
			qkv = a.padHeads(qkv, all, all*a.cacheWidth())
		}
		o, now := graph.GroupQueryAttention(graph.Rows(qkv, ids), past, seqlens, total, by.cos, by.sin,
			graph.Attention{Heads: a.Heads, KVHeads: a.KVHeads, Scale: a.scoreScale(), Cap: a.Block.AttentionCap, Window: a.kind(layer).Window})
		return a.cutHeads(o), now
	}
	// The operator would use 16-bit angles for 16-bit heads, so these are turned before it. So are
	// heads of which only a part is turned, since the zeros that pad a head change the part's place,
	// and those with a QueryScale, which multiplies turned queries.
	turnsWholeHeads := 2*len(a.kinds()[0].Frequencies) == a.HeadDim
	if a.compute() == models.F32 && turnsWholeHeads && a.Block.QueryScale == 0 {
		paddedAngles := make([]angle, len(angles))
		for i, x := range angles {
			paddedAngles[i] = x
			switch first := a.kinds().FirstWithAngles(i); {
			case x.cos == nil: // the kind does not turn
			case first < i: // padded once for all kinds that have them
				paddedAngles[i] = paddedAngles[first]
			default:
				paddedAngles[i] = angle{a.padLast(x.cos, a.cacheWidth()/2), a.padLast(x.sin, a.cacheWidth()/2)}
			}
		}
		return func(layer int, qkv *graph.Node, past graph.Cache) (*graph.Node, graph.Cache) {
			return operator(layer, qkv, past, paddedAngles[a.kindOf(layer)])
		}
	}
	pos := g.Input(ports.Positions, models.I64, graph.Dims(x.Shape()[0], 1))
	return func(layer int, qkv *graph.Node, past graph.Cache) (*graph.Node, graph.Cache) {
		if a.onHost() && a.Block.QueryScale != 0 {
			return operator(layer, a.turnAsTraining(layer, qkv, pos, angles), past, angle{}) // it has the bits of training's turn
		}
		parts := graph.Split(toFloat32(qkv), 1, (a.Heads+a.KVHeads)*a.HeadDim, a.KVHeads*a.HeadDim)
		qkv = graph.Concat(1, a.turn(layer, parts[0], pos, angles), parts[1])
		return operator(layer, a.toComputeType(qkv), past, angle{})
	}
}

// padHeads pads n heads x [N,n*K] to the cache's width, [N,sizes]. Zeros, which change no score, follow each half of
// a head, so that the rotary embedding, which pairs the halves, may come before or after.
func (a decoding) padHeads(x *graph.Node, n int, sizes ...int) *graph.Node {
	if a.cacheWidth() != a.HeadDim {
		x = a.padLast(graph.Reshape(x, -1, n*2, a.HeadDim/2), a.cacheWidth()/2)
	}
	return graph.Reshape(x, append([]int{-1}, sizes...)...)
}

// cutHeads removes the zeros that padHeads added to the queries' heads x: [N,H*K].
func (a decoding) cutHeads(x *graph.Node) *graph.Node {
	half := a.HeadDim / 2
	if a.cacheWidth() != a.HeadDim {
		g := x.Graph()
		x = graph.Slice(graph.Reshape(x, -1, a.Heads*2, a.cacheWidth()/2), g.Ints(0), g.Ints(int64(half)), 2, half)
	}
	return graph.Reshape(x, -1, a.Heads*a.HeadDim)
}

// Decode builds the graph that computes one more token for each row.
//
// Inputs: ids int64 [B,1]; seqlens int32 [B], the tokens cached before; total int32 [], the largest of them plus 1;
// cos, sin, weights and caches as for Prefill. Outputs: hidden [B,D] and the caches, onto the inputs' buffers.
// Attention is the operator GroupQueryAttention, which reads only the filled part of each row. Where it cannot turn
// the heads, pos int64 [B,1], the same as seqlens, is an input too.
//
// CUDA has no such operator in float32. There, pos, at int64 [B,G,3], where the new token's keys and values go: (b,
// g, pos), and places int64 [S], the numbers from 0 to S-1, take the place of seqlens and total, and the cache must
// hold finite numbers beyond pos, too.
//
// Only the CPU in float32 has another form than Direct: the others are for its matrix product.
func (a Architecture) Decode(form models.Form) (models.Program, error) {
	d := decoding{a}
	if a.compute() != models.F32 && form != models.Direct {
		return models.Program{}, fmt.Errorf("decoder: decoding in %v has only the direct form, not %q", a.Type, "decode"+form.Suffix())
	}
	attend := d.groupQuery
	if a.byProducts() {
		attend = d.tokenProducts
	}
	return d.build("decode"+form.Suffix(), 1, form, true, attend)
}

// tokenProducts declares attention of one new token of each row to its cache by products. Each kind of layers has its
// own angles, and each width of window its own mask.
func (a decoding) tokenProducts(g *graph.Graph, _, _ *graph.Node, angles []angle) attention {
	pos := g.Input(ports.Positions, models.I64, graph.Dims("B", 1))
	at := g.Input(ports.CachePlaces, models.I64, graph.Dims("B", a.KVHeads, 3))
	indices, masks := g.Input(ports.CacheIndices, models.I64, graph.Dims("S")), map[int]*graph.Node{}
	for _, k := range a.kinds() {
		if masks[k.Window] == nil {
			masks[k.Window] = a.maskAfter(pos, indices, k.Window)
		}
	}
	return func(layer int, qkv *graph.Node, past graph.Cache) (*graph.Node, graph.Cache) {
		hk, gk := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
		split := graph.Split(qkv, 1, hk+gk, gk)
		turned := graph.Split(a.turn(layer, split[0], pos, angles), 1, hk, gk)
		heads := func(x *graph.Node) *graph.Node { return graph.Reshape(x, -1, a.KVHeads, a.HeadDim) }
		now := graph.Cache{K: graph.ScatterRows(past.K, at, heads(turned[1])), V: graph.ScatterRows(past.V, at, heads(split[1]))}
		// The heads of a group are rows of one product with the group's keys.
		q := graph.Reshape(turned[0], -1, a.KVHeads, a.Heads/a.KVHeads, a.HeadDim)
		s := softCap(graph.MatMul(q, now.K, false, true, a.scoreScale()), a.Block.AttentionCap)
		o := graph.MatMul(graph.Softmax(graph.Add(s, masks[a.kind(layer).Window])), now.V, false, false, 1)
		return graph.Reshape(o, -1, hk), now
	}
}

// kindOf returns the number of a layer's kind.
func (a decoding) kindOf(layer int) int { return a.Geometry().Kind(layer) }

// turn applies a layer's rotary embedding, if it has one, and the QueryScale to the heads of
// queries and keys x [N,(H+G)*K].
func (a decoding) turn(layer int, x, pos *graph.Node, angles []angle) *graph.Node {
	if a.kind(layer).Turns() {
		by := angles[a.kindOf(layer)]
		x = graph.Rotary(x, pos, by.cos, by.sin, a.Heads+a.KVHeads)
	}
	if a.Block.QueryScale != 0 {
		parts := graph.Split(x, 1, a.Heads*a.HeadDim, a.KVHeads*a.HeadDim)
		x = graph.Concat(1, graph.Mul(parts[0], a.queryScale(pos)), parts[1])
	}
	return x
}

// turnAsTraining is turn for qkv [N,(H+2G)*K] in bfloat16 on a CPU, where keys are turned by an operator
// of ours, as in training, and queries that a QueryScale follows are not: the last bits of the two differ.
func (a decoding) turnAsTraining(layer int, qkv, pos *graph.Node, angles []angle) *graph.Node {
	parts := graph.Split(qkv, 1, a.Heads*a.HeadDim, a.KVHeads*a.HeadDim, a.KVHeads*a.HeadDim)
	q, k := toFloat32(parts[0]), toFloat32(parts[1])
	if a.kind(layer).Turns() {
		by := angles[a.kindOf(layer)]
		q, k = graph.Rotary(q, pos, by.cos, by.sin, a.Heads), graph.Rotary(k, pos, by.cos, by.sin, a.KVHeads)
	}
	return graph.Concat(1, a.toComputeType(graph.Mul(q, a.queryScale(pos))), a.toComputeType(k), parts[2])
}

// An attention builds the attention of a layer: from qkv [N,(H+2G)*K] and the cache, if there
// is one, to [N,H*K] and the cache with the new tokens.
type attention func(layer int, qkv *graph.Node, past graph.Cache) (*graph.Node, graph.Cache)

// A declareAttention declares the further inputs of a graph that its attention needs, and returns that attention.
// angles has those of each kind of layers, declared already.
type declareAttention func(g *graph.Graph, ids, x *graph.Node, angles []angle) attention

// declareAngles declares the angles of each kind of layers; those of a kind that does not turn are nil.
func (a decoding) declareAngles(g *graph.Graph) []angle {
	list := make([]angle, len(a.kinds()))
	for i, k := range a.kinds() {
		switch first := a.kinds().FirstWithAngles(i); {
		case first < i:
			list[i] = list[first]
		case i == 0 || k.Turns():
			list[i] = a.angles(g, i)
		}
		if !k.Turns() {
			list[i] = angle{}
		}
	}
	return list
}

// build builds the graph of Prefill, with "T" tokens of each row, or of Decode, with 1. Unless readsCache is set, its
// attention sees only the new tokens, and the layers' keys and values before are no inputs.
func (a decoding) build(name string, tokens any, form models.Form, readsCache bool, attend declareAttention) (models.Program, error) {
	p, err := graph.Build(name, func(g *graph.Graph) {
		a.setProvider(g)
		ids := g.Input(ports.TokenIDs, models.I64, graph.Dims("B", tokens))
		angles := a.declareAngles(g)
		x := graph.Reshape(a.embedding(g, ids), -1, a.Hidden)
		x = a.scaledEmbedding(x)
		attention := attend(g, ids, x, angles)
		rows := a.declareRowOps(g, ids, tokens != 1)
		for i := range a.Layers {
			x = a.decodeLayer(g, i, form, readsCache, x, attention, rows)
		}
		if tokens != 1 { // only what follows the last token of each prompt is asked for
			x = graph.Gather(x, g.Input(ports.LastTokens, models.I64, graph.Dims("B")))
		}
		g.Output(ports.Hidden, a.finalNorm(x, parameter(g, a.Names.Norm, models.F32, a.Hidden)))
	})
	if form != models.Direct {
		p.Options = wideOptions
	}
	return p, err
}

// decodeLayer is layer i from the stream x [N,D] to [N,D]. The first product of its mixer is one matrix for all its
// modules, and split only afterwards. rows gives the rowOps of a layer without attention.
func (a decoding) decodeLayer(g *graph.Graph, i int, form models.Form, readsCache bool, x *graph.Node, attend attention, rows func(int) rowOps) *graph.Node {
	d, n, kind := a.Hidden, a.Names, a.kind(i)
	m := a.mixer(kind)
	weights := layerWeights{a: a.Architecture, g: g, prefix: a.LayerPrefix(i), castAlready: map[string]*graph.Node{}}
	var before graph.Cache
	if kind.Mixer == models.Attention && readsCache {
		before = graph.Cache{K: past(g, a.state(i, models.Keys)), V: past(g, a.state(i, models.Values))}
	}
	inModule := module{m.in.name, m.in.rows()} // all modules of m.in as one matrix
	weights.castBase(d, inModule)              // all before the products: casts made later would run too early and stay in memory
	weights.castBase(m.out.inputWidth, m.out.modules...)
	weights.castBase(d, a.gateUp()...)
	weights.castBase(a.FFN, module{n.Down, d})
	h := a.toComputeType(weights.normed(x, n.InputNorm))
	var products *graph.Node // of h with all modules of m.in, side by side
	w, b := weights.matrixAndBias(inModule, d, m.bias)
	if len(a.adapted(a.adapterModules(m.in.name, m.in.modules))) > 0 {
		products = a.adaptedProduct(form, m.in, h, w, b, &weights)
	} else {
		products = product(form, h, w, b)
	}
	var o *graph.Node
	if kind.Mixer == models.Attention {
		o = a.cachedAttention(g, i, products, before, &weights, attend)
	} else {
		var sizes []int
		for _, p := range m.in.modules {
			sizes = append(sizes, p.rows)
		}
		o = a.mixByRows(kind, &weights, graph.Split(products, 1, sizes...), rows(i))
	}
	x = a.addProduct(form, x, o, m.out.modules[0], m.outBias, n.AfterMixerNorm, &weights)
	h = a.toComputeType(weights.normed(x, n.BeforeMLPNorm))
	return a.mlp(form, x, h, &weights)
}

// cachedAttention is attention of a layer for its product qkv, with norms and gates, and makes the cache with the new
// tokens an output, in the buffer of the cache before, which has no nodes where none is read.
func (a decoding) cachedAttention(g *graph.Graph, layer int, qkv *graph.Node, before graph.Cache, weights *layerWeights, attend attention) *graph.Node {
	hk, gk := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	var gate *graph.Node
	if a.Block.OutputGate {
		split := graph.Split(qkv, 1, 2*hk, 2*gk) // queries with their gates; keys and values
		var q *graph.Node
		q, gate = a.queriesAndGate(split[0])
		qkv = graph.Concat(1, q, split[1])
	}
	if a.Block.QKNorm { // in float32: attend casts what it has turned to the type of products, as Layer does
		q, k := weights.norm(a.Names.QNorm, a.normWidth(a.Heads)), weights.norm(a.Names.KNorm, a.normWidth(a.KVHeads))
		parts := graph.Split(toFloat32(qkv), 1, hk, gk, gk)
		qkv = graph.Concat(1, a.normHeads(parts[0], q), a.normHeads(parts[1], k), parts[2])
	}
	o, now := attend(layer, qkv, before)
	present(g, a.state(layer, models.Keys), now.K, before.K)
	present(g, a.state(layer, models.Values), now.V, before.V)
	return a.throughGate(o, gate)
}

// stateNames are what names of ports call the states.
var stateNames = map[models.Role]string{models.Keys: "key", models.Values: "value", models.Window: "window", models.Memory: "memory"}

// past declares a state of earlier tokens.
func past(g *graph.Graph, s models.State) *graph.Node {
	name := fmt.Sprintf("past_%s.%d", stateNames[s.Role], s.Layer)
	g.Use(name, s.Use)
	sizes := []any{"B"}
	for i, n := range s.Shape {
		if i == 1 && s.Grows() {
			sizes = append(sizes, "S")
		}
		sizes = append(sizes, n)
	}
	return g.Input(name, s.Type, graph.Dims(sizes...))
}

// present makes a state with the new tokens an output, onto the one before; that is nil without earlier tokens.
func present(g *graph.Graph, s models.State, now, before *graph.Node) {
	name := fmt.Sprintf("present_%s.%d", stateNames[s.Role], s.Layer)
	g.Use(name, s.Use)
	if before == nil {
		g.Output(name, now)
		return
	}
	g.OutputOnto(name, now, before.Name())
}

// addProduct is sum + the product of a module and x [N,in], or what the norm of that name makes of it; "" is no norm.
func (a decoding) addProduct(form models.Form, sum, x *graph.Node, m module, bias bool, norm string, weights *layerWeights) *graph.Node {
	if form == models.Direct {
		_, sum = weights.addProduct(sum, x, m, bias, norm)
		return sum
	}
	w, b := weights.matrixAndBias(m, x.Shape()[1].N, bias)
	low := weights.lowRank(form, m.name, []module{m}, x)[0]
	return weights.addNormed(sum, transposedBack(form, weights.withAdapter(form, m, low, orientedProduct(form, x, w, b))), norm)
}

// mlp is sum + down(silu(gate) * up) for the normed stream h; in Wide the intermediate values
// stay transposed. gate and up are adjacent, but a product of both would have to be split.
func (a decoding) mlp(form models.Form, sum, h *graph.Node, weights *layerWeights) *graph.Node {
	gateUp, last := a.gateUp(), module{a.Names.Down, a.Hidden}
	gate, gateBias := weights.matrixAndBias(gateUp[0], a.Hidden, a.Block.MLPBias)
	up, upBias := weights.matrixAndBias(gateUp[1], a.Hidden, a.Block.MLPBias)
	w, b := weights.matrixAndBias(last, a.FFN, a.Block.MLPBias)
	low := weights.lowRank(form, a.Names.GateUp, gateUp, h)
	inner := a.gated(weights.withAdapter(form, gateUp[0], low[0], orientedProduct(form, h, gate, gateBias)),
		weights.withAdapter(form, gateUp[1], low[1], orientedProduct(form, h, up, upBias)))
	if form == models.Direct {
		_, sum = weights.addProductBy(sum, inner, last, w, b, a.Names.AfterMLPNorm)
		return sum
	}
	if b != nil { // a column, as inner is transposed
		b = graph.Reshape(b, -1, 1)
	}
	lowDown := weights.lowRankBy(form, last.name, []module{last}, a.FFN, func(a *graph.Node) *graph.Node { return graph.Gemm(a, inner, nil, false, false) })[0]
	return weights.addNormed(sum, transposedBack(form, weights.withAdapter(form, last, lowDown, graph.Gemm(w, inner, b, false, false))), a.Names.AfterMLPNorm)
}
