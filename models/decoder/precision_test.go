package decoder_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/decoder"
)

var elems = map[models.DType]models.DType{models.F32: models.F32, models.BF16: models.BF16, models.F16: models.F16} // of floating point

// A trainer runs a model's Programs forward and backward as package runtime
// does, in the interpreter.
type trainer struct {
	c       decoder.Architecture
	w       map[string]graphtest.Tensor // by Hugging Face's names
	rounded bool                        // every value to its type
	full    bool
	blocks  int
	scale   float64 // of the loss, in float16
	noise   func() float64

	sequences [][]int
	in        map[string]graphtest.Tensor // pos, rows, ...
	ids       []int
}

func newTrainer(c decoder.Architecture, w map[string]graphtest.Tensor, sequences [][]int) *trainer {
	tr := &trainer{c: c, w: w, full: true, blocks: 3, scale: 1, sequences: sequences}
	var lengths []int
	for _, s := range sequences {
		lengths = append(lengths, len(s))
		tr.ids = append(tr.ids, s...)
	}
	tr.in = packed(c, lengths, 8, tr.blocks)
	return tr
}

// run feeds a Program its inputs, in the types that it declares.
func (tr *trainer) run(t testing.TB, p models.Program, sources ...map[string]graphtest.Tensor) map[string]graphtest.Tensor {
	t.Helper()
	g := graphtest.Loaded(t, p, nil)
	g.Single, g.Noise = tr.rounded, tr.noise
	in := make(map[string]graphtest.Tensor)
	for _, port := range p.Inputs {
		for _, s := range sources {
			x, ok := s[port.Name]
			if !ok {
				continue
			}
			if elem, ok := elems[port.DType]; ok {
				if tr.rounded {
					x = x.As(elem)
				}
				x.Type = elem
			}
			in[port.Name] = x
			break
		}
	}
	return run(t, g, in)
}

// layerWeights are the weights of one layer without its prefix, and the running
// gradients, which are zero.
func (tr *trainer) layerWeights(i int) map[string]graphtest.Tensor {
	out := make(map[string]graphtest.Tensor)
	for name, x := range tr.w {
		if short, ok := strings.CutPrefix(name, tr.c.LayerPrefix(i)); ok {
			out[short], out[decoder.GradientPrefix+short] = x, graphtest.Zeros(x.Dims...)
		}
	}
	return out
}

// states returns the normed state [N,D] of every token as training computes it.
func (tr *trainer) states(t testing.TB) graphtest.Tensor {
	t.Helper()
	x, _, _ := tr.layers(t)
	forward, _, err := tr.c.Norm()
	if err != nil {
		t.Fatal(err)
	}
	name := tr.c.Geometry().Norm
	return tr.run(t, forward, map[string]graphtest.Tensor{"x": x[tr.c.Layers], name: tr.w[name], "inv_temperature": graphtest.Floats([]float64{1})})["h"]
}

// layers runs the layers and returns each one's input, the last one's output, the
// stashes, and the Program for the backward pass.
func (tr *trainer) layers(t testing.TB) (x []graphtest.Tensor, stash []map[string]graphtest.Tensor, backward models.Program) {
	t.Helper()
	forward, backward, err := tr.c.Layer(0, tr.full, tr.blocks)
	if err != nil {
		t.Fatal(err)
	}
	x = []graphtest.Tensor{graphtest.Zeros(len(tr.ids), tr.c.Hidden)}
	for i, id := range tr.ids {
		copy(x[0].Row(i), tr.w[tr.c.Geometry().Embedding].Row(id))
	}
	for i := range tr.c.Layers {
		out := tr.run(t, forward, map[string]graphtest.Tensor{"x": x[i]}, tr.in, tr.layerWeights(i))
		x, stash = append(x, out["y"]), append(stash, out)
	}
	return x, stash, backward
}

// logps returns the log-prob of each token's successor, and the gradient of
// sum_t weight[t] logp[t] by each weight.
func (tr *trainer) logps(t testing.TB, weight []float64) (logp []float64, grads map[string]graphtest.Tensor) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	c, g := tr.c, tr.c.Geometry()
	n := len(tr.ids)
	x, stash, backward := tr.layers(t)
	normForward, normBackward, err := c.Norm()
	must(err)
	headForward, headTarget, headBackward, err := c.Head(models.HeadForm{})
	must(err)
	norm := map[string]graphtest.Tensor{"inv_temperature": graphtest.Floats([]float64{1}), g.Norm: tr.w[g.Norm],
		decoder.GradientPrefix + g.Norm: graphtest.Zeros(c.Hidden)}
	y := make([]int, n)
	for i := range y {
		y[i] = (tr.ids[i]*5 + 3) % c.Vocab
	}
	head := map[string]graphtest.Tensor{"E": tr.w[g.Head], "y": graphtest.Ints(y),
		"z": graphtest.Zeros(n, 1), "u": graphtest.Zeros(n, 1), "w": graphtest.Zeros(n, 1),
		"dh": graphtest.Zeros(n, c.Hidden), "dE": graphtest.Zeros(c.Vocab, c.Hidden)}
	for i := range n {
		head["z"].Data[i], head["w"].Data[i] = -1e30, tr.scale*weight[i]
	}
	head["h"] = tr.run(t, normForward, map[string]graphtest.Tensor{"x": x[c.Layers]}, norm)["h"]
	z := tr.run(t, headForward, head)["z_out"]
	logit := tr.run(t, headTarget, head)["logit"]
	for i := range n {
		logp = append(logp, logit.Data[i]-z.Data[i])
	}

	head["z"] = z
	head["at"], head["dlogit"] = targets(y, head["w"], 0, c.Vocab)
	out := tr.run(t, headBackward, head)
	grads = map[string]graphtest.Tensor{g.Head: out["dE_out"]}
	out = tr.run(t, normBackward, map[string]graphtest.Tensor{"x": x[c.Layers], "dh": out["dh_out"]}, norm)
	grads[g.Norm] = out[decoder.UpdatedPrefix+g.Norm]
	dx := out["dx"]
	for i := c.Layers - 1; i >= 0; i-- {
		out = tr.run(t, backward, map[string]graphtest.Tensor{"x": x[i], "dy": dx}, stash[i], tr.in, tr.layerWeights(i))
		dx = out["dx"]
		for name, d := range out {
			if short, ok := strings.CutPrefix(name, decoder.UpdatedPrefix); ok {
				grads[c.LayerPrefix(i)+short] = d
			}
		}
	}
	embedding := graphtest.Zeros(c.Vocab, c.Hidden)
	for i, id := range tr.ids {
		for k, v := range dx.Row(i) {
			embedding.Row(id)[k] += v
		}
	}
	grads[g.Embedding] = embedding
	return logp, grads
}

// model makes weights and sequences for the comparisons: of a size where logits
// are a few units.
func model(kind build) *trainer {
	c := kind.of(small())
	c.Hidden, c.HeadDim, c.FFN, c.Layers = 32, 8, 48, 3
	r := rand.New(rand.NewPCG(21, 22))
	w := weights(c, r)
	w[c.Geometry().Head] = graphtest.Normal(r, c.Vocab, c.Hidden)
	for _, name := range slices.Sorted(maps.Keys(w)) {
		x := w[name]
		if strings.HasSuffix(name, "_proj.weight") || name == c.Geometry().Head {
			for i := range x.Data {
				x.Data[i] /= 2
			}
		}
		// The weights are as in published models: the copy rounds none of them.
		w[name] = x.As(models.BF16).As(models.F32)
	}
	return newTrainer(c, w, [][]int{{3, 1, 4, 1, 5}, {9}, {2, 6, 5, 3, 5, 8, 9}})
}

func tokenWeights(n int) []float64 {
	r := rand.New(rand.NewPCG(23, 24))
	w := make([]float64, n)
	for i := range w {
		w[i] = r.NormFloat64() / float64(n)
	}
	return w
}

// distance is the norm of a-b over that of b.
func distance(a, b []float64) float64 {
	gap, size := 0.0, 0.0
	for i := range b {
		gap += (a[i] - b[i]) * (a[i] - b[i])
		size += b[i] * b[i]
	}
	return math.Sqrt(gap / size)
}

// TestPrecisionsAreOneFormula: without rounding, graphs of 16 bits and for CUDA compute
// the same as those of float32, full or not, for every number of blocks.
func TestPrecisionsAreOneFormula(t *testing.T) {
	reference := model(float32Build)
	weight := tokenWeights(len(reference.ids))
	wantLogp, wantGrads := reference.logps(t, weight)
	for _, b := range builds {
		for _, full := range []bool{false, true} {
			for _, blocks := range []int{1, 3} {
				tr := model(b)
				tr.full, tr.blocks = full, blocks
				name := fmt.Sprintf("%v, full %v, %d blocks", b, full, blocks)
				if b.Type == models.F16 {
					tr.scale = 8
				}
				logp, grads := tr.logps(t, weight)
				if gap := distance(logp, wantLogp); !(gap <= 1e-12) {
					t.Errorf("%s: log-probs are %g off", name, gap)
				}
				if len(grads) != len(wantGrads) || len(grads) != len(tr.w) {
					t.Fatalf("%s: %d gradients for %d weights", name, len(grads), len(tr.w))
				}
				for w, want := range wantGrads {
					if grads[w].Type != models.F32 {
						t.Errorf("%s: the gradient of %s is %v", name, w, grads[w].Type)
					}
					for i := range grads[w].Data {
						grads[w].Data[i] /= tr.scale
					}
					if gap := distance(grads[w].Data, want.Data); !(gap <= 1e-12) {
						t.Errorf("%s: the gradient of %s is %g off", name, w, gap)
					}
				}
			}
		}
	}
}

// TestPrecisionBounds rounds every value to its type and bounds how far
// log-probs and gradients come from those of exact arithmetic. bfloat16
// rounds by up to 2^-8 (0.4 %) of a number, float16 by up to 2^-11.
func TestPrecisionBounds(t *testing.T) {
	exact := model(float32Build)
	weight := tokenWeights(len(exact.ids))
	wantLogp, wantGrads := exact.logps(t, weight)
	for _, tt := range []struct {
		build       build
		scale       float64
		logp, grads float64
	}{
		{float32Build, 1, 2e-6, 2e-6},
		{cudaBuild, 1, 2e-6, 2e-6},
		{build{models.Compute{Type: models.BF16, Provider: models.CUDA}}, 1, 0.005, 0.05},
		{build{models.Compute{Type: models.F16}}, 1024, 0.001, 0.007},
	} {
		tr := model(tt.build)
		tr.rounded, tr.scale = true, tt.scale
		logp, grads := tr.logps(t, weight)
		worst, mean := 0.0, 0.0
		for i, l := range logp {
			worst = math.Max(worst, math.Abs(l-wantLogp[i]))
			mean += math.Abs(l-wantLogp[i]) / float64(len(logp))
		}
		if !(worst <= tt.logp) {
			t.Errorf("%v: a log-prob is %g off, more than %g", tt.build, worst, tt.logp)
		}
		farthest, tensor := 0.0, ""
		for w, want := range wantGrads {
			for i := range grads[w].Data {
				grads[w].Data[i] /= tt.scale
			}
			if gap := distance(grads[w].Data, want.Data); !(gap <= farthest) {
				farthest, tensor = gap, w
			}
		}
		if !(farthest <= tt.grads) {
			t.Errorf("%v: the gradient of %s is %g off, more than %g", tt.build, tensor, farthest, tt.grads)
		}
		t.Logf("%v: log-probs off by at most %.2g, %.2g on average, of %.1f; gradients by at most %.2g (%s)", tt.build, worst, mean, wantLogp[0], farthest, tensor)
	}
}

// hidden returns the normed state of every token as rollout computes it: a
// prompt of one token and then one after the other, in a cache.
func (tr *trainer) hidden(t testing.TB) [][]float64 {
	t.Helper()
	c, g := tr.c, tr.c.Geometry()
	prefill, err := c.Prefill()
	if err != nil {
		t.Fatal(err)
	}
	decode, err := c.Decode(models.Direct)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float64
	for _, s := range tr.sequences {
		in := make(map[string]graphtest.Tensor)
		in["cos"], in["sin"] = angles(c, c.MaxPositions)
		for _, f := range c.Layout().Fused() {
			x := tr.w[f.Parts[0].Name].Clone()
			x.Dims[0] = f.Shape[0]
			for _, part := range f.Parts[1:] {
				x.Data = append(x.Data, tr.w[part.Name].Data...)
			}
			in[f.Name] = x
		}
		for name, x := range tr.w {
			in[name] = x
		}
		for l := range c.Layers {
			for _, cache := range []string{"key", "value"} {
				in[fmt.Sprintf("past_%s.%d", cache, l)] = graphtest.Zeros(1, c.KVHeads, len(s), g.CacheWidth)
			}
		}
		for at, id := range s {
			in["ids"], in["pos"], in["last"] = graphtest.Ints([]int{id}, 1, 1), graphtest.Ints([]int{at}, 1, 1), graphtest.Ints([]int{0})
			in["seqlens"], in["total"] = graphtest.Int32([]int{at}, 1), graphtest.Int32([]int{at + 1})
			in["at"], in["mask"] = graphtest.Ints([]int{0, 0, at, 0, 1, at}, 1, c.KVHeads, 3), graphtest.Zeros(1, 1, 1, len(s))
			in["places"] = counting(len(s))
			for later := at + 1; later < len(s); later++ {
				in["mask"].Data[later] = -math.MaxFloat32
			}
			p := decode
			if at == 0 {
				p, in["mask"] = prefill, graphtest.Zeros(1, 1)
			}
			got := tr.run(t, p, in)
			keep(in, p, got)
			out = append(out, got["hidden"].Data)
		}
	}
	return out
}

// TestPrecisionGap bounds the difference between the log-probs of rollout and of
// training, which share all roundings, but not attention's kernel and, simulated by
// noise, the order of sums. Without noise they are equal.
func TestPrecisionGap(t *testing.T) {
	for d, bound := range map[build]float64{float32Build: 2e-4, cudaBuild: 2e-4, {models.Compute{Type: models.BF16, Provider: models.CUDA}}: 0.005, {models.Compute{Type: models.F16}}: 0.002} {
		exact, _ := gap(t, d, nil)
		if exact > 1e-6 {
			t.Errorf("%v: log-probs of rollout and training are up to %g apart without noise", d, exact)
		}
		r := rand.New(rand.NewPCG(25, 26))
		worst, mean := gap(t, d, func() float64 { return 0x1p-17 * r.NormFloat64() })
		if !(worst <= bound) || worst == 0 {
			t.Errorf("%v: log-probs of rollout and training are up to %g apart, more than %g", d, worst, bound)
		}
		t.Logf("%v: log-probs of rollout and training are up to %.2g apart, %.2g on average", d, worst, mean)
	}
}

// gap is the largest and the mean difference of all log-probs.
func gap(t *testing.T, kind build, noise func() float64) (worst, mean float64) {
	t.Helper()
	n := 0
	tr := model(kind)
	tr.rounded, tr.noise = true, noise
	head := tr.w[tr.c.Geometry().Head]
	logits := func(h []float64) []float64 {
		out := make([]float64, tr.c.Vocab)
		for i := range out {
			for k, x := range h {
				out[i] += x * head.Row(i)[k]
			}
		}
		return logSoftmax(out)
	}
	training := tr.states(t)
	for i, h := range tr.hidden(t) {
		a, b := logits(h), logits(training.Row(i))
		for j := range a {
			worst = math.Max(worst, math.Abs(a[j]-b[j]))
			mean += math.Abs(a[j] - b[j])
			n++
		}
	}
	return worst, mean / float64(n)
}

// TestCopy: every 16-bit input of graphs lies within the copy, and graphs read all of the
// copy except the norms.
func TestCopy(t *testing.T) {
	for _, b := range builds {
		for _, tied := range []bool{false, true} {
			c, d := b.of(small()), b.Type
			c.Tied = tied
			from, to := c.Copied()
			if d == models.F32 {
				if from != to {
					t.Errorf("in float32 a copy from %d to %d", from, to)
				}
				continue
			}
			layout := c.Layout()
			taken := make(map[int]bool) // by offset: the elements that a graph takes in 16 bits
			for _, p := range allPrograms(t, c) {
				for _, port := range p.Inputs {
					for i := range c.Layers {
						for _, name := range []string{port.Name, c.LayerPrefix(i) + port.Name} {
							place, ok := layout.Find(name)
							if !ok || strings.HasPrefix(p.Name, "layer") != (name != port.Name) {
								continue
							}
							if port.DType == d {
								if place.Offset < from || place.Offset+place.Size > to {
									t.Errorf("%s takes %s in %v, from %d, outside the copy from %d to %d", p.Name, name, d, place.Offset, from, to)
								}
								taken[place.Offset] = true
							} else if !strings.Contains(name, "norm") && place.Offset >= from && place.Offset < to {
								t.Errorf("%s takes %s of the layers in %v", p.Name, name, port.DType)
							}
						}
					}
				}
			}
			for _, name := range layout.Names() {
				place, _ := layout.Find(name)
				if inside := place.Offset >= from && place.Offset < to; inside != strings.HasPrefix(name, "model.layers.") || inside && !strings.Contains(name, "norm") && !taken[place.Offset] {
					t.Errorf("%s: inside the copy %v, taken %v", name, inside, taken[place.Offset])
				}
			}
		}
	}
}

// TestComputeRefused: a model cannot be had for a type that graphs do not compute in.
func TestComputeRefused(t *testing.T) {
	c := small()
	if _, err := c.Shape.Architecture(models.Compute{Type: models.F64}); err == nil || !strings.Contains(err.Error(), "F32, BF16 or F16, not F64") {
		t.Errorf("error %v", err)
	}
	c.Type = models.BF16
	if _, err := c.Decode(models.Wide); err == nil || !strings.Contains(err.Error(), "only the direct form") {
		t.Errorf("error %v", err)
	}
}

// TestLossScale trains in float16: gradients too small for it are lost without a scale
// and kept with one, and gradients that a scale makes overflow are found.
func TestLossScale(t *testing.T) {
	exact := model(float32Build)
	weight := tokenWeights(len(exact.ids))
	for i := range weight {
		weight[i] *= 1e-6
	}
	_, want := exact.logps(t, weight)
	tensor := exact.c.LayerPrefix(0) + "mlp.up_proj.weight"

	tr := model(build{models.Compute{Type: models.F16}})
	tr.rounded = true
	if _, grads := tr.logps(t, weight); distance(grads[tensor].Data, want[tensor].Data) < 0.1 {
		t.Error("gradients of 1e-6 are whole without a scale: the test shows nothing")
	}

	norm2, err := tr.c.GradNorm()
	if err != nil {
		t.Fatal(err)
	}
	scale := float64(1 << 46)
	for skipped := 0; ; skipped++ {
		tr.scale = scale
		_, grads := tr.logps(t, weight)
		sum, found := 0.0, false
		for _, d := range grads {
			in := map[string]graphtest.Tensor{"g": graphtest.Floats(d.Data, len(d.Data)), "unscale": graphtest.Floats([]float64{1 / tr.scale})}
			out := tr.run(t, norm2, in)
			sum += out["sum"].Data[0]
			found = found || out["found"].Data[0] != 0
		}
		if found {
			scale /= 2
			continue
		}
		if skipped == 0 {
			t.Error("no scale overflowed: the test shows nothing")
		}
		wantSum := 0.0
		for name, d := range want {
			for i, v := range d.Data {
				wantSum += v * v
				grads[name].Data[i] /= tr.scale
			}
		}
		if gap := distance(grads[tensor].Data, want[tensor].Data); !(gap < 0.01) {
			t.Errorf("at a scale of %g the gradient is %g off", tr.scale, gap)
		}
		if math.Abs(sum/wantSum-1) > 0.01 {
			t.Errorf("sum of squares %g, want %g", sum, wantSum)
		}
		t.Logf("%d steps skipped, scale %g", skipped, tr.scale)
		return
	}
}
