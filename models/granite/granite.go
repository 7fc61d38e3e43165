// Package granite makes the dense models of Granite 3 known to package models. Import it for
// effect.
//
// Granite is a Llama with four factors: of the embedding, of what each half of a layer adds to
// the stream, of the scores of attention and of the logits.
package granite

import (
	"onering/models"
	"onering/models/decoder"
)

func init() { models.Register("granite", "the dense models of Granite 3", open) }

// open reads a config.json: Llama's layers with factors of the embedding, the stream, the scores and the logits.
func open(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("GraniteForCausalLM")
	s := decoder.Shape{Sizes: models.Sizes{MaxPositions: 2048}, RopeTheta: 10000, RMSEps: 1e-6, Names: decoder.LlamaNames}
	factor := func(key string) float64 {
		n := c.Number(key, 1)
		if !(n > 0) {
			c.Fail("%s (%g) must be positive", key, n)
		}
		return n
	}
	s.Block.EmbeddingScale, s.Block.ResidualScale = factor("embedding_multiplier"), factor("residual_multiplier")
	s.Block.AttentionScale, s.Block.LogitScale = factor("attention_multiplier"), 1/factor("logits_scaling")
	c.Decode("attention_bias", &s.Block.QKVBias, "true or false")
	c.Decode("mlp_bias", &s.Block.MLPBias, "true or false")
	s.Block.OBias = s.Block.QKVBias
	return decoder.Read(c, s)
}
