package qwen2

import "onering/models"

// fused is the table of all weights, in the order in which a forward pass reads
// them: Hugging Face's names and shapes, and the rows that graphs take as one.
func (c Config) fused() []models.Fused {
	d, f, v, hk, gk := c.HiddenSize, c.FFN, c.Vocab, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	names := c.Geometry()
	table := []models.Fused{models.Plain(names.Embedding, v, d)}
	for i := range c.Layers {
		p := c.LayerPrefix(i)
		table = append(table,
			models.Plain(p+inputNorm, d),
			models.Concat(p+qkvWeight,
				models.Spec{Name: p + qWeight, Shape: []int{hk, d}},
				models.Spec{Name: p + kWeight, Shape: []int{gk, d}},
				models.Spec{Name: p + vWeight, Shape: []int{gk, d}}),
			models.Concat(p+qkvBias,
				models.Spec{Name: p + qBias, Shape: []int{hk}},
				models.Spec{Name: p + kBias, Shape: []int{gk}},
				models.Spec{Name: p + vBias, Shape: []int{gk}}),
			models.Plain(p+oWeight, d, hk),
			models.Plain(p+postNorm, d),
			models.Concat(p+gateUpWeight,
				models.Spec{Name: p + gateWt, Shape: []int{f, d}},
				models.Spec{Name: p + upWt, Shape: []int{f, d}}),
			models.Plain(p+downWt, d, f))
	}
	table = append(table, models.Plain(names.Norm, d))
	if !c.Tied {
		table = append(table, models.Plain(names.Head, v, d))
	}
	return table
}

// Layout places the weights of c in one arena: model.layers.N.self_attn.qkv_proj
// {weight, bias} and model.layers.N.mlp.gate_up_proj.weight are fused, all else
// is plain. It panics for a config that Validate refuses.
func (c Config) Layout() *models.Layout {
	l, err := models.NewLayout(c.fused())
	if err != nil {
		panic(err)
	}
	return l
}
