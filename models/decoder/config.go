package decoder

import (
	"strconv"

	"onering/models"
)

// Read completes s, which holds transformers' defaults for a family and its block, from the keys of config.json that
// all families share, in either style: rope_theta, rope_scaling and torch_dtype at the top, as most published models
// have it, or rope_parameters and dtype, as transformers 5 writes. Anything that the graphs do not compute (experts,
// other scalings of the rotary embedding, quantized weights ...) is an error that names the key. Keys that the family
// has read before are its own matter.
func Read(c *models.ConfigFile, s Shape) (Shape, error) {
	if how := c.Object(models.Quantized); how != nil {
		var method, kind string
		how.Decode("quant_method", &method, "a text")
		how.Decode("bnb_4bit_quant_type", &kind, "a text")
		if method != "bitsandbytes" || kind != "nf4" {
			c.Fail("%s %.60s: quantized weights are not supported, but for those of bitsandbytes in nf4: if the tensors have 16 bits or more, "+
				"as after a merge of QLoRA, remove this key from config.json; else name the model that was quantized, and hold it with --base-dtype",
				models.Quantized, c.JSON(models.Quantized))
		}
	}
	for _, only := range fixed { // keys that the graphs compute with one value alone
		if !c.Seen(only.key) { // a family that has read the key computes it
			c.Only(only.key, only.value)
		}
	}
	for _, key := range []string{"qk_norm", "use_qk_norm", "qk_layernorm"} {
		c.Only(key, strconv.FormatBool(s.Block.QKNorm))
	}
	for _, size := range []struct {
		key string
		of  *int
	}{{"vocab_size", &s.Vocab}, {"hidden_size", &s.Hidden}, {"intermediate_size", &s.FFN}, {"num_hidden_layers", &s.Layers}, {"num_attention_heads", &s.Heads}} {
		if *size.of == 0 || c.Has(size.key) { // a family without a default
			*size.of = c.Size(size.key)
		}
	}
	s.KVHeads = readKVHeads(c, s)
	switch {
	case c.Has("head_dim"):
		s.HeadDim = c.Size("head_dim")
	case s.HeadDim != 0 || c.Err() != nil: // the family's default; after an error s.Heads may be 0
	case s.Hidden%s.Heads != 0:
		c.Fail("hidden_size (%d) must be divisible by num_attention_heads (%d)", s.Hidden, s.Heads)
	default:
		s.HeadDim = s.Hidden / s.Heads
	}
	s.MaxPositions = c.SizeOr("max_position_embeddings", s.MaxPositions)
	s.RMSEps = c.Number("rms_norm_eps", s.RMSEps)
	c.Decode("tie_word_embeddings", &s.Tied, "true or false")
	if err := c.Err(); err != nil {
		return s, err
	}
	for range 2 { // checks the sizes, on which readKinds depends, and then what that has read
		if err := s.validate(); err != nil {
			c.Fail("%w", err)
			break
		}
		if s.Kinds == nil {
			s = readKinds(c, s)
		}
	}
	return s, c.Err()
}

// readKVHeads returns num_key_value_heads, with the meaning of transformers: null means
// the number of heads, and without the key the family's default in s counts.
func readKVHeads(c *models.ConfigFile, s Shape) int {
	const key = "num_key_value_heads"
	if c.JSON(key) != nil || s.KVHeads == 0 {
		return c.SizeOr(key, s.Heads)
	}
	if s.Heads%s.KVHeads != 0 {
		c.Fail("no %s, and transformers' default for this family, %d, does not divide num_attention_heads (%d): state it", key, s.KVHeads, s.Heads)
	}
	return s.KVHeads
}

// fixed lists keys whose other values would change the computation in any family, with
// the only value that the graphs compute, as JSON. A key that must be absent has "null".
var fixed = []struct{ key, value string }{
	{"hidden_act", `"silu"`},
	{"compression_config", "null"},
	// Positions.
	{"rotary_pct", "1"}, {"rope_interleaved", "false"}, {"rope_local_base_freq", "null"},
	{"position_embedding_type", `"rope"`}, {"alibi", "false"}, {"use_mrope", "false"},
	// Attention.
	{"use_sliding_window", "false"}, {"attention_chunk_size", "null"}, {"attention_multiplier", "null"}, {"query_pre_attn_scalar", "null"}, {"clip_qkv", "null"},
	{"attn_logit_softcapping", "null"}, {"attention_logit_softcapping", "null"}, {"attn_logit_cap", "null"}, {"kv_lora_rank", "null"}, {"q_lora_rank", "null"},
	{"use_attention_sinks", "false"}, {"is_causal", "true"}, {"use_bidirectional_attention", "false"},
	// Experts.
	{"num_experts", "0"}, {"num_local_experts", "0"}, {"n_routed_experts", "0"}, {"num_experts_per_tok", "0"}, {"moe_intermediate_size", "0"},
	// Layers and the parts around them.
	{"parallel_attn", "false"}, {"use_parallel_residual", "false"}, {"num_nextn_predict_layers", "0"},
	{"residual_multiplier", "1"}, {"embedding_multiplier", "1"}, {"scale_emb", "1"}, {"scale_depth", "null"},
	{"logit_scale", "1"}, {"logits_scaling", "1"}, {"final_logit_softcapping", "null"},
}
