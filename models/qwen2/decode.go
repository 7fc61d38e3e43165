package qwen2

import (
	"fmt"
	"math"

	"onering/models"
	"onering/models/graph"
	"onering/models/onnx"
)

// wideOptions keeps the runtime from folding the transpose of Wide back into
// the product, which would undo it.
var wideOptions = map[string]string{"optimization.disable_specified_optimizers": "GemmTransposeFusion"}

// product is x w^T + b for x [N,in], w [out,in], b [out] or nil, in any form.
func product(form models.Form, x, w, b *graph.Node) *graph.Node {
	if form == models.Direct {
		return graph.Linear(x, w, b)
	}
	return graph.Transpose(wide(form, x, w, b), 1, 0)
}

// wide is the transpose of product: [out,N].
func wide(form models.Form, x, w, b *graph.Node) *graph.Node {
	if b != nil {
		b = graph.Reshape(b, -1, 1)
	}
	out, in := w.Shape()[0].N, w.Shape()[1].N
	if form == models.Wide || out%2 != 0 {
		return graph.Gemm(w, x, b, false, true)
	}
	// [w0 w1] times [x 0] and [0 x] are w0 x and w1 x, in the order of [out,N].
	beside := x.Graph().Floats(graph.Dims(2, 1, 2, 1), 1, 0, 0, 1)
	two := graph.Reshape(graph.Mul(graph.Reshape(x, 1, -1, 1, in), beside), -1, 2*in)
	y := graph.Reshape(graph.Gemm(graph.Reshape(w, out/2, 2*in), two, nil, false, true), out, -1)
	if b != nil {
		y = graph.Add(y, b)
	}
	return y
}

// Prefill builds the graph that computes prompts from their first token.
//
// Inputs: ids int64 [B,T], padded on the right; seqlens int32 [B], the lengths
// less 1; total int32 [], which is T; last int64 [B], the index b*T+length-1;
// cos, sin [P,K/2]; the weights, qkv fused; the caches
// past_key.i and past_value.i [B,G,S,K]. Outputs: hidden [B,D], the normed
// state of the last tokens, and the caches, onto the inputs' buffers. Where K
// is no multiple of 16, the caches have CacheWidth instead. There, and where
// Compute is of 16 bits, pos int64 [B*T,1] is an input too.
//
// In float32 for CUDA there is no operator for it: pos and mask [T,T], that of
// Layer, come in place of seqlens, total and the caches past_key.i and
// past_value.i, and present_key.i and present_value.i are the prompts' own keys
// and values [B,G,T,K], finite beyond a prompt's end.
func (c Config) Prefill() (models.Program, error) {
	if c.byProducts() {
		return c.decoder("prefill", "T", models.Direct, false, c.promptProducts)
	}
	return c.decoder("prefill", "T", models.Direct, true, c.groupQuery)
}

// groupQuery is attention by the contrib operator.
func (c Config) groupQuery(g *graph.Graph, ids, x, cos, sin *graph.Node) attention {
	seqlens, total := g.Input("seqlens", onnx.Int32, graph.Dims("B")), g.Input("total", onnx.Int32, graph.Dims())
	wide, all, scale := c.Geometry().CacheWidth, c.Heads+2*c.KVHeads, 1/math.Sqrt(float64(c.HeadDim))
	if wide == c.HeadDim && c.compute() == models.F32 {
		return func(qkv *graph.Node, past graph.Cache) (*graph.Node, graph.Cache) {
			o, now := graph.GroupQueryAttention(graph.Rows(qkv, ids), past, seqlens, total, cos, sin, c.Heads, c.KVHeads, scale)
			return graph.Reshape(o, -1, c.Heads*c.HeadDim), now
		}
	}
	// The operator would turn 16-bit heads by 16-bit angles, and wants heads of
	// a multiple of 16: they are turned before it, and padded with zeros, which
	// change no score.
	pos := g.Input("pos", onnx.Int64, graph.Dims(x.Shape()[0], 1))
	return func(qkv *graph.Node, past graph.Cache) (*graph.Node, graph.Cache) {
		parts := graph.Split(widen(qkv), 1, (c.Heads+c.KVHeads)*c.HeadDim, c.KVHeads*c.HeadDim)
		qkv = graph.Concat(1, graph.Rotary(parts[0], pos, cos, sin), parts[1])
		if wide != c.HeadDim {
			qkv = graph.Reshape(c.padLast(graph.Reshape(qkv, -1, all, c.HeadDim), wide), -1, all*wide)
		}
		o, now := graph.GroupQueryAttention(graph.Rows(c.narrow(qkv), ids), past, seqlens, total, nil, nil, c.Heads, c.KVHeads, scale)
		if wide != c.HeadDim {
			o = graph.Slice(graph.Reshape(o, -1, c.Heads, wide), g.Ints(0), g.Ints(int64(c.HeadDim)), 2, c.HeadDim)
		}
		return graph.Reshape(o, -1, c.Heads*c.HeadDim), now
	}
}

// Decode builds the graph that computes one more token for each row.
//
// Inputs: ids int64 [B,1]; pos int64 [B,1], the tokens cached before; at int64
// [B,G,3], where the new token's keys and values go: (b, g, pos); mask
// [B,1,1,S], 0 for the places up to pos and very negative beyond, where the
// cache must hold finite numbers; cos, sin, weights and caches as for Prefill.
// Outputs: hidden [B,D] and the caches, onto the inputs' buffers.
//
// For CUDA the mask is not an input of B*S numbers that change with every token
// but follows from pos and places int64 [S], the numbers from 0 to S-1.
//
// Where Compute is of 16 bits attention is the contrib operator's, which has a
// fast kernel on GPUs: in place of at and mask there are seqlens int32 [B], the
// tokens cached before as in pos, and total int32 [], the largest of them plus
// 1. There is only the Direct form: the others are for a CPU's matrix product.
func (c Config) Decode(form models.Form) (models.Program, error) {
	if c.compute() != models.F32 {
		if form != models.Direct {
			return models.Program{}, fmt.Errorf("qwen2: decoding in %v has only the direct form, not %q", c.Compute, "decode"+form.Suffix())
		}
		return c.decoder("decode", 1, form, true, c.groupQuery)
	}
	p, err := c.decoder("decode"+form.Suffix(), 1, form, true, func(g *graph.Graph, ids, x *graph.Node, cos, sin *graph.Node) attention {
		geometry := c.Geometry()
		pos := g.Input("pos", onnx.Int64, graph.Dims("B", 1))
		at := g.Input("at", onnx.Int64, graph.Dims("B", c.KVHeads, 3))
		var mask *graph.Node // [B,1,1,S]
		if c.CUDA {
			mask = maskAfter(pos, g.Input("places", onnx.Int64, graph.Dims("S")))
		} else {
			mask = g.Float("mask", "B", 1, 1, "S")
		}
		heads := func(x *graph.Node, sizes ...int) *graph.Node { // [B,n*K] -> [B,...,CacheWidth]
			x = graph.Reshape(x, append(append([]int{-1}, sizes...), c.HeadDim)...)
			if geometry.CacheWidth != c.HeadDim {
				x = c.padLast(x, geometry.CacheWidth)
			}
			return x
		}
		return func(qkv *graph.Node, past graph.Cache) (*graph.Node, graph.Cache) {
			hk, gk := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
			parts := graph.Split(qkv, 1, hk+gk, gk)
			turned := graph.Split(graph.Rotary(parts[0], pos, cos, sin), 1, hk, gk)
			now := graph.Cache{
				K: graph.ScatterRows(past.K, at, heads(turned[1], c.KVHeads)),
				V: graph.ScatterRows(past.V, at, heads(parts[1], c.KVHeads)),
			}
			// The heads of a group are rows of one product with their keys. The
			// contrib operator takes them one by one, which is three to four
			// times slower.
			q := heads(turned[0], c.KVHeads, c.Heads/c.KVHeads)
			s := graph.MatMul(q, now.K, false, true, 1/math.Sqrt(float64(c.HeadDim)))
			o := graph.MatMul(graph.Softmax(graph.Add(s, mask)), now.V, false, false, 1)
			if geometry.CacheWidth != c.HeadDim {
				o = graph.Slice(o, g.Ints(0), g.Ints(int64(c.HeadDim)), 3, c.HeadDim)
			}
			return graph.Reshape(o, -1, hk), now
		}
	})
	if form != models.Direct {
		p.Options = wideOptions
	}
	return p, err
}

// An attention is one layer's: from qkv [N,(H+2G)*K] and the cache, if there is
// one, to [N,H*K] and the cache with the new tokens.
type attention func(qkv *graph.Node, past graph.Cache) (*graph.Node, graph.Cache)

// decoder builds a graph over the cache, or one that has only new tokens where
// there is no past; attend declares its further inputs.
func (c Config) decoder(name string, tokens any, form models.Form, past bool, attend func(g *graph.Graph, ids, x, cos, sin *graph.Node) attention) (models.Program, error) {
	if err := c.checkCompute(); err != nil {
		return models.Program{}, err
	}
	return graph.Build(name, func(g *graph.Graph) {
		d, f, hk, gk := c.HiddenSize, c.FFN, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
		geometry := c.Geometry()
		ids := g.Input("ids", onnx.Int64, graph.Dims("B", tokens))
		cos, sin := g.Float("cos", "P", c.HeadDim/2), g.Float("sin", "P", c.HeadDim/2)
		x := graph.Reshape(graph.Gather(g.Float(geometry.Embedding, c.Vocab, d), ids), -1, d)
		attention := attend(g, ids, x, cos, sin)
		for i := range c.Layers {
			weight := func(name string, sizes ...any) *graph.Node {
				return c.weight(g, name, c.LayerPrefix(i)+name, sizes...)
			}
			cache := func(name string) *graph.Node {
				return g.Input(fmt.Sprintf("past_%s.%d", name, i), c.elem(), graph.Dims("B", c.KVHeads, "S", geometry.CacheWidth))
			}
			var before graph.Cache
			var onKey, onValue string
			if past {
				before = graph.Cache{K: cache("key"), V: cache("value")}
				onKey, onValue = before.K.Name(), before.V.Name()
			}
			h := c.narrow(graph.RMSNorm(x, weight(inputNorm, d), c.RMSEps))
			o, now := attention(product(form, h, weight(qkvWeight, hk+2*gk, d), weight(qkvBias, hk+2*gk)), before)
			g.OutputOnto(fmt.Sprintf("present_key.%d", i), now.K, onKey)
			g.OutputOnto(fmt.Sprintf("present_value.%d", i), now.V, onValue)
			x = c.onto(form, x, o, weight(oWeight, d, hk))
			h = c.narrow(graph.RMSNorm(x, weight(postNorm, d), c.RMSEps))
			x = c.mlp(form, x, h, weight(gateWt, f, d), weight(upWt, f, d), weight(downWt, d, f))
		}
		if tokens != 1 {
			x = graph.Gather(x, g.Input("last", onnx.Int64, graph.Dims("B")))
		}
		g.Output("hidden", graph.RMSNorm(x, g.Float(geometry.Norm, d), c.RMSEps))
	})
}

// onto is sum + x w^T.
func (c Config) onto(form models.Form, sum, x, w *graph.Node) *graph.Node {
	if form == models.Direct {
		return c.plus(sum, x, w)
	}
	return graph.Add(sum, product(form, x, w, nil))
}

// mlp is sum + down(silu(gate) * up); in the wide forms what is between stays
// transposed. gate and up lie one behind the other, but a product of both would
// have to be split.
func (c Config) mlp(form models.Form, sum, h, gate, up, down *graph.Node) *graph.Node {
	if form == models.Direct {
		return c.onto(form, sum, graph.SwiGLU(graph.Linear(h, gate, nil), graph.Linear(h, up, nil)), down)
	}
	inner := graph.SwiGLU(wide(form, h, gate, nil), wide(form, h, up, nil))
	return graph.Add(sum, graph.Transpose(graph.Gemm(down, inner, nil, false, false), 1, 0))
}

// Sample builds the graph that chooses a token for each row.
//
// Inputs: hidden [B,D]; the head [V,D]; inv_temperature []. Outputs: next
// int64 [B], logp and entropy [B], both of softmax(logits*inv_temperature)
// over the whole vocabulary. Draw and Filter take uniforms float32 [B]: next
// is the first id whose cumulative probability exceeds it. Filter takes also k
// int64 [1], how many of the largest to look at; top_p []; renormalize [], 1
// where k is a limit of its own, so that top_p counts within it, else 0. Its
// output short [B] is 1 where the k largest hold less than top_p: then k was
// too small and the row must be sampled again with a larger one. Tokens as
// probable as the last one kept are all kept.
func (c Config) Sample(choice models.Choice, form models.Form) (models.Program, error) {
	name := [...]string{models.Draw: "sample.draw", models.Filter: "sample.filter", models.Greedy: "sample.greedy"}[choice]
	p, err := graph.Build(name, func(g *graph.Graph) {
		hidden := g.Float("hidden", "B", c.HiddenSize)
		head := g.Float(c.Geometry().Head, c.Vocab, c.HiddenSize)
		logits := product(form, hidden, head, nil)
		scaled := graph.Mul(logits, g.Float("inv_temperature"))
		top := c.largest(scaled)
		z := graph.Sub(scaled, top)
		e := graph.Exp(z)
		total := graph.ReduceSum(e, -1)
		// The float32 logarithm of a row depends on how many rows there are.
		logTotal := graph.Cast(graph.Log(graph.Cast(total, onnx.Double)), onnx.Float)

		var next *graph.Node // [B,1]
		switch choice {
		case models.Greedy:
			next = graph.Reshape(graph.ArgMax(logits), -1, 1)
		case models.Draw:
			next = c.draw(e, g.Float("uniforms", "B"))
		case models.Filter:
			kept, short := c.filter(e, total, g.Input("k", onnx.Int64, graph.Dims(1)), g.Float("top_p"), g.Float("renormalize"))
			g.Output("short", graph.Reshape(short, -1))
			next = c.draw(kept, g.Float("uniforms", "B"))
		}
		g.Output("next", graph.Reshape(next, -1))
		g.Output("logp", graph.Sub(graph.GatherRows(z, next), graph.Reshape(logTotal, -1)))
		mean := graph.Div(graph.ReduceSum(graph.Mul(e, z), -1), total)
		g.Output("entropy", graph.Reshape(graph.Sub(logTotal, mean), -1))
	})
	if form != models.Direct {
		p.Options = wideOptions
	}
	return p, err
}

// filter zeroes the unnormalized probabilities e [B,V] outside the top k and
// top p.
func (c Config) filter(e, total, k, topP, renormalize *graph.Node) (kept, short *graph.Node) {
	g := e.Graph()
	largest, _ := graph.TopK(e, k, "k")
	held := graph.ReduceSum(largest, -1)
	limit := graph.Mul(topP, graph.Where(graph.GreaterOrEqual(renormalize, g.Scalar(1)), held, total))
	before := graph.CumSum(largest, -1, true)
	// The first token is kept whatever top p is; what is not kept must not
	// lower the smallest kept probability.
	within := graph.Where(graph.GreaterOrEqual(before, limit), c.foremost(largest), largest)
	smallest := graph.Neg(c.largest(graph.Neg(within)))
	kept = graph.Where(graph.GreaterOrEqual(e, smallest), e, g.Scalar(0))
	return kept, graph.Where(graph.GreaterOrEqual(held, limit), g.Scalar(0), g.Scalar(1))
}

// draw inverts the cumulative distribution of unnormalized probabilities
// e [B,V] at uniforms [B]: next [B,1] is the first id whose cumulative sum
// exceeds u times the total. Sums over blocks and then inside one block are
// taken in float64: a running float32 sum over a large vocabulary is wrong too
// often.
func (c Config) draw(e, uniforms *graph.Node) *graph.Node {
	g := e.Graph()
	width := blockWidth(c.Vocab)
	blocks := (c.Vocab + width - 1) / width
	if pad := blocks*width - c.Vocab; pad > 0 {
		e = c.padLast(e, blocks*width)
	}
	cells := graph.Reshape(e, -1, blocks, width)
	u := graph.Reshape(graph.Cast(uniforms, onnx.Double), -1, 1)

	sums := graph.Cast(graph.Reshape(graph.ReduceSum(cells, -1), -1, blocks), onnx.Double)
	running := graph.CumSum(sums, -1, false)
	block, rest := c.first(running, graph.Mul(u, c.total(running)))
	inside := graph.Cast(graph.GatherRows(cells, block), onnx.Double)
	token, _ := c.first(graph.CumSum(inside, -1, false), rest)
	return graph.Add(graph.Mul(block, g.Ints(int64(width))), token)
}

// first returns the index [B,1] of the first running sum [B,n] that exceeds a
// target, and the target less the running sum before. An index that brings the
// running sum to its end is never passed: rounding can bring the target there,
// but what follows has no mass. Nor is the rest ever under 0, where it would
// fall on an index of no mass: it is a difference of numbers that were compared.
func (c Config) first(running, target *graph.Node) (index, rest *graph.Node) {
	total := c.total(running)
	bounds := graph.Where(graph.GreaterOrEqual(running, total), running.Graph().Double(math.MaxFloat64), running)
	passed := graph.Cast(graph.GreaterOrEqual(target, bounds), onnx.Double)
	index = graph.Cast(graph.ReduceSum(passed, -1), onnx.Int64)
	return index, graph.Sub(target, c.before(running, passed, index))
}

// blockWidth is the largest divisor of vocab in [128, 1024], or 512 where
// there is none (the rest is padded); small vocabularies are one block.
func blockWidth(vocab int) int {
	if vocab <= 1024 {
		return vocab
	}
	for w := 1024; w >= 128; w-- {
		if vocab%w == 0 {
			return w
		}
	}
	return 512
}
