// Package qwen2 makes the Qwen2 family known to package models: Qwen2, Qwen2.5
// and the models distilled into them. Import it for effect.
//
// Compared with other decoders, Qwen2 has biases on queries, keys and values (Yang et al.
// 2024, "Qwen2 Technical Report", section 2.2).
package qwen2

import (
	"onering/models"
	"onering/models/decoder"
)

func init() { models.Register("qwen2", "Qwen2, Qwen2.5, DeepSeek-R1-Distill-Qwen", open) }

func open(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("Qwen2ForCausalLM")
	return decoder.Read(c, New(models.Sizes{MaxPositions: 32768, KVHeads: 32}))
}

// New returns a Qwen2 of these sizes. Other values are the defaults of transformers' Qwen2Config.
func New(sizes models.Sizes) decoder.Shape {
	return decoder.Shape{Sizes: sizes, RopeTheta: 10000, RMSEps: 1e-6, Block: decoder.Block{QKVBias: true}, Names: decoder.LlamaNames}
}
