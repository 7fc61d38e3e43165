package decoder_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/decoder"
)

// weights makes random weights of a whole model, by Hugging Face's names.
func weights(c decoder.Architecture, r *rand.Rand) map[string]graphtest.Tensor {
	w := make(map[string]graphtest.Tensor)
	layout, n := c.Layout(), c.Names
	add := func(name string) {
		place, ok := layout.Find(name)
		if _, drawn := w[name]; !ok || drawn {
			return
		}
		x := graphtest.Normal(r, place.Shape...)
		for i := range x.Data {
			x.Data[i] *= 0.4
		}
		w[name] = x
	}
	// The bounds of the tests of precision were found with these draws.
	add(n.Embedding)
	add(n.Norm)
	for i := range c.Layers {
		for _, name := range []string{n.InputNorm, n.Q + ".weight", n.Q + ".bias", n.K + ".weight", n.K + ".bias", n.V + ".weight", n.V + ".bias", n.O + ".weight",
			n.BeforeMLPNorm, n.Gate + ".weight", n.Up + ".weight", n.Down + ".weight"} {
			add(c.LayerPrefix(i) + name)
		}
	}
	for _, name := range layout.Names() {
		add(name)
	}
	return w
}

// reference is a decoder written out for one sequence, in plain loops: the normed hidden
// state of each token. Biases and norms count if the weights have them.
func reference(c decoder.Architecture, w map[string]graphtest.Tensor, ids []int) [][]float64 {
	norm := func(x []float64, weight string) []float64 {
		square := 0.0
		for _, v := range x {
			square += v * v
		}
		// The graphs hold epsilon in float32.
		r := 1 / math.Sqrt(square/float64(len(x))+float64(float32(c.RMSEps)))
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = v * r * w[weight].Data[i]
		}
		return out
	}
	linear := func(x []float64, weight string) []float64 {
		m := w[weight+".weight"]
		out := make([]float64, m.Dims[0])
		for i := range out {
			for j, v := range x {
				out[i] += m.Row(i)[j] * v
			}
			if b, ok := w[weight+".bias"]; ok {
				out[i] += b.Data[i]
			}
		}
		return out
	}
	turn := func(x []float64, pos int) {
		half := c.HeadDim / 2
		for i := range half {
			sin, cos := math.Sincos(float64(pos) * frequency(c, i))
			a, b := x[i], x[i+half]
			x[i], x[i+half] = a*cos-b*sin, a*sin+b*cos
		}
	}
	// heads norms and turns each head.
	heads := func(x []float64, weight string, layer, pos int) {
		for at := 0; at < len(x); at += c.HeadDim {
			head := x[at : at+c.HeadDim]
			if _, ok := w[weight]; ok {
				copy(head, norm(head, weight))
			}
			if c.KindOf == nil || c.KindOf[layer] == 0 {
				turn(head, pos)
			}
		}
	}
	n := c.Names
	stream := make([][]float64, len(ids))
	for t, id := range ids {
		stream[t] = append([]float64{}, w[n.Embedding].Row(id)...)
	}
	for l := range c.Layers {
		prefix := c.LayerPrefix(l)
		var keys, values [][]float64
		for t, x := range stream {
			h := norm(x, prefix+n.InputNorm)
			q, k := linear(h, prefix+n.Q), linear(h, prefix+n.K)
			heads(q, prefix+n.QNorm, l, t)
			heads(k, prefix+n.KNorm, l, t)
			keys, values = append(keys, k), append(values, linear(h, prefix+n.V))
			o := make([]float64, len(q))
			for head := range c.Heads {
				mine := head * c.HeadDim
				theirs := head / (c.Heads / c.KVHeads) * c.HeadDim
				scores := make([]float64, t+1)
				for s := range scores {
					for i := range c.HeadDim {
						scores[s] += q[mine+i] * keys[s][theirs+i] / math.Sqrt(float64(c.HeadDim))
					}
				}
				for s, lp := range logSoftmax(scores) {
					for i := range c.HeadDim {
						o[mine+i] += math.Exp(lp) * values[s][theirs+i]
					}
				}
			}
			for i, v := range linear(o, prefix+n.O) {
				x[i] += v
			}
			h = norm(x, prefix+n.BeforeMLPNorm)
			gate, up := linear(h, prefix+n.Gate), linear(h, prefix+n.Up)
			for i, g := range gate {
				gate[i] = g / (1 + math.Exp(-g)) * up[i]
			}
			for i, v := range linear(gate, prefix+n.Down) {
				x[i] += v
			}
		}
	}
	for t, x := range stream {
		stream[t] = norm(x, n.Norm)
	}
	return stream
}

func checkHidden(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i := range want {
		// alpha, the scale of attention, is a float32 in the graphs.
		if !(math.Abs(got[i]-want[i]) <= 1e-6*(1+math.Abs(want[i]))) {
			t.Fatalf("%s: hidden state [%d] = %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestLayerForward runs sequences through the layers and the final norm.
func TestLayerForward(t *testing.T) {
	for name, c := range blocks {
		t.Run(name, func(t *testing.T) { testLayerForward(t, c) })
	}
}

func testLayerForward(t *testing.T, c decoder.Architecture) {
	r := rand.New(rand.NewPCG(7, 8))
	w := weights(c, r)
	sequences := [][]int{{3, 1, 4, 1, 5}, {9}, {2, 6, 5, 3, 5, 8, 9}}
	lengths, ids := []int{}, []int{}
	for _, s := range sequences {
		lengths, ids = append(lengths, len(s)), append(ids, s...)
	}
	for _, blocks := range []int{1, 3} {
		f, _, err := c.Layer(0, false, blocks)
		layer := graphtest.Loaded(t, f, err)
		x := graphtest.Zeros(len(ids), c.Hidden)
		for i, id := range ids {
			copy(x.Row(i), w[c.Names.Embedding].Row(id))
		}
		for l := range c.Layers {
			in := packed(c, lengths, 8, blocks)
			for _, name := range []string{"valid", "copies", "copied"} {
				delete(in, name)
			}
			in["x"] = x
			if c.KindOf != nil && c.KindOf[l] == 1 {
				in["cos"], in["sin"] = still(c)
			}
			for _, port := range f.Inputs {
				if v, ok := w[c.LayerPrefix(l)+port.Name]; ok {
					in[port.Name] = v
				}
			}
			x = run(t, layer, in)["y"]
		}
		n, _, err := c.Norm()
		h := run(t, graphtest.Loaded(t, n, err), map[string]graphtest.Tensor{"x": x, c.Names.Norm: w[c.Names.Norm],
			"inv_temperature": graphtest.Floats([]float64{1})})["h"]
		at := 0
		for i, s := range sequences {
			for p, want := range reference(c, w, s) {
				checkHidden(t, fmt.Sprintf("%d blocks, sequence %d, token %d", blocks, i, p), h.Row(at), want)
				at++
			}
		}
	}
}

// still are angles that turn no pair.
func still(c decoder.Architecture) (cos, sin graphtest.Tensor) {
	cos, sin = graphtest.Zeros(c.MaxPositions, c.HeadDim/2), graphtest.Zeros(c.MaxPositions, c.HeadDim/2)
	for i := range cos.Data {
		cos.Data[i] = 1
	}
	return cos, sin
}

// causal is the mask [T,T] of rows of T tokens.
func causal(T int) graphtest.Tensor {
	mask := graphtest.Zeros(T, T)
	for i := range T {
		for j := i + 1; j < T; j++ {
			mask.Row(i)[j] = -math.MaxFloat32
		}
	}
	return mask
}

// counting is 0 to n-1.
func counting(n int) graphtest.Tensor {
	v := make([]int, n)
	for i := range v {
		v[i] = i
	}
	return graphtest.Ints(v)
}

// keep puts the keys and values that a Program returns into the cache among in: in place
// if the Program writes onto the cache, else at the start of each row.
func keep(in map[string]graphtest.Tensor, p models.Program, out map[string]graphtest.Tensor) {
	for name, x := range out {
		past := strings.Replace(name, "present", "past", 1)
		switch {
		case past == name:
		case p.Alias[name] == past:
			in[past] = x
		default:
			cache := in[past].Clone()
			row := x.Dims[2] * x.Dims[3]
			for i := range x.Dims[0] * x.Dims[1] {
				copy(cache.Data[i*cache.Dims[2]*x.Dims[3]:], x.Data[i*row:(i+1)*row])
			}
			in[past] = cache
		}
	}
}

// TestPrefillAndDecode feeds prompts of different lengths at once and then one
// token after the other, in every form and build, with heads that the attention
// operator takes as they are and heads that have to be padded.
func TestPrefillAndDecode(t *testing.T) {
	for name, c := range blocks {
		t.Run(name, func(t *testing.T) { testPrefillAndDecode(t, c) })
	}
}

func testPrefillAndDecode(t *testing.T, base decoder.Architecture) {
	sequences := [][]int{{3, 1, 4, 1, 5, 9, 2}, {9, 7, 9}, {2, 6, 5, 3, 5, 8}}
	prompts := []int{5, 1, 3}
	const T, S = 5, 9
	type kind struct {
		build
		form models.Form
	}
	var kinds []kind
	for _, b := range builds {
		for _, form := range decodeForms(b.of(base)) {
			kinds = append(kinds, kind{b, form})
		}
	}
	for _, width := range []int{6, 16} {
		for _, kind := range kinds {
			c, form := kind.of(base), kind.form
			if c.HeadDim = width; c.Kinds != nil {
				c.Kinds = turnedAndNot(width)
			}
			r := rand.New(rand.NewPCG(9, 10))
			w := weights(c, r)
			B := len(sequences)
			in := make(map[string]graphtest.Tensor)
			in["cos"], in["sin"] = angles(c, S)
			for name, v := range w {
				in[name] = v
			}
			for _, fused := range c.Layout().Fused() {
				x := graphtest.Tensor{Type: w[fused.Parts[0].Name].Type, Dims: fused.Shape}
				for _, p := range fused.Parts {
					x.Data = append(x.Data, w[p.Name].Data...)
				}
				in[fused.Name] = x
			}
			for l := range c.Layers {
				for _, cache := range []string{"key", "value"} { // Unwritten places are NaN, so a Program that reads them fails.
					x := graphtest.Zeros(B, c.KVHeads, S, c.Geometry().CacheWidth)
					for i := range x.Data {
						x.Data[i] = math.NaN()
					}
					in[fmt.Sprintf("past_%s.%d", cache, l)] = x
				}
			}
			step := func(p models.Program, err error) graphtest.Tensor {
				own := make(map[string]graphtest.Tensor)
				g := graphtest.Loaded(t, p, err)
				for _, port := range p.Inputs {
					x := in[port.Name]
					if elem, ok := elems[port.DType]; ok {
						x.Type = elem // The two are exactly equal, because the interpreter does not round here.
					}
					own[port.Name] = x
				}
				out := run(t, g, own)
				keep(in, p, out)
				return out["hidden"]
			}

			ids, pos, lengths, last := make([]int, B*T), make([]int, B*T), make([]int, B), make([]int, B)
			for b, s := range sequences {
				copy(ids[b*T:], s[:prompts[b]])
				lengths[b], last[b] = prompts[b]-1, b*T+prompts[b]-1
				for t := range T {
					pos[b*T+t] = t
				}
			}
			in["ids"], in["pos"], in["last"] = graphtest.Ints(ids, B, T), graphtest.Ints(pos, B*T, 1), graphtest.Ints(last)
			in["seqlens"], in["total"], in["mask"] = graphtest.Int32(lengths, B), graphtest.Int32([]int{T}), causal(T)
			hidden := step(c.Prefill())
			for b, s := range sequences {
				want := reference(c, w, s[:prompts[b]])
				checkHidden(t, fmt.Sprintf("width %d, prompt %d", width, b), hidden.Row(b), want[prompts[b]-1])
			}

			// A decode step reads the whole cache behind its mask: stale places must be
			// finite, and must not count.
			for name, x := range in {
				if strings.HasPrefix(name, "past_") {
					for i := range x.Data {
						if math.IsNaN(x.Data[i]) {
							x.Data[i] = 50
						}
					}
				}
			}
			at := append([]int{}, prompts...)
			for range 4 {
				mask := graphtest.Zeros(B, 1, 1, S)
				var places []int
				for b, s := range sequences {
					if at[b] == len(s) { // This row is idle from here on and feeds its last token again.
						at[b]--
					}
					ids[b], pos[b] = s[at[b]], at[b]
					for t := at[b] + 1; t < S; t++ {
						mask.Data[b*S+t] = -math.MaxFloat32
					}
					for h := range c.KVHeads {
						places = append(places, b, h, at[b])
					}
				}
				in["ids"], in["pos"] = graphtest.Ints(ids[:B], B, 1), graphtest.Ints(pos[:B], B, 1)
				in["at"], in["mask"], in["places"] = graphtest.Ints(places, B, c.KVHeads, 3), mask, counting(S)
				in["seqlens"], in["total"] = graphtest.Int32(pos[:B], B), graphtest.Int32([]int{slices.Max(pos[:B]) + 1})
				hidden := step(c.Decode(form))
				for b, s := range sequences {
					want := reference(c, w, s[:at[b]+1])
					checkHidden(t, fmt.Sprintf("width %d, %v, row %d, token %d", width, kind, b, at[b]), hidden.Row(b), want[at[b]])
					at[b]++
				}
			}
		}
	}
}
