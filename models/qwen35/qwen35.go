// Package qwen35 makes the text models of Qwen3.5 and Qwen3.6 known to package models. Import
// it for effect.
//
// Three of four layers have the gated delta rule in place of attention (Yang, Kautz, Hatamizadeh
// 2024, "Gated Delta Networks"; Qwen Team 2026, "Qwen3.5"): after a convolution over four tokens
// each head keeps a matrix that later tokens decay and correct. The other layers are those of
// Qwen3 with a gate behind attention and a turn of a quarter of each head. Norms multiply by
// 1 + weight.
package qwen35

import (
	"onering/models"
	"onering/models/decoder"
)

func init() { models.Register("qwen3_5_text", "the dense text models of Qwen3.5 and Qwen3.6", open) }

// open reads a config.json into the shape of design: each full_attention_interval-th layer has attention with a gate,
// and the others have the delta rule.
func open(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("Qwen3_5ForCausalLM")
	c.Only("attn_output_gate", "true")
	c.Only("use_sliding_window", "false")
	s := design()
	delta := &s.Block.Delta
	s.Block.Taps = c.SizeOr("linear_conv_kernel_dim", s.Block.Taps)
	delta.KeyHeads, delta.KeyWidth = c.SizeOr("linear_num_key_heads", delta.KeyHeads), c.SizeOr("linear_key_head_dim", delta.KeyWidth)
	delta.ValueHeads, delta.ValueWidth = c.SizeOr("linear_num_value_heads", delta.ValueHeads), c.SizeOr("linear_value_head_dim", delta.ValueWidth)
	every := c.SizeOr("full_attention_interval", 4)
	s.Other = &decoder.Other{Type: "linear_attention", Mixer: models.DeltaRule, At: func(layer int) bool { return (layer+1)%max(1, every) != 0 }}
	c.Decode("attention_bias", &s.Block.QKVBias, "true or false")
	s.Block.OBias = s.Block.QKVBias
	if r := decoder.RopeObject(c); r != nil { // how parts of a head turn by the places of images; for text all are the same
		r.Has("mrope_section") // marks the key as seen: Read refuses others
		r.Has("mrope_interleaved")
	}
	return decoder.Read(c, s)
}

// design returns a Qwen3.5. Its values are the defaults of transformers' Qwen3_5TextConfig.
func design() decoder.Shape {
	names := decoder.LlamaNames.Within("model.", "", "mtp.") // some folders have heads that predict further tokens
	names.DeltaIn, names.DeltaOut = "linear_attn.in_proj", "linear_attn.out_proj"
	names.DeltaQKV, names.DeltaGate = "linear_attn.in_proj_qkv", "linear_attn.in_proj_z"
	names.DeltaBeta, names.DeltaDecay = "linear_attn.in_proj_b", "linear_attn.in_proj_a"
	names.DeltaConv, names.DeltaNorm = "linear_attn.conv1d", "linear_attn.norm.weight"
	names.DeltaRate, names.DeltaShift = "linear_attn.A_log", "linear_attn.dt_bias"
	return decoder.Shape{
		Sizes:     models.Sizes{Vocab: 248320, Hidden: 4096, FFN: 12288, Layers: 32, Heads: 16, KVHeads: 4, HeadDim: 256, MaxPositions: 32768},
		RopeTheta: 10000, PartialRotary: 0.25, RMSEps: 1e-6, Names: names,
		Block: decoder.Block{QKNorm: true, PlusOne: true, OutputGate: true, Taps: 4,
			Delta: decoder.Delta{KeyHeads: 16, ValueHeads: 32, KeyWidth: 128, ValueWidth: 128}},
	}
}
