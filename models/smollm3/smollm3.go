// Package smollm3 makes the SmolLM3 family known to package models. Import it for
// effect.
//
// SmolLM3 is a Llama that leaves the rotary embedding out of some layers (Bakouch
// et al. 2025, "SmolLM3: smol, multilingual, long-context reasoner").
package smollm3

import (
	"onering/models"
	"onering/models/decoder"
)

func init() { models.Register("smollm3", "SmolLM3", open) }

// open reads a config.json: Llama's layers, some of which have no rotary embedding.
func open(c *models.ConfigFile) (models.Design, error) {
	c.OnlyClass("SmolLM3ForCausalLM")
	s := design(models.Sizes{MaxPositions: 32768, KVHeads: 4})
	c.Decode("attention_bias", &s.Block.QKVBias, "true or false")
	c.Decode("mlp_bias", &s.Block.MLPBias, "true or false")
	s.Block.OBias = s.Block.QKVBias
	s, err := decoder.Read(c, s)
	if err != nil {
		return nil, err
	}
	unturnedKind := s.Kinds[0]
	unturnedKind.Frequencies = make([]float32, len(unturnedKind.Frequencies)) // frequencies of 0 turn nothing
	s.Kinds, s.KindOf = append(s.Kinds, unturnedKind), make([]int, s.Layers)
	for i, without := range unturned(c, s.Layers) {
		if without {
			s.KindOf[i] = 1
		}
	}
	return s, c.Err()
}

// unturned reads which layers have no rotary embedding: those with a 0 (not a 1, despite the
// name) in no_rope_layers or, without such a list, every no_rope_layer_interval-th layer.
func unturned(c *models.ConfigFile, layers int) []bool {
	without := make([]bool, layers)
	interval := c.SizeOr("no_rope_layer_interval", 4)
	if c.Err() != nil {
		return nil
	}
	if !c.Has("no_rope_layers") {
		for i := range without {
			without[i] = (i+1)%interval == 0
		}
		return without
	}
	var turned []int
	c.Decode("no_rope_layers", &turned, "a list of 1 and 0")
	if len(turned) < layers {
		c.Fail("no_rope_layers names %d layers, num_hidden_layers is %d", len(turned), layers)
		return nil
	}
	for i := range without {
		without[i] = turned[i] == 0
	}
	return without
}

// design returns a SmolLM3 of these sizes in which all layers have a rotary embedding.
// Other values are the defaults of transformers' SmolLM3Config.
func design(sizes models.Sizes) decoder.Shape {
	return decoder.Shape{Sizes: sizes, RopeTheta: 2e6, RMSEps: 1e-6, Tied: true, Names: decoder.LlamaNames}
}
