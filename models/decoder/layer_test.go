package decoder_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/decoder"
)

// qwen2 is an Architecture with Qwen2's block, for float32 on the CPU.
func qwen2(sizes models.Sizes) decoder.Architecture {
	return decoder.Architecture{Shape: decoder.Shape{Sizes: sizes, RopeTheta: 100, RMSEps: 1e-3,
		Block: decoder.Block{QKVBias: true}, Names: decoder.LlamaNames}}
}

// small is a model whose sizes all differ.
func small() decoder.Architecture {
	return qwen2(models.Sizes{Hidden: 10, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6, FFN: 7, Vocab: 23, MaxPositions: 16})
}

// other is a model of the same sizes with every option of a Block, and with its own
// names, frequencies and layers.
func other() decoder.Architecture {
	a := small()
	a.Block = decoder.Block{OBias: true, MLPBias: true, QKNorm: true}
	a.Kinds, a.KindOf = turnedAndNot(a.HeadDim), []int{0, 1}
	a.Names.Layer, a.Names.Q, a.Names.QNorm, a.Names.Down = "decoder.%d.", "attention.query", "attention.query_scale", "out"
	a.Names.Embedding, a.Names.Norm = "words", "last.scale"
	return a
}

// turnedAndNot are a kind of layers with frequencies of their own and one without.
func turnedAndNot(width int) models.Kinds {
	f := append([]float32{0.9, 0.3, 0.01}, make([]float32, width/2-3)...)
	return models.Kinds{{Frequencies: f, Scale: 1}, {Frequencies: make([]float32, width/2), Scale: 1}}
}

// blocks are the models whose layers are compared with formulas written out.
var blocks = map[string]decoder.Architecture{"Qwen2": small(), "other": other()}

func run(t testing.TB, g *graphtest.Graph, in map[string]graphtest.Tensor) map[string]graphtest.Tensor {
	t.Helper()
	out, err := g.Run(in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// frequency is the frequency of pair i of a head.
func frequency(c decoder.Architecture, i int) float64 {
	if c.Kinds != nil {
		return float64(c.Kinds[0].Frequencies[i])
	}
	return math.Pow(c.RopeTheta, -float64(2*i)/float64(c.HeadDim))
}

// angles are the cosines and sines of the positions up to P.
func angles(c decoder.Architecture, P int) (cos, sin graphtest.Tensor) {
	half := c.HeadDim / 2
	cos, sin = graphtest.Zeros(P, half), graphtest.Zeros(P, half)
	for p := range P {
		for i := range half {
			a := float64(p) * frequency(c, i)
			cos.Row(p)[i], sin.Row(p)[i] = math.Cos(a), math.Sin(a)
		}
	}
	return cos, sin
}

// packed lays out sequences of the given lengths in rows of T places: the
// inputs of the layer Programs that are not weights or values.
func packed(c decoder.Architecture, lengths []int, T, blocks int) map[string]graphtest.Tensor {
	var pos, tokens, rows []int
	valid, mask := graphtest.Zeros(len(lengths), T, 1), graphtest.Zeros(T, T)
	for b, n := range lengths {
		start := len(tokens)
		for t := range T {
			if t >= n {
				rows = append(rows, start/2) // any token
				continue
			}
			rows = append(rows, start+t)
			tokens = append(tokens, b*T+t)
			pos = append(pos, t)
			valid.Row(b)[t] = 1
		}
	}
	for i := range T {
		for j := i + 1; j < T; j++ {
			mask.Row(i)[j] = -1e30
		}
	}
	in := map[string]graphtest.Tensor{
		"pos": graphtest.Ints(pos, len(pos), 1), "rows": graphtest.Ints(rows, len(lengths), T), "tokens": graphtest.Ints(tokens),
		"valid": valid, "mask": mask, "copies": graphtest.Ints(tokens[:1], 1, 1), "copied": graphtest.Floats([]float64{1}, 1, 1, 1),
	}
	in["cos"], in["sin"] = angles(c, c.MaxPositions)
	if blocks > 1 {
		bounds := make([]int, blocks+1)
		for i := range bounds {
			bounds[i] = i * T / blocks
		}
		in["bounds"] = graphtest.Ints(bounds)
	}
	return in
}

// only returns the inputs that a Program has, and makes up missing ones.
func only(p models.Program, in map[string]graphtest.Tensor, r *rand.Rand, sizes map[string]int) map[string]graphtest.Tensor {
	out := make(map[string]graphtest.Tensor)
	for _, port := range p.Inputs {
		if _, ok := in[port.Name]; !ok {
			x := graphtest.Normal(r, graphtest.Sizes(port, sizes)...)
			for i := range x.Data {
				x.Data[i] *= 0.5
			}
			in[port.Name] = x
		}
		out[port.Name] = in[port.Name]
	}
	return out
}

// TestLayerBackward holds layer.backward against central differences of
// layer.forward, full or not, one and three blocks, and sequences of
// different lengths.
func TestLayerBackward(t *testing.T) {
	for name, c := range blocks {
		t.Run(name, func(t *testing.T) { testLayerBackward(t, c) })
	}
}

func testLayerBackward(t *testing.T, c decoder.Architecture) {
	weights := 0 // of a layer
	for _, name := range c.Layout().Names() {
		if strings.HasPrefix(name, c.LayerPrefix(0)) {
			weights++
		}
	}
	lengths, T := []int{5, 1, 7}, 8
	sizes := map[string]int{"N": 13, "B": 3, "T": T}
	for _, blocks := range []int{1, 3} {
		in := packed(c, lengths, T, blocks)
		r := rand.New(rand.NewPCG(1, 2))
		var reference map[string]graphtest.Tensor
		for _, full := range []bool{false, true} {
			f, b, err := c.Layer(0, full, blocks)
			forward, backward := graphtest.Loaded(t, f, err), graphtest.Loaded(t, b, err)
			fin := only(f, in, r, sizes)
			for name, v := range run(t, forward, fin) {
				if name != "y" {
					in[name] = v // the stash
				}
			}
			bin := only(b, in, r, sizes)
			got := run(t, backward, bin)
			if len(got) != 1+weights {
				t.Fatalf("outputs %v, want dx and %d weights'", b.Outputs, weights)
			}
			// the part that layer.backward added to the running gradients
			for name, d := range got {
				if w, ok := strings.CutPrefix(name, decoder.UpdatedPrefix); ok {
					for i, v := range in[decoder.GradientPrefix+w].Data {
						d.Data[i] -= v
					}
				}
			}
			name := fmt.Sprintf("full %v, %d blocks", full, blocks)
			if reference != nil {
				for output, want := range reference {
					for i, w := range want.Data {
						if g := got[output].Data[i]; !(math.Abs(g-w) <= 1e-12*(1+math.Abs(w))) {
							t.Fatalf("%s: %s[%d] = %v, without a stash %v", name, output, i, g, w)
						}
					}
				}
				continue
			}
			reference = got
			loss := func() float64 {
				s := 0.0
				for i, v := range run(t, forward, fin)["y"].Data {
					s += in["dy"].Data[i] * v
				}
				return s
			}
			for output, d := range got {
				x := in["x"]
				if w, ok := strings.CutPrefix(output, decoder.UpdatedPrefix); ok {
					x = in[w]
				}
				for i := range x.Data {
					if testing.Short() && i%7 != 0 {
						continue
					}
					want := graphtest.Derivative(loss, &x.Data[i])
					if !(math.Abs(d.Data[i]-want) <= 1e-8*(1+math.Abs(want))) {
						t.Fatalf("%s: %s[%d] = %v, differences give %v", name, output, i, d.Data[i], want)
					}
				}
			}
		}
	}
}

// TestLayerStashSparesWork: stashed values are not computed again.
func TestLayerStashSparesWork(t *testing.T) {
	c := small()
	gemms := make(map[bool]int)
	for _, full := range []bool{false, true} {
		_, b, err := c.Layer(0, full, 1)
		gemms[full] = graphtest.Loaded(t, b, err).Ops()["Gemm"]
	}
	// The gradient has two products for each of seven matrices. The forward pass has
	// seven, of which the backward pass never needs the last: it repeats six, and none of a
	// full layer.
	want := map[bool]int{false: 14 + 6, true: 14}
	for full, n := range want {
		if gemms[full] != n {
			t.Errorf("full %v: %d products, want %d", full, gemms[full], n)
		}
	}
}

// TestNorm holds norm.backward against central differences.
func TestNorm(t *testing.T) {
	c := small()
	f, b, err := c.Norm()
	forward, backward := graphtest.Loaded(t, f, err), graphtest.Loaded(t, b, err)
	r := rand.New(rand.NewPCG(3, 4))
	in := map[string]graphtest.Tensor{"inv_temperature": graphtest.Floats([]float64{1 / 0.7})}
	bin := only(b, in, r, map[string]int{"R": 4})
	fin := only(f, in, r, nil)
	got := run(t, backward, bin)
	loss := func() float64 {
		s := 0.0
		for i, v := range run(t, forward, fin)["h"].Data {
			s += in["dh"].Data[i] * v
		}
		return s
	}
	weight := c.Geometry().Norm
	for i := range in["x"].Data {
		want := graphtest.Derivative(loss, &in["x"].Data[i])
		if d := got["dx"].Data[i]; !(math.Abs(d-want) <= 1e-8) {
			t.Errorf("dx[%d] = %v, want %v", i, d, want)
		}
	}
	for i := range in[weight].Data {
		want := graphtest.Derivative(loss, &in[weight].Data[i]) + in[decoder.GradientPrefix+weight].Data[i]
		if d := got[decoder.UpdatedPrefix+weight].Data[i]; !(math.Abs(d-want) <= 1e-8) {
			t.Errorf("dw[%d] = %v, want %v", i, d, want)
		}
	}
}

// TestLayerBytes: at 4,096 tokens the blocks of attention take turns, so that a
// layer's backward pass of the 1.5B shape takes less than one copy of all
// scores in float32, 805 MB, beside what has the size of the tokens.
func TestLayerBytes(t *testing.T) {
	testLayerBytes(t, build{models.Compute{Type: models.BF16, Provider: models.CUDA}}, 1)
	testLayerBytes(t, cudaBuild, 1.5)
}

func testLayerBytes(t *testing.T, kind build, most float64) {
	c := kind.of(qwen2(models.Sizes{Hidden: 1536, Layers: 28, Heads: 12, KVHeads: 2, HeadDim: 128, FFN: 8960, Vocab: 151936}))
	const T = 4096
	for _, full := range []bool{false, true} {
		_, whole, err := c.LayerBytes(0, full, 1, T, 1, T)
		if err != nil {
			t.Fatal(err)
		}
		_, blocks, err := c.LayerBytes(0, full, 8, T, 1, T)
		if err != nil {
			t.Fatal(err)
		}
		scores := int64(4 * c.Heads * T * T)
		if whole < 3*scores || float64(blocks) > most*float64(scores) {
			t.Errorf("%v, full %v: %d MB in one block, %d MB in 8; the scores are %d MB", kind, full, whole/1e6, blocks/1e6, scores/1e6)
		}
		t.Logf("%v, full %v: %d MB in one block, %d MB in 8", kind, full, whole/1e6, blocks/1e6)
	}
}
