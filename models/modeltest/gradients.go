package modeltest

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
	"onering/models/ports"
)

// checkGradients compares backward with differences of forward.
func checkGradients(t testing.TB, _ string, m models.Model, w *models.Weights) {
	for _, a := range architectures(t, m, nil) {
		model := interpret(a, w)
		for _, blocks := range []int{1, 3} {
			for kind, k := range model.Kinds {
				if k.Program != kind {
					continue // an earlier kind has the same
				}
				model.checkLayer(t, kind, []int{5, 1, 7}, 0, blocks) // no token is shared
				model.checkLayer(t, kind, []int{5, 4, 7}, 3, blocks)
			}
		}
		r := rand.New(rand.NewPCG(3, 4))
		forward, backward := must2(a.Norm())(t)
		in := tensors{ports.InverseTemperature: graphtest.Floats([]float64{1 / 0.7}), ports.Stream: graphtest.Normal(r, 4, m.Hidden),
			ports.NormedGrad: graphtest.Normal(r, 4, m.Hidden)}
		p := pair{interpreted: model, forward: forward, backward: backward, out: ports.Normed, outGrad: ports.NormedGrad, in: in}
		p.compare(t, fmt.Sprintf("%v, norm", a.Geometry().Compute), p.gradients(t, r), r)
	}
}

// checkLayer compares the gradients of a layer of a kind, whose backward Program computes it again, with differences, and
// those of a full layer, whose backward Program reads what forward stored, with the first. The sequences share their
// first shared tokens.
func (m interpreted) checkLayer(t testing.TB, kind int, lengths []int, shared, blocks int) {
	const T = 8
	r := rand.New(rand.NewPCG(1, uint64(blocks)))
	in := m.packed(lengths, shared, T, blocks, kind)
	n := in[ports.PackedTokens].Dims[0]
	in[ports.Stream], in[ports.StreamGrad] = graphtest.Normal(r, n, m.Hidden), graphtest.Normal(r, n, m.Hidden)
	var first tensors
	for _, full := range []bool{false, true} {
		forward, backward := must2(m.Layer(kind, full, blocks))(t)
		what := fmt.Sprintf("%v, layer of kind %d, full %v, %d blocks, %d tokens shared", m.Compute, kind, full, blocks, shared)
		p := pair{m, forward, backward, m.LayerPrefix(m.layerOf(kind)), ports.StreamOut, ports.StreamGrad, in}
		got := p.gradients(t, rand.New(rand.NewPCG(5, 6)))
		if first == nil {
			first = got
			p.compare(t, what, got, r)
			continue
		}
		for name, want := range first {
			near(t, what+" beside a layer that is not full: gradient of "+name, got[name].Data, want.Data, 1e-12)
		}
	}
}

// layerOf returns the first layer of a kind.
func (m interpreted) layerOf(kind int) (layer int) {
	for m.Kind(layer) != kind {
		layer++
	}
	return layer
}

// A pair is a forward and a backward Program of a model, and the inputs of both.
type pair struct {
	interpreted
	forward, backward models.Program
	prefix            string // the prefix of the weights' names
	out, outGrad      string // names of ports
	in                tensors
}

// gradients returns the gradients of the stream, under the name of its port, and of the
// weights, without the running gradients to which backward adds them.
func (p pair) gradients(t testing.TB, r *rand.Rand) tensors {
	t.Helper()
	for name, x := range p.run(t, p.forward, p.prefix, p.in) {
		if name != p.out {
			p.in[name] = x // the outputs of forward that are stashed
		}
	}
	running := tensors{}
	for _, port := range p.backward.Inputs {
		if port.Role == models.Gradient {
			running[port.Of] = graphtest.Normal(r, p.weights[p.prefix+port.Of].Dims...)
			p.in[port.Name] = running[port.Of]
		}
	}
	out, got := p.run(t, p.backward, p.prefix, p.in), tensors{}
	got[ports.Stream] = out[ports.StreamGradOut]
	for _, port := range p.backward.Outputs {
		if port.Role == models.Gradient {
			d := out[port.Name].Clone()
			for i, v := range running[port.Of].Data {
				d.Data[i] -= v
			}
			got[port.Of] = d
		}
	}
	return got
}

// compare compares each gradient with differences: along a random direction, which
// involves every element, and for single elements.
func (p pair) compare(t testing.TB, what string, gradients tensors, r *rand.Rand) {
	t.Helper()
	loss := func() float64 {
		s := 0.0
		for i, v := range p.run(t, p.forward, p.prefix, p.in)[p.out].Data {
			s += p.in[p.outGrad].Data[i] * v
		}
		return s
	}
	for _, name := range slices.Sorted(maps.Keys(gradients)) {
		gradient := gradients[name]
		x := p.in[name]
		if name != ports.Stream {
			x = p.weights[p.prefix+name]
		}
		original, direction, slope, h := slices.Clone(x.Data), graphtest.Normal(r, x.Dims...), 0.0, 0.0
		for i, d := range direction.Data {
			direction.Data[i] = d / math.Sqrt(float64(len(original)))
			slope += direction.Data[i] * gradient.Data[i]
		}
		along := graphtest.Derivative(func() float64 { // by h, a step along the direction
			for i, d := range direction.Data {
				x.Data[i] = original[i] + h*d
			}
			return loss()
		}, &h)
		copy(x.Data, original)
		if !(math.Abs(slope-along) <= 1e-7*(1+math.Abs(along))) {
			t.Fatalf("%s: along a random direction the gradient of %s is %v, differences give %v", what, strings.TrimPrefix(name, p.prefix), slope, along)
		}
		for range 2 { // single elements
			i := r.IntN(len(x.Data))
			want := graphtest.Derivative(loss, &x.Data[i])
			if !(math.Abs(gradient.Data[i]-want) <= 1e-7*(1+math.Abs(want))) {
				t.Fatalf("%s: gradient of %s[%d] is %v, differences give %v", what, name, i, gradient.Data[i], want)
			}
		}
	}
}
