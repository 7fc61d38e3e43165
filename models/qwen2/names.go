package qwen2

import (
	"fmt"

	"onering/models"
)

var _ models.Architecture = Config{}

// Weights that decode graphs read fused: the rows of q, k and v, and of gate
// and up, one after the other.
const (
	qkvWeight    = "self_attn.qkv_proj.weight"
	qkvBias      = "self_attn.qkv_proj.bias"
	gateUpWeight = "mlp.gate_up_proj.weight"
)

// LayerPrefix is what comes before the names of layer i's weights.
func (c Config) LayerPrefix(i int) string { return fmt.Sprintf("model.layers.%d.", i) }

// Geometry returns the sizes and names that running the model needs.
func (c Config) Geometry() models.Geometry {
	g := models.Geometry{
		Layers: c.Layers, Hidden: c.HiddenSize, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		FFN: c.FFN, Vocab: c.Vocab, MaxPositions: c.MaxPositions, RopeTheta: c.RopeTheta, CacheWidth: c.cacheWidth(),
		Compute: c.compute(), Embedding: "model.embed_tokens.weight", Head: "lm_head.weight", Norm: "model.norm.weight",
	}
	if c.Tied {
		g.Head = g.Embedding
	}
	return g
}
