package modeltest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
)

// checkAdapter gives the model adapters with random As and Bs. The states must equal those of the model with W +
// Scale B A in place of W, for prompts and for single tokens as well. The gradients must equal differences, and exist
// only for the adapter's tensors.
func checkAdapter(t testing.TB, _ string, m models.Model, w *models.Weights) {
	plain := must(m.Architecture(models.Compute{}))(t)
	all := models.ModulesOf(plain)
	sequences := [][]int{{3, 1, 4, 1, 5, 9, 2}, {6, 5, 3}, {5, 8, 9, 7, 9, 3}}
	for n, adapter := range []models.Adapter{{Rank: 2, Scale: 0.5, Modules: all},
		{Rank: 3, Scale: 2, Modules: slices.Concat(all[:1], all[2:3], all[min(5, len(all)-1):])}} {
		merged := interpret(plain, w)
		for i, a := range architectures(t, m, &adapter) {
			model := interpret(a, w)
			model.adapt(t, a.AdapterLayout(), rand.New(rand.NewPCG(7, 8)))
			model.merge(t, merged, adapter)
			want := merged.forward(t, sequences, oneBlock)
			what := fmt.Sprintf("%v, adapter of rank %d beside the merged one: state ", a.Geometry().Compute, adapter.Rank)
			near(t, what, model.forward(t, sequences, oneBlock).Data, want.Data, 1e-9)
			model.checkDecoding(t, fmt.Sprintf("adapter of rank %d, ", adapter.Rank), sequences)
			model.checkTrained(t)
			if i == 0 || i == 2 && n == 0 { // in float32 and once in float16, since differences take time
				model.checkLayer(t, len(model.Kinds)-1, []int{5, 4, 7}, 3, oneBlock)
			}
		}
	}
}

// adapt draws an adapter's tensors.
func (m interpreted) adapt(t testing.TB, l *models.Layout, r *rand.Rand) {
	w := must(models.NewWeights(l))(t)
	defer w.Close()
	for i := range w.Data {
		w.Data[i] = float32(0.2 * r.NormFloat64())
	}
	for name, x := range tensorsOf(w) {
		m.weights[strings.TrimPrefix(name, models.AdapterPrefix)] = x
	}
}

// merge copies the weights of m to to, with the adapter merged.
func (m interpreted) merge(t testing.TB, to interpreted, adapter models.Adapter) {
	for name, x := range m.weights {
		if y, ok := to.weights[name]; ok {
			copy(y.Data, x.Data)
		}
	}
	for layer := range m.Layers {
		for _, module := range adapter.Modules {
			name := m.LayerPrefix(layer) + module
			a, b, w := m.weights[name+models.AdapterA], m.weights[name+models.AdapterB], to.weights[name+".weight"]
			if len(w.Data) == 0 {
				continue // only layers of another kind have the module
			}
			if len(a.Data) == 0 || len(b.Data) == 0 {
				t.Fatalf("the adapter's layout has no %s", name)
			}
			for i := range w.Dims[0] {
				for k := range adapter.Rank {
					for j, x := range a.Row(k) {
						w.Row(i)[j] += adapter.Scale * b.Row(i)[k] * x
					}
				}
			}
		}
	}
}

// checkTrained: backward Programs have gradients of the adapter's tensors only, and of all of them.
func (m interpreted) checkTrained(t testing.TB) {
	layout := m.AdapterLayout()
	hasGradient := map[string]bool{}
	collect := func(p models.Program, prefix string) {
		for _, port := range p.Outputs {
			place, ok := layout.Find(models.AdapterPrefix + prefix + port.Of)
			switch {
			case port.Role != models.Gradient:
			case !ok:
				t.Errorf("%s has a gradient of %q, which is not the adapter's", p.Name, port.Of)
			default:
				hasGradient[fmt.Sprint(place.Offset)] = true // by place: a matrix and its only part have two names
			}
		}
	}
	_, norm := must2(m.Architecture.Norm())(t)
	_, _, head := must3(m.Architecture.Head(models.HeadForm{EntropyGradient: true}))(t)
	for i := range m.Layers {
		_, layer := must2(m.Layer(m.Kind(i), false, 1))(t)
		collect(layer, m.LayerPrefix(i))
		if i := slices.IndexFunc(layer.Inputs, func(p models.Port) bool { return p.Role == models.Gradient && !strings.Contains(p.Of, ".lora_") }); i >= 0 {
			t.Errorf("%s reads a gradient of %s", layer.Name, layer.Inputs[i].Of)
		}
	}
	collect(norm, "")
	matrices := 0
	for _, f := range layout.Fused() {
		matrices++
		if f.Whole { // each part has a gradient
			matrices += len(f.Parts) - 1
		}
	}
	if len(hasGradient) != matrices {
		t.Errorf("%d of the adapter's %d matrices have gradients", len(hasGradient), matrices)
	}
	for _, p := range []models.Program{norm, head} {
		if n := len(p.Outputs); n != 1 { // the gradient of its input
			t.Errorf("%s has %d outputs, with an adapter it needs 1", p.Name, n)
		}
	}
}

// tensorsOf returns the tensors of an arena by all names of its layout. The parts of a matrix are in its memory.
func tensorsOf(w *models.Weights) tensors {
	out := tensors{}
	for _, f := range w.Layout.Fused() {
		data, shape, _ := w.View(f.Name)
		x := graphtest.Zeros(shape...)
		for i, v := range data {
			x.Data[i] = float64(v)
		}
		rest := x.Data
		for _, part := range f.Parts {
			p := graphtest.Zeros(part.Shape...)
			p.Data, rest = rest[:len(p.Data)], rest[len(p.Data):]
			out[part.Name] = p
		}
		out[f.Name] = x
	}
	return out
}
