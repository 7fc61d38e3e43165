package decoder

import "onering/models"

// Layout places the weights of s in one arena. The weights of q, k and v are fused, and so are those of gate and up;
// all others are plain. It panics for a shape that Architecture refuses.
func (s Shape) Layout() *models.Layout {
	l, err := models.NewLayout(s.fused())
	if err != nil {
		panic(err)
	}
	return l
}

// A module is a matrix product of the model: its name and the number of its outputs.
type module struct {
	name string
	rows int
}

func (s Shape) qkv() []module {
	hk, gk := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	if s.Block.OutputGate {
		hk *= 2
	}
	return []module{{s.Names.Q, hk}, {s.Names.K, gk}, {s.Names.V, gk}}
}

func (s Shape) gateUp() []module {
	return []module{{s.Names.Gate, s.FFN}, {s.Names.Up, s.FFN}}
}

// fused is the table of all weights, in the order in which a forward pass reads them:
// Hugging Face's names and shapes, and which tensors graphs read as one matrix.
func (s Shape) fused() []models.Fused {
	d, n, b := s.Hidden, s.Names, s.Block
	table := []models.Fused{models.Plain(n.Embedding, s.Vocab, d)}
	for i := range s.Layers {
		prefix := s.LayerPrefix(i)
		norm := func(name string, size int) {
			if name != "" {
				table = append(table, models.Plain(prefix+name, size))
			}
		}
		product := func(name string, in int, bias bool, parts ...module) {
			table = append(table, s.stacked(prefix, name, ".weight", parts, in))
			if bias {
				table = append(table, s.stacked(prefix, name, ".bias", parts))
			}
		}
		norm(n.InputNorm, d)
		m := s.mixer(s.kind(i))
		product(m.in.name, d, m.bias, m.in.modules...)
		for _, v := range m.otherWeights {
			table = append(table, models.Plain(prefix+v.Name, v.Shape...))
		}
		product(m.out.name, m.out.inputWidth, m.outBias, m.out.modules...)
		norm(n.AfterMixerNorm, d)
		norm(n.BeforeMLPNorm, d)
		product(n.GateUp, d, b.MLPBias, s.gateUp()...)
		product(n.Down, s.FFN, b.MLPBias, module{n.Down, d})
		norm(n.AfterMLPNorm, d)
	}
	table = append(table, models.Plain(n.Norm, d))
	if !s.Tied {
		table = append(table, models.Plain(n.Head, s.Vocab, d))
	}
	return table
}

// normWidth is the width of the QKNorm of so many heads.
func (s Shape) normWidth(heads int) int {
	if s.Block.WideNorm {
		return heads * s.HeadDim
	}
	return s.HeadDim
}

// stacked is concat of tensors that the file has as one if the block is Fused.
func (s Shape) stacked(prefix, name, kind string, parts []module, columns ...int) models.Fused {
	f := concat(prefix, name, kind, parts, columns...)
	f.Whole = s.Block.Fused && len(parts) > 1
	return f
}

// concat stacks the weights or the biases of products with one operand.
func concat(prefix, name, kind string, parts []module, columns ...int) models.Fused {
	var specs []models.Spec
	for _, p := range parts {
		specs = append(specs, models.Spec{Name: prefix + p.name + kind, Shape: append([]int{p.rows}, columns...)})
	}
	return models.Concat(prefix+name+kind, specs...)
}
