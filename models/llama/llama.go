// Package llama makes the Llama family known to package models: Llama 2 and 3,
// SmolLM2, and the models distilled into them. Import it for effect.
//
// Biases are settings of a model (attention_bias, mlp_bias). From 3.1 on the
// rotary embedding is scaled (Llama Team 2024, "The Llama 3 Herd of Models");
// package decoder reads that for every family.
package llama

import (
	"onering/models"
	"onering/models/decoder"
)

func init() { models.Register("llama", "Llama 2 and 3, SmolLM2, DeepSeek-R1-Distill-Llama", open) }

func open(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("LlamaForCausalLM")
	c.Only("use_sliding_window", "false")
	c.Only("sliding_window", "null")
	s := design(models.Sizes{MaxPositions: 2048})
	c.Decode("attention_bias", &s.Block.QKVBias, "true or false")
	c.Decode("mlp_bias", &s.Block.MLPBias, "true or false")
	s.Block.OBias = s.Block.QKVBias
	return decoder.Read(c, s)
}

// design returns a Llama of these sizes. Other values are the defaults of transformers' LlamaConfig.
func design(sizes models.Sizes) decoder.Shape {
	return decoder.Shape{Sizes: sizes, RopeTheta: 10000, RMSEps: 1e-6, Names: decoder.LlamaNames}
}
