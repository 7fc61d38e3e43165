// Package decoder builds the Programs of decoder-only language models: the graphs that
// compute prompts, decode, sample, and run layers and head forward and backward. A family
// of models describes its layers by a Shape; see package qwen2.
//
// Every layer is pre-norm attention with rotary embeddings and grouped key/value
// heads, and pre-norm SwiGLU, each added onto a stream of width D:
//
//	x = x + Attention(RMSNorm(x)) Wo^T
//	x = x + (silu(h Wgate^T) * (h Wup^T)) Wdown^T, with h = RMSNorm(x)
//
// Families differ in Block and Names.
package decoder

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"onering/models"
)

// A Shape is a decoder-only model without its weights. It implements
// models.Design.
type Shape struct {
	models.Sizes
	RopeTheta float64 // rope_theta, the base of the rotary embedding
	// RopeFrequencies [K/2] are as in Geometry; nil means RopeTheta^(-2i/K).
	RopeFrequencies []float32
	// Unturned says for each layer whether it has no rotary embedding; nil if all have
	// one.
	Unturned []bool
	RMSEps   float64 // rms_norm_eps, added to the mean square in every norm
	Tied     bool    // the embedding is also the head, which has no tensor then
	Block    Block
	Names    names
}

// A Block says what the layers of a family have in addition to what all families have.
type Block struct {
	// QKVBias adds biases to the products of queries, keys and values, OBias to the
	// product after attention, and MLPBias to the three of SwiGLU.
	QKVBias, OBias, MLPBias bool
	// QKNorm puts an RMSNorm over each head of the queries and keys, before the rotary
	// embedding. Its weights [K] are the same for all heads.
	QKNorm bool
}

// An Architecture builds the Programs of a Shape for one way of computing. It
// implements models.Architecture.
type Architecture struct {
	Shape
	models.Compute
}

var (
	_ models.Design       = Shape{}
	_ models.Architecture = Architecture{}
)

// Architecture implements models.Design. The error names an impossible size by
// its key in config.json.
func (s Shape) Architecture(c models.Compute) (models.Architecture, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if !slices.Contains([]models.DType{models.Invalid, models.F32, models.BF16, models.F16}, c.Type) {
		return nil, fmt.Errorf("graphs compute in F32, BF16 or F16, not %v", c.Type)
	}
	a := Architecture{s, c}
	if err := a.checkBase(); err != nil {
		return nil, err
	}
	return a, a.checkAdapter()
}

// Geometry returns the sizes and names that a runtime needs to run the model.
func (a Architecture) Geometry() models.Geometry {
	g := models.Geometry{
		Sizes: a.Sizes, RopeTheta: a.RopeTheta, RopeFrequencies: a.frequencies(), Unturned: a.Unturned,
		CacheParts: a.cacheParts(), CacheWidth: a.cacheWidth(), States: a.states(), Compute: a.compute(),
		Embedding: a.Names.Embedding, Head: a.Names.Head, Norm: a.Names.Norm,
	}
	if a.Tied {
		g.Head = g.Embedding
	}
	return g
}

// states returns what the cache keeps of a row.
func (a Architecture) states() (list []models.State) {
	for i := range a.Layers {
		for _, role := range []models.Role{models.Keys, models.Values} {
			list = append(list, models.State{Use: models.Use{Role: role, Layer: i}, Type: a.compute(), Shape: []int{a.KVHeads, a.cacheWidth()}})
		}
	}
	return list
}

// frequencies returns RopeFrequencies, or their default.
func (s Shape) frequencies() []float32 {
	if s.RopeFrequencies != nil {
		return s.RopeFrequencies
	}
	return rope{theta: s.RopeTheta}.frequencies(s.HeadDim)
}

// turns says whether a layer has a rotary embedding.
func (s Shape) turns(layer int) bool { return s.Unturned == nil || !s.Unturned[layer] }

// LayerPrefix is the beginning of the names of layer i's weights.
func (s Shape) LayerPrefix(i int) string { return fmt.Sprintf(s.Names.Layer, i) }

// maxSize bounds every width, so that the product of two widths cannot overflow.
const maxSize = 1 << 24

// validate reports impossible values in s, by their keys in config.json.
func (s Shape) validate() error {
	for _, size := range []struct {
		key        string
		value, max int
	}{
		{"vocab_size", s.Vocab, maxSize}, {"hidden_size", s.Hidden, maxSize}, {"intermediate_size", s.FFN, maxSize},
		{"num_hidden_layers", s.Layers, 1 << 12}, {"num_attention_heads", s.Heads, 1 << 12}, {"num_key_value_heads", s.KVHeads, 1 << 12},
		{"head_dim", s.HeadDim, 1 << 12}, {"max_position_embeddings", s.MaxPositions, 1 << 30},
	} {
		if size.value < 1 || size.value > size.max {
			return fmt.Errorf("%s (%d) must be from 1 to %d", size.key, size.value, size.max)
		}
	}
	switch {
	case s.Heads%s.KVHeads != 0:
		return fmt.Errorf("num_attention_heads (%d) must be divisible by num_key_value_heads (%d)", s.Heads, s.KVHeads)
	case s.HeadDim%2 != 0:
		return fmt.Errorf("head_dim (%d) must be even: the rotary embedding turns pairs", s.HeadDim)
	case !(s.RopeTheta > 0) || math.IsInf(s.RopeTheta, 0):
		return fmt.Errorf("rope_theta (%g) must be positive", s.RopeTheta)
	case s.RopeFrequencies != nil && len(s.RopeFrequencies) != s.HeadDim/2:
		return fmt.Errorf("%d frequencies of the rotary embedding for head_dim (%d): it takes half as many", len(s.RopeFrequencies), s.HeadDim)
	case s.Unturned != nil && len(s.Unturned) != s.Layers:
		return fmt.Errorf("%d layers with or without rotary embedding, but num_hidden_layers is %d", len(s.Unturned), s.Layers)
	case !(s.RMSEps > 0) || s.RMSEps > 1:
		return fmt.Errorf("rms_norm_eps (%g) must be positive and at most 1", s.RMSEps)
	}
	_, err := models.NewLayout(s.fused())
	return err
}

// compute returns the type in which the layers compute, and the element type of their products.
func (a Architecture) compute() models.DType { return cmp.Or(a.Type, models.F32) }
