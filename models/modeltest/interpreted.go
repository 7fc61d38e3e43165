package modeltest

import (
	"math"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/ports"
)

// oneBlock is the number of query blocks of attention where it does not matter.
const oneBlock = 1

// tensors holds values by the names of ports.
type tensors = map[string]graphtest.Tensor

// An interpreted model runs its Programs in float64.
type interpreted struct {
	models.Architecture
	models.Geometry
	weights tensors // weights by all names of the layout
}

func interpret(a models.Architecture, w *models.Weights) interpreted {
	return interpreted{a, a.Geometry(), tensorsOf(w)}
}

// run runs a Program on the weights, without prefix in their names, and on the values of in that it needs.
func (m interpreted) run(t testing.TB, p models.Program, prefix string, in tensors) tensors {
	t.Helper()
	g := must(graphtest.Load(p))(t)
	own := tensors{}
	for _, port := range p.Inputs {
		x, ok := in[port.Name]
		if port.Role == models.Parameter {
			if x, ok = m.weights[prefix+port.Name]; !ok {
				t.Fatalf("%s reads the parameter %q, which the layout does not have", p.Name, prefix+port.Name)
			}
		}
		if !ok {
			t.Fatalf("%s has the input %q, which package ports does not name for it", p.Name, port.Name)
		}
		switch port.DType {
		case models.F32, models.F16, models.BF16: // the interpreter computes 16-bit values exactly
			x.Type = port.DType
		}
		own[port.Name] = x
	}
	out := must(g.Run(own))(t)
	return out
}

// angles returns the cosines and sines of positions 0 to n-1 for layers of a kind.
func (m interpreted) angles(n, kind int) (cos, sin graphtest.Tensor) {
	k := m.Kinds[kind]
	cos, sin = graphtest.Zeros(n, len(k.Frequencies)), graphtest.Zeros(n, len(k.Frequencies))
	for p := range n {
		for i, f := range k.Frequencies {
			s, c := math.Sincos(float64(p) * float64(f))
			sin.Row(p)[i], cos.Row(p)[i] = s*float64(k.Scale), c*float64(k.Scale)
		}
	}
	return cos, sin
}

// packed returns the inputs of a layer of a kind other than weights and states, for sequences of the given lengths in
// rows of T places, with attention in so many blocks. The sequences share their first shared tokens, which are packed
// first, and then each sequence's own. See graph.Packing for copies and copied.
func (m interpreted) packed(lengths []int, shared, T, blocks, kind int) tensors {
	n := shared
	for _, length := range lengths {
		n += length - shared
	}
	M, J := max(1, shared), 1
	if shared > 0 {
		J = len(lengths)
	}
	pos, tokens, rows, copies := make([]int, n), make([]int, n), make([]int, len(lengths)*T), make([]int, M*J)
	valid, copied := graphtest.Zeros(len(lengths), T, 1), graphtest.Zeros(M, 1, J)
	ownFrom := shared
	for b, length := range lengths {
		for t := range T {
			at := ownFrom + t - shared
			switch {
			case t >= length:
				at = ownFrom / 2 // padding may hold any token
			case t < shared:
				at = t
				copies[t*J+b], copied.Data[t*J+b] = b*T+t, 1
			}
			rows[b*T+t] = at
			if t < length && (t >= shared || b == 0) { // the first sequence has the shared ones
				pos[at], tokens[at], valid.Row(b)[t] = t, b*T+t, 1
			}
		}
		ownFrom += length - shared
	}
	if shared == 0 { // these inputs cannot be empty: the first token counts as shared, with one copy
		copies[0], copied.Data[0] = tokens[0], 1
	}
	in := tensors{
		ports.Positions: graphtest.Ints(pos, n, 1), ports.PackedRows: graphtest.Ints(rows, len(lengths), T),
		ports.PackedTokens: graphtest.Ints(tokens), ports.Valid: valid, ports.Mask: causal(T, 0), ports.Band: causal(T, m.Kinds.Window()),
		ports.TokenCopies: graphtest.Ints(copies, M, J), ports.TokenCopied: copied,
	}
	in[ports.Cos], in[ports.Sin] = m.angles(T, kind)
	bounds := make([]int, blocks+1)
	for i := range bounds {
		bounds[i] = i * T / blocks
	}
	in[ports.BlockBounds] = graphtest.Ints(bounds)
	return in
}

// causal returns the mask for rows of T tokens that see a window of keys, or all if it is 0.
func causal(T, window int) graphtest.Tensor {
	mask := graphtest.Zeros(T, T)
	for i := range T {
		for j := range T {
			if j > i || window > 0 && j <= i-window {
				mask.Row(i)[j] = -math.MaxFloat32
			}
		}
	}
	return mask
}

// forward returns the normed states [N,D] of the tokens of all sequences, one after the
// other, as training's layers and norm compute them.
func (m interpreted) forward(t testing.TB, sequences [][]int, blocks int) graphtest.Tensor {
	t.Helper()
	var lengths, ids []int
	for _, s := range sequences {
		lengths, ids = append(lengths, len(s)), append(ids, s...)
	}
	rows := must(m.Rows())(t)
	x := m.run(t, rows.Embed, "", tensors{ports.Table: m.weights[m.Embedding], ports.RowIDs: graphtest.Ints(ids)})[ports.RowsOut]
	for layer := range m.Layers {
		program, _ := must2(m.Layer(m.Kind(layer), false, blocks))(t)
		in := m.packed(lengths, 0, slices.Max(lengths), blocks, m.Kind(layer))
		in[ports.Stream] = x
		x = m.run(t, program, m.LayerPrefix(layer), in)[ports.StreamOut]
	}
	norm, _ := must2(m.Architecture.Norm())(t)
	return m.run(t, norm, "", tensors{ports.Stream: x, ports.InverseTemperature: graphtest.Floats([]float64{1})})[ports.Normed]
}

// checkWeights compares the weights that the Programs read, and those to which they give gradients, with the layout.
// The runtime computes the gradients of the embedding and of the head from other gradients.
func checkWeights(t testing.TB, _ string, m models.Model, w *models.Weights) {
	for _, a := range architectures(t, m, nil) {
		g := a.Geometry()
		_, norm := must2(a.Norm())(t)
		all := []models.Program{norm}
		read := map[string]bool{g.Embedding: true, g.Head: true}
		hasGradient := map[string]bool{g.Embedding: true, g.Head: true}
		collect := func(p models.Program, prefix string) {
			for _, port := range p.Inputs {
				if port.Role == models.Parameter {
					read[prefix+port.Name] = true
				}
			}
			for _, port := range p.Outputs {
				if port.Role == models.Gradient {
					hasGradient[prefix+port.Of] = true
				}
			}
		}
		collect(norm, "")
		for i := range g.Layers {
			_, layer := must2(a.Layer(g.Kind(i), false, oneBlock))(t)
			collect(layer, a.LayerPrefix(i))
			all = append(all, layer)
		}
		for _, name := range w.Layout.ReadNames() {
			if !read[name] || !hasGradient[name] {
				t.Errorf("%q is read: %t, has a gradient: %t", name, read[name], hasGradient[name])
			}
		}
		if n := len(w.Layout.ReadNames()); len(read) != n || len(hasGradient) != n {
			t.Errorf("%d weights are read and %d have gradients, the layout has %d", len(read), len(hasGradient), n)
		}
		for _, p := range all {
			for out, in := range p.Alias {
				if !slices.ContainsFunc(p.Inputs, func(port models.Port) bool { return port.Name == in }) || strings.TrimSpace(out) == "" {
					t.Errorf("%s writes %q onto %q, which it does not have", p.Name, out, in)
				}
			}
		}
	}
}
