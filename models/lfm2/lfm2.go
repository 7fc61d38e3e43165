// Package lfm2 makes Liquid AI's LFM2 and LFM2.5 known to package models. Import it for
// effect.
//
// Most layers of LFM2 have a gated convolution over a few tokens in place of attention (Liquid
// AI 2025, "LFM2 Technical Report", section 2): of three products B, C and u of the normed
// stream, the layer adds (C * conv(B * u)) Wout^T. The others are those of Qwen3.
package lfm2

import (
	"slices"
	"strconv"

	"onering/models"
	"onering/models/decoder"
)

func init() { models.Register("lfm2", "the dense models of LFM2 and LFM2.5", open) }

// open reads a config.json. Which layers have attention it takes from layer_types or from full_attn_idxs; the others
// have a convolution.
func open(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("Lfm2ForCausalLM")
	c.Only("use_pos_enc", "true")
	c.Only("block_use_swiglu", "true")
	c.Only("use_sliding_window", "false")
	s := design()
	s.RMSEps = c.Number("norm_eps", s.RMSEps)
	s.Block.Taps = c.SizeOr("conv_L_cache", s.Block.Taps)
	c.Decode("conv_bias", &s.Block.ConvBias, "true or false")
	s.Other = &decoder.Other{Type: "conv", Mixer: models.Convolution, At: func(int) bool { return false }} // if neither is stated
	if key := "full_attn_idxs"; c.Has(key) {
		var full []int
		c.Decode(key, &full, "a list of layers")
		s.Other.At = func(layer int) bool { return !slices.Contains(full, layer) }
	}
	s.FFN = c.SizeOr("block_ff_dim", s.FFN)
	s, err := decoder.Read(c, s)
	s.FFN = adjusted(c, c.SizeOr("block_ff_dim", s.FFN)) // again: Read prefers intermediate_size
	for _, key := range []string{"block_dim", "conv_dim", "conv_dim_out"} {
		c.Only(key, strconv.Itoa(s.Hidden))
	}
	c.Decode("tie_embedding", &s.Tied, "true or false")
	if err == nil {
		err = c.Err()
	}
	return s, err
}

// adjusted is the width that layers have for a stated one.
func adjusted(c *models.ConfigFile, ffn int) int {
	adjusts := true
	c.Decode("block_auto_adjust_ff_dim", &adjusts, "true or false")
	of := c.SizeOr("block_multiple_of", 256)
	factor := c.Number("block_ffn_dim_multiplier", 1)
	if !adjusts || c.Err() != nil {
		return ffn
	}
	return (int(factor*float64(2*ffn/3)) + of - 1) / of * of
}

// design returns an LFM2. Its values are the defaults of transformers' Lfm2Config.
func design() decoder.Shape {
	names := decoder.LlamaNames
	names.Norm, names.InputNorm, names.BeforeMLPNorm = "model.embedding_norm.weight", "operator_norm.weight", "ffn_norm.weight"
	names.QNorm, names.KNorm, names.O = "self_attn.q_layernorm.weight", "self_attn.k_layernorm.weight", "self_attn.out_proj"
	names.Gate, names.Up, names.Down, names.GateUp = "feed_forward.w1", "feed_forward.w3", "feed_forward.w2", "feed_forward.w13"
	names.ConvIn, names.Conv, names.ConvOut = "conv.in_proj", "conv.conv", "conv.out_proj"
	return decoder.Shape{
		Sizes:     models.Sizes{Vocab: 65536, Hidden: 2560, FFN: 12288, Layers: 32, Heads: 32, KVHeads: 8, MaxPositions: 128000},
		RopeTheta: 1e6, RMSEps: 1e-5, Tied: true, Names: names, Block: decoder.Block{QKNorm: true, Taps: 3},
	}
}
