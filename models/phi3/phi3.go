// Package phi3 makes Phi-3, Phi-3.5 and Phi-4-mini known to package models. Import it for
// effect.
//
// Phi is a Llama whose files have queries, keys and values as one tensor, and gate and up as
// another. Phi-4-mini turns three quarters of each head, and the rotary embedding may be
// stretched by longrope (Microsoft 2025, "Phi-4-Mini Technical Report", section 2).
package phi3

import (
	"onering/models"
	"onering/models/decoder"
)

func init() { models.Register("phi3", "Phi-3, Phi-3.5, Phi-4, Phi-4-mini", open) }

func open(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("Phi3ForCausalLM")
	return decoder.Read(c, decoder.Shape{Sizes: models.Sizes{MaxPositions: 4096}, RopeTheta: 10000, PartialRotary: 1, RMSEps: 1e-5,
		Names: decoder.LlamaNames, Block: decoder.Block{Fused: true}, Sliding: &decoder.Sliding{}})
}
