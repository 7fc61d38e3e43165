// Package qwen3 makes the dense models of the Qwen3 family known to package
// models. Import it for effect.
//
// Qwen3 has no biases unless attention_bias is set. It norms each head of the
// queries and keys before the rotary embedding (Yang et al. 2025, "Qwen3
// Technical Report", section 2), and the heads together are wider than the model.
package qwen3

import (
	"onering/models"
	"onering/models/decoder"
)

func init() { models.Register("qwen3", "the dense models of Qwen3", open) }

func open(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("Qwen3ForCausalLM")
	c.Only("mlp_bias", "false")
	s := design(models.Sizes{MaxPositions: 32768, KVHeads: 32, HeadDim: 128})
	c.Decode("attention_bias", &s.Block.QKVBias, "true or false")
	s.Block.OBias = s.Block.QKVBias
	return decoder.Read(c, s)
}

// design returns a Qwen3 of these sizes. Other values are the defaults of transformers' Qwen3Config.
func design(sizes models.Sizes) decoder.Shape {
	return decoder.Shape{Sizes: sizes, RopeTheta: 10000, RMSEps: 1e-6, Block: decoder.Block{QKNorm: true}, Names: decoder.LlamaNames}
}
