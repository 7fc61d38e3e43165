// Package olmo makes OLMo 2 and OLMo 3 known to package models. Import it for effect.
//
// OLMo norms what attention and SwiGLU add to the stream and not what they read, and norms
// queries and keys over all heads together (OLMo Team 2025, "2 OLMo 2 Furious", section 2).
// In OLMo 3 three of four layers see only the newest tokens; the scaling of the rotary
// embedding is that of the other layers alone.
package olmo

import (
	"onering/models"
	"onering/models/decoder"
)

func init() {
	models.Register("olmo2", "OLMo 2", func(c *models.ConfigFile) (models.Design, error) {
		c.OnlyClass("Olmo2ForCausalLM")
		return read(c, design(10000))
	})
	models.Register("olmo3", "OLMo 3", func(c *models.ConfigFile) (models.Design, error) {
		c.OnlyClass("Olmo3ForCausalLM")
		s := design(500000)
		s.Sliding = &decoder.Sliding{Default: 4096, Every: 4, Plain: true}
		return read(c, s)
	})
}

func read(c *models.ConfigFile, s decoder.Shape) (models.Design, error) {
	c.Decode("attention_bias", &s.Block.QKVBias, "true or false")
	s.Block.OBias = s.Block.QKVBias
	return decoder.Read(c, s)
}

// design returns an OLMo. Its values are the defaults of transformers' Olmo2Config.
func design(theta float64) decoder.Shape {
	names := decoder.LlamaNames
	names.InputNorm, names.AfterMixerNorm, names.BeforeMLPNorm = "", names.BeforeMLPNorm, ""
	names.AfterMLPNorm = "post_feedforward_layernorm.weight"
	return decoder.Shape{Sizes: models.Sizes{MaxPositions: 2048}, RopeTheta: theta, RMSEps: 1e-5, Names: names,
		Block: decoder.Block{QKNorm: true, WideNorm: true}}
}
