package graphtest

import (
	"math"
	"slices"

	"onering/models"
	"onering/models/onnx"
)

// rmsNormalization divides each line of the last axis by its root mean square and multiplies it by the weights.
func rmsNormalization(c *call) []Tensor {
	in := c.operands(2, 2)
	x, w := *in[0], *in[1]
	w.checkType(x.Type)
	eps, width := c.float("epsilon", 1e-5), x.Dims[len(x.Dims)-1]
	if c.int("axis", -1) != -1 || !slices.Equal(w.Dims, []int{width}) {
		fail("only the last axis")
	}
	out := zeros(x.Type, x.Dims)
	x.eachLine(len(x.Dims)-1, func(at []int) {
		square := 0.0
		for _, o := range at {
			square += x.Data[o] * x.Data[o]
		}
		r := 1 / math.Sqrt(square/float64(width)+eps)
		for i, o := range at {
			out.Data[o] = x.Data[o] * r * w.Data[i]
		}
	})
	return []Tensor{out}
}

func quickGelu(c *call) []Tensor {
	x := c.operands(1, 1)[0]
	x.checkType(floating...)
	alpha := c.float("alpha", 1.702)
	return []Tensor{x.mapped(func(v float64) float64 { return v * sigmoid(alpha*v) })}
}

func gelu(c *call) []Tensor {
	x := c.operands(1, 1)[0]
	x.checkType(floating...)
	if attribute(c, "approximate", "none") != "tanh" {
		fail("only the approximation by tanh")
	}
	root, cubic := float64(float32(math.Sqrt(2/math.Pi))), float64(float32(0.044715)) // as kernels have them
	return []Tensor{x.mapped(func(v float64) float64 { return v / 2 * (1 + math.Tanh(root*(v+cubic*v*v*v))) })}
}

// rotate rotates a head by the angles of a position; elements of its first half are paired with those of the second.
func rotate(head []float64, cos, sin Tensor, pos int) {
	half := cos.Dims[1]
	if pos < 0 || pos >= cos.Dims[0] {
		fail("position %d, there are angles for %d", pos, cos.Dims[0])
	}
	co, si := cos.Row(pos), sin.Row(pos)
	for i := range half {
		a, b := head[i], head[half+i]
		head[i], head[half+i] = a*co[i]-b*si[i], b*co[i]+a*si[i]
	}
}

// rotaryEmbedding turns each head by its token's position: whole heads, as wide as the angles say, or their beginnings,
// of rotary_embedding_dim elements, where the number of heads is stated.
func rotaryEmbedding(c *call) []Tensor {
	in := c.operands(4, 4)
	x, pos, cos, sin := in[0].Clone(), *in[1], *in[2], *in[3]
	pos.checkType(models.I64)
	cos.checkType(x.Type)
	sin.checkType(x.Type)
	headWidth := 2 * cos.Dims[1]
	if n := c.int("rotary_embedding_dim", 0); n > 0 { // a part of each head
		if n != headWidth {
			fail("%d elements of a head are turned, there are angles for %d", n, headWidth)
		}
		headWidth = x.Dims[2] / c.int("num_heads", 0)
	}
	if len(x.Dims) != 3 || !slices.Equal(pos.Dims, x.Dims[:2]) || x.Dims[2]%headWidth != 0 || !slices.Equal(cos.Dims, sin.Dims) {
		fail("want x [B,T,heads*K], positions [B,T] and angles [P,K/2]")
	}
	// ONNX Runtime refuses this even if the positions are in range.
	if x.Dims[1] > cos.Dims[0] {
		fail("rows of %d tokens, there are angles for %d", x.Dims[1], cos.Dims[0])
	}
	for i, p := range pos.ints() {
		for row := x.Data[i*x.Dims[2] : (i+1)*x.Dims[2]]; len(row) > 0; row = row[headWidth:] {
			rotate(row[:2*cos.Dims[1]], cos, sin, p)
		}
	}
	return []Tensor{x}
}

// groupQueryAttention takes packed queries, keys and values [B,T,(H+2G)*K], the cache [B,G,S,K] and, for row b,
// seqlens[b] = length - 1 where length includes this call's tokens. total = T means a first prompt, padded on the
// right; otherwise the T tokens follow those in the cache. It returns the attention and the cache with the tokens.
// The result for padding is unspecified, so NaN here.
func groupQueryAttention(c *call) []Tensor {
	in := c.operands(1, 9)
	if in[1] != nil || in[2] != nil || slices.Contains(in[3:7], nil) {
		fail("only packed queries, keys and values, with a cache")
	}
	qkv, pastK, pastV, seqlens, total := in[0].Clone(), in[3], in[4], *in[5], *in[6]
	heads, groups, rotary := c.int("num_heads", 0), c.int("kv_num_heads", 0), c.flag("do_rotary")
	if len(qkv.Dims) != 3 || heads%groups != 0 || rotary != (in[7] != nil) || rotary != (in[8] != nil) { // cosines, sines
		fail("%d heads, %d key heads, rotary %v", heads, groups, rotary)
	}
	B, T, all := qkv.Dims[0], qkv.Dims[1], heads+2*groups
	K := qkv.Dims[2] / all
	if K%16 != 0 || rotary && in[7].Dims[1] != K/2 { // ONNX Runtime's own limits
		fail("heads of %d", K)
	}
	S := pastK.Dims[2]
	if want := []int{B, groups, S, K}; !slices.Equal(pastK.Dims, want) || !slices.Equal(pastV.Dims, want) {
		fail("cache %v and %v, want %v", pastK, pastV, want)
	}
	seqlens.checkType(models.I32)
	total.checkType(models.I32)
	if !slices.Equal(seqlens.Dims, []int{B}) || len(total.Data) != 1 {
		fail("seqlens %v, total %v", seqlens, total)
	}
	group := queryGroup{heads: heads, groups: groups, width: K, scale: c.float("scale", 1/math.Sqrt(float64(K))),
		window: c.int("local_window_size", -1), cap: c.float("softcap", 0)}
	first := total.ints()[0] == T
	if !first && T > 1 && B > 1 {
		fail("%d more tokens for %d rows", T, B)
	}
	keys, values, out := pastK.Clone(), pastV.Clone(), zeros(qkv.Type, []int{B, T, heads * K})
	for b := range B {
		length := seqlens.ints()[b] + 1
		start, tokens := length-T, T // the place of the first token, and how many are no padding
		if first {
			start, tokens = 0, length
		}
		if start < 0 || length > S || length > total.ints()[0] {
			fail("row %d: length %d of total %d, %d tokens, cache %d", b, length, total.ints()[0], T, S)
		}
		for t := range T {
			q := group
			q.at, q.row = start+t, qkv.Row(b)[t*all*K:(t+1)*all*K]
			q.keys = func(g, at int) []float64 { return keys.Data[((b*groups+g)*S+at)*K:][:K] }
			q.values = func(g, at int) []float64 { return values.Data[((b*groups+g)*S+at)*K:][:K] }
			out := out.Row(b)[t*heads*K : (t+1)*heads*K]
			if t >= tokens {
				q.pad(out, start+t < S) // where the cache ends there is no place for it
				continue
			}
			if rotary {
				for h := range heads + groups {
					rotate(q.head(h), *in[7], *in[8], q.at)
				}
			}
			q.attend(out)
		}
	}
	return []Tensor{out, keys, values}
}

// linearAttention is the gated delta rule with a head of keys for each head of values. For each token a head's state
// [K,V] decays by e^decay, moves by beta towards having v at the key, and is read at the query.
func linearAttention(c *call) []Tensor {
	in := c.operands(6, 6)
	q, k, v, state, decay, beta := in[0], in[1], in[2], in[3].Clone(), in[4], in[5]
	heads := c.int("kv_num_heads", 0)
	if rule := attribute(c, "update_rule", ""); rule != "gated_delta" || c.int("q_num_heads", 0) != heads || c.float("scale", 0) != 1 {
		fail("only gated_delta, not scaled, with as many heads of queries as of keys, not %q", rule)
	}
	B, T, K, V := v.Dims[0], v.Dims[1], k.Dims[2]/heads, v.Dims[2]/heads
	out := zeros(v.Type, v.Dims)
	for at := range B * T * heads {
		b, h := at/(T*heads), at%heads
		s, key, query := state.Data[(b*heads+h)*K*V:][:K*V], k.Data[at*K:][:K], q.Data[at*K:][:K]
		for j := range V {
			recalled := 0.0
			for i, x := range key {
				s[i*V+j] *= math.Exp(decay.Data[at])
				recalled += s[i*V+j] * x
			}
			update := beta.Data[at] * (v.Data[at*V+j] - recalled)
			for i, x := range key {
				s[i*V+j] += x * update
				out.Data[at*V+j] += s[i*V+j] * query[i]
			}
		}
	}
	return []Tensor{out, state}
}

// A queryGroup is one token of GroupQueryAttention: its packed queries, keys and
// values, and the cache of its row.
type queryGroup struct {
	heads, groups, width int
	at                   int // the token's place in the cache
	scale                float64
	window               int     // how many keys a token sees, its own among them; -1 for all
	cap                  float64 // bounds the scores smoothly; 0 for none
	row                  []float64
	keys, values         func(g, at int) []float64 // of a group at a place in the cache
}

// head returns head h of the token: first come the queries, then the keys, then the values.
func (q queryGroup) head(h int) []float64 { return q.row[h*q.width : (h+1)*q.width] }

// pad sets the outputs of a token beyond the end of its prompt to NaN, since no reader may depend on them.
func (q queryGroup) pad(out []float64, inCache bool) {
	fillNaN(out)
	for g := range q.groups {
		if inCache {
			fillNaN(q.keys(g, q.at))
			fillNaN(q.values(g, q.at))
		}
	}
}

// attend appends the token's keys and values to the cache and computes its attention. The heads of its row are those of
// queries, of keys and of values, in this order.
func (q queryGroup) attend(out []float64) {
	for g := range q.groups {
		copy(q.keys(g, q.at), q.head(q.heads+g))
		copy(q.values(g, q.at), q.head(q.heads+q.groups+g))
	}
	for h := range q.heads {
		g := h / (q.heads / q.groups)
		scores := Zeros(1, q.at+1)
		for s := range scores.Data {
			for i, x := range q.head(h) {
				scores.Data[s] += q.scale * x * q.keys(g, s)[i]
			}
			if q.cap > 0 {
				scores.Data[s] = q.cap * math.Tanh(scores.Data[s]/q.cap)
			}
			if q.window > 0 && s <= q.at-q.window {
				scores.Data[s] = math.Inf(-1)
			}
		}
		p := softmax(&call{in: []*Tensor{&scores}, readAttributes: map[string]bool{}})[0] // the operator
		for s, w := range p.Data {
			for i, v := range q.values(g, s) {
				out[h*q.width+i] += w * v
			}
		}
	}
}

func fillNaN(v []float64) {
	for i := range v {
		v[i] = math.NaN()
	}
}

// scan runs the body once for each element of the first axis of the inputs behind the states, from its end where the
// direction is 1, and stacks the outputs behind the states in the same way. A state goes from one run to the next.
func scan(c *call) []Tensor {
	body := attribute(c, "body", onnx.Graph{})
	inputs := c.int("num_scan_inputs", 0)
	states := len(c.in) - inputs
	if inputs < 1 || states < 0 || len(body.Inputs) != len(c.in) || len(body.Outputs) < states {
		fail("%d inputs of which %d are scanned, the body has %d", len(c.in), inputs, len(body.Inputs))
	}
	steps := c.in[states].Dims[0]
	directions := func(name string, n int) []int64 { return attribute(c, name, make([]int64, n)) } // forwards if not stated
	inputDirections, outputDirections := directions("scan_input_directions", inputs), directions("scan_output_directions", len(body.Outputs)-states)
	out, stacked := make([]Tensor, len(body.Outputs)), make([][]Tensor, len(body.Outputs)-states)
	for i := range states {
		out[i] = *c.in[i]
	}
	for i := range stacked {
		stacked[i] = make([]Tensor, steps)
	}
	elementOf := func(directions []int64, i, step int) int {
		if directions[i] == 1 {
			return steps - 1 - step
		}
		return step
	}
	for step := range steps {
		values := make(map[string]Tensor)
		for i, v := range body.Inputs {
			if i < states {
				values[v.Name] = out[i]
				continue
			}
			x := c.in[i].part(0, elementOf(inputDirections, i-states, step), 1)
			x.Dims = x.Dims[1:]
			values[v.Name] = x
		}
		for _, n := range body.Nodes {
			for i, t := range run(n, values) {
				defineOnce(values, n.Outputs[i], t)
			}
		}
		for i, v := range body.Outputs {
			if i < states {
				out[i] = values[v.Name]
			} else {
				stacked[i-states][elementOf(outputDirections, i-states, step)] = values[v.Name]
			}
		}
	}
	for i, p := range stacked {
		x := Tensor{p[0].Type, append([]int{steps}, p[0].Dims...), nil}
		for _, t := range p {
			x.Data = append(x.Data, t.Data...)
		}
		out[states+i] = x
	}
	return out
}
