// Package mistral makes the Mistral family known to package models: Mistral 7B, Ministral and
// Ministral 3. Import it for effect.
//
// Mistral is a Llama whose layers may see only the newest tokens (Jiang et al. 2023,
// "Mistral 7B", section 2). In Ministral some layers see all of them. Ministral 3 has no
// windows, stretches the rotary embedding by yarn and lets queries grow with their position.
package mistral

import (
	"onering/models"
	"onering/models/decoder"
)

func init() {
	models.Register("mistral", "Mistral 7B, Mistral Nemo, Mistral Small", mistral)
	models.Register("ministral", "Ministral with layers of two kinds", ministral)
	models.Register("ministral3", "Ministral 3", ministral3)
}

func mistral(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("MistralForCausalLM")
	return decoder.Read(c, design())
}

func ministral(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("MinistralForCausalLM")
	s := design()
	s.Sliding.Every = 1 << 20 // layer_types says which layers have no window
	return decoder.Read(c, s)
}

func ministral3(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("Ministral3ForCausalLM")
	s := design()
	s.Sizes = models.Sizes{Vocab: 131072, Hidden: 4096, FFN: 14336, Layers: 34, Heads: 32, KVHeads: 8, HeadDim: 128, MaxPositions: 262144}
	s.RMSEps, s.RopeTheta, s.Sliding.Default = 1e-5, 1e6, 0
	if !c.Has("rope_scaling") {
		c.Default("rope_parameters", `{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "original_max_position_embeddings": 16384, "mscale": 1, "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1}`)
	}
	if r := decoder.RopeObject(c); r != nil {
		s.Block.QueryScale = r.Number("llama_4_scaling_beta", 0)
		s.Block.QueryLength = r.SizeOr("original_max_position_embeddings", s.MaxPositions)
	}
	return decoder.Read(c, s)
}

// design returns a Mistral. Its values are the defaults of transformers' MistralConfig.
func design() decoder.Shape {
	return decoder.Shape{
		Sizes:     models.Sizes{Vocab: 32000, Hidden: 4096, FFN: 14336, Layers: 32, Heads: 32, KVHeads: 8, MaxPositions: 131072},
		RopeTheta: 10000, RMSEps: 1e-6, Names: decoder.LlamaNames, Sliding: &decoder.Sliding{Default: 4096},
	}
}
