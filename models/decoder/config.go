package decoder

import (
	"slices"

	"onering/models"
)

// Read completes s, which holds a family's defaults and its block, from the keys
// of config.json that all families share, in either style: rope_theta and
// torch_dtype at the top, as most published models have it, or rope_parameters
// and dtype, as transformers 5 writes. What the graphs do not compute (sliding
// windows, scaled rotary embeddings, quantized weights ...) is an error that
// names the key.
func Read(c *models.ConfigFile, s Shape) (models.Design, error) {
	c.Only("hidden_act", `"silu"`)
	c.Only("attention_dropout", "0")
	c.Only("partial_rotary_factor", "1")
	c.Only("quantization_config", "null")

	s.Vocab = c.Size("vocab_size")
	s.Hidden = c.Size("hidden_size")
	s.FFN = c.Size("intermediate_size")
	s.Layers = c.Size("num_hidden_layers")
	s.Heads = c.Size("num_attention_heads")
	s.KVHeads = c.SizeOr("num_key_value_heads", s.Heads)
	switch {
	case c.Has("head_dim"):
		s.HeadDim = c.Size("head_dim")
	case c.Err() == nil && s.Hidden%s.Heads != 0:
		c.Fail("hidden_size (%d) must be divisible by num_attention_heads (%d)", s.Hidden, s.Heads)
	case c.Err() == nil:
		s.HeadDim = s.Hidden / s.Heads
	}
	s.MaxPositions = c.SizeOr("max_position_embeddings", s.MaxPositions)
	s.RMSEps = c.Number("rms_norm_eps", s.RMSEps)
	c.Decode("tie_word_embeddings", &s.Tied, "true or false")
	s.RopeTheta = ropeTheta(c, s.RopeTheta)
	checkLayerTypes(c, s.Layers)
	return s, c.Err()
}

// checkLayerTypes refuses layers without full attention.
func checkLayerTypes(c *models.ConfigFile, layers int) {
	if !c.Has("layer_types") {
		return
	}
	var types []string
	c.Decode("layer_types", &types, "a list of strings")
	for i, t := range types {
		if t != "full_attention" {
			c.Fail(`layer_types: layer %d is %q, which is not supported, only "full_attention"`, i, t)
		}
	}
	if len(types) != layers {
		c.Fail("layer_types names %d layers, num_hidden_layers is %d", len(types), layers)
	}
}

// ropeTheta looks where transformers looks, in its order: rope_scaling or
// rope_parameters, rope_theta, the default.
func ropeTheta(c *models.ConfigFile, otherwise float64) float64 {
	theta := c.Number("rope_theta", otherwise)
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		r := c.Object(key)
		if r == nil {
			continue
		}
		// The type comes first: it says more than the numbers that go with it.
		for _, name := range slices.Concat([]string{"rope_type", "type"}, r.Keys()) {
			switch {
			case !r.Has(name), name == "rope_theta":
			case (name == "rope_type" || name == "type") && r.Is(name, `"default"`):
			case name == "partial_rotary_factor" && r.Is(name, "1"):
			default:
				r.Fail("%s %.60s is not supported, only the default rotary embedding", name, r.JSON(name))
			}
		}
		theta = r.Number("rope_theta", theta)
	}
	return theta
}
