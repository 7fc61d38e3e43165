// Package gemma makes Gemma 2 and the text models of Gemma 3 known to package models. Import
// it for effect.
//
// Gemma has norms in front of attention and of the gated product, and behind them; they multiply
// by 1 + weight. The gate is a GELU, the embedding is scaled by the root of its width, and most
// layers see only the newest tokens. Gemma 2 bounds the scores and the logits by tanh (Gemma Team
// 2024, "Gemma 2", section 2). Gemma 3 norms the heads of queries and keys instead, and its
// layers with a window have a rotary embedding of their own (Gemma Team 2025, "Gemma 3
// Technical Report", section 2).
package gemma

import (
	"math"

	"onering/models"
	"onering/models/decoder"
)

func init() {
	models.Register("gemma2", "Gemma 2", gemma2)
	models.Register("gemma3_text", "Gemma 3 1B and 270M, and the text models of the others", gemma3)
}

func gemma2(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("Gemma2ForCausalLM")
	s := design(models.Sizes{Vocab: 256000, MaxPositions: 8192})
	s.RopeTheta, s.Sliding = 10000, &decoder.Sliding{Default: 4096, Every: 2}
	s.Block.AttentionCap = softCap(c, "attn_logit_softcapping", 50)
	s.Block.LogitCap = softCap(c, "final_logit_softcapping", 30)
	return read(c, s)
}

func gemma3(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("Gemma3ForCausalLM")
	s := design(models.Sizes{Vocab: 262208, MaxPositions: 131072})
	every := c.SizeOr("sliding_window_pattern", c.SizeOr("_sliding_window_pattern", 6))
	s.RopeTheta, s.Sliding = 1e6, &decoder.Sliding{Default: 4096, Every: every, Plain: true, Theta: c.Number("rope_local_base_freq", 10000)}
	s.Block.QKNorm = true
	s.Block.LogitCap = softCap(c, "final_logit_softcapping", 0)
	return read(c, s)
}

// softCap reads a bound, which null turns off.
func softCap(c *models.ConfigFile, key string, otherwise float64) float64 {
	if c.JSON(key) != nil {
		otherwise = 0
	}
	n := c.Number(key, otherwise)
	if n < 0 {
		c.Fail("%s (%g) must be positive", key, n)
	}
	return n
}

// read reads what both have.
func read(c *models.ConfigFile, s decoder.Shape) (models.Design, error) {
	for _, key := range []string{"hidden_activation", "hidden_act"} {
		c.Only(key, `"gelu_pytorch_tanh"`)
	}
	scalar := c.Number("query_pre_attn_scalar", 256)
	if !(scalar > 0) {
		c.Fail("query_pre_attn_scalar (%g) must be positive", scalar)
	}
	s.Block.AttentionScale = 1 / math.Sqrt(scalar)
	c.Decode("attention_bias", &s.Block.QKVBias, "true or false")
	s.Block.OBias = s.Block.QKVBias
	s, err := decoder.Read(c, s)
	s.Block.EmbeddingScale = math.Sqrt(float64(s.Hidden))
	return s, err
}

// design returns a Gemma with these sizes. Other values are the defaults of transformers'
// Gemma2Config and Gemma3TextConfig.
func design(sizes models.Sizes) decoder.Shape {
	sizes.Hidden, sizes.FFN, sizes.Layers, sizes.Heads, sizes.KVHeads, sizes.HeadDim = 2304, 9216, 26, 8, 4, 256
	names := decoder.LlamaNames
	names.AfterMixerNorm, names.BeforeMLPNorm = names.BeforeMLPNorm, "pre_feedforward_layernorm.weight"
	names.AfterMLPNorm = "post_feedforward_layernorm.weight"
	return decoder.Shape{Sizes: sizes, RMSEps: 1e-6, Tied: true, Names: names, Block: decoder.Block{PlusOne: true, GELU: true}}
}
