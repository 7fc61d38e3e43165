// Package decoder builds the Programs of decoder-only language models: the graphs that
// compute prompts, decode, sample, and run layers and head forward and backward. A family
// of models describes its layers by a Shape; see package qwen2.
//
// Every layer adds attention with rotary embeddings and grouped key/value heads, and then
// SwiGLU, onto a stream of width D:
//
//	x = x + Attention(RMSNorm(x)) Wo^T
//	x = x + (silu(h Wgate^T) * (h Wup^T)) Wdown^T, with h = RMSNorm(x)
//
// Families differ in Block, Kinds and Names.
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
	// Kinds and KindOf are as in Geometry; nil means one kind, with the frequencies
	// RopeTheta^(-2i/K).
	Kinds  models.Kinds
	KindOf []int
	// Sliding says what Read takes for a family some of whose layers may have a window.
	Sliding *Sliding
	// Other says what Read takes for a family some of whose layers have no attention.
	Other *Other
	// PartialRotary is a family's default of partial_rotary_factor: which part of a head is
	// turned. 0 stands for a family that turns whole heads.
	PartialRotary float64
	RMSEps        float64 // rms_norm_eps, added to the mean square in every norm
	Tied          bool    // the embedding is also the head, which has no tensor then
	Block         Block
	Names         names
}

// A Block says what the layers of a family have in addition to what all families have.
type Block struct {
	// QKVBias adds biases to the products of queries, keys and values, OBias to the
	// product after attention, and MLPBias to the three of SwiGLU.
	QKVBias, OBias, MLPBias bool
	// QKNorm puts an RMSNorm over each head of the queries and keys, before the rotary
	// embedding. Its weights [K] are the same for all heads. With WideNorm it is over all
	// heads of a token together, with weights [H*K] and [G*K].
	QKNorm, WideNorm bool
	// PlusOne makes norms multiply by 1 + weight.
	PlusOne bool
	// OutputGate multiplies what attention gives by the sigmoid of gates, which are a second
	// part of each head of the product of queries.
	OutputGate bool
	// Taps is how many tokens a convolution sees, its own and those before it, and ConvBias
	// adds biases to a layer's convolution and its products.
	Taps     int
	ConvBias bool
	// Delta has the sizes of layers with the delta rule.
	Delta Delta
	// GELU takes the place of SiLU, in the approximation by tanh.
	GELU bool
	// Fused is set if the files have queries, keys and values as one tensor, and gate and
	// up as another.
	Fused bool
	// Factors of the embedding, of what each half of a layer adds to the stream, of the
	// scores of attention (0 stands for 1/sqrt(K)) and of the logits; 0 stands for 1.
	EmbeddingScale, ResidualScale, AttentionScale, LogitScale float64
	// AttentionCap and LogitCap c make c tanh(x/c) of scores and of logits; 0 stands for none.
	AttentionCap, LogitCap float64
	// QueryScale b multiplies the queries at position p by 1 + b ln(1 + floor(p/QueryLength)).
	QueryScale  float64
	QueryLength int
}

// An Other says which layers have another mixer than attention: layers with a name in
// layer_types, and where that is absent those for which At is true.
type Other struct {
	Type  string
	Mixer models.Mixer
	At    func(layer int) bool
}

// A Delta has the sizes of the delta rule. Each head of keys serves ValueHeads/KeyHeads heads
// of values that follow each other.
type Delta struct{ KeyHeads, ValueHeads, KeyWidth, ValueWidth int }

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

// Architecture implements models.Design. The error names an impossible size by its key in config.json.
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

// Geometry returns the sizes, kinds of layers, cache states and names that a runtime needs to run the model.
func (a Architecture) Geometry() models.Geometry {
	g := models.Geometry{
		Spare: a.compute() != models.F32 && (a.Provider != models.CPU || a.Compute.Narrow()), // slots of the sampler or the base use the memory better
		Sizes: a.Sizes, RopeTheta: a.RopeTheta, Kinds: a.kinds(), KindOf: a.KindOf, ZeroNorms: a.Block.PlusOne,
		CacheWidth: a.cacheWidth(), States: a.states(), Compute: a.compute(),
		Embedding: a.Names.Embedding, Head: a.Names.Head, Norm: a.Names.Norm, Beside: a.Names.beside, Modules: a.Names.modules,
	}
	if a.Tied {
		g.Head = g.Embedding
	}
	for _, name := range []string{a.Names.AfterMixerNorm, a.Names.AfterMLPNorm} {
		if name != "" {
			g.Normed++ // how many products of a layer have a norm behind them
		}
	}
	return g
}

// kinds returns Kinds or their default. Layers without a window share their Programs, and so do layers with one.
func (s Shape) kinds() models.Kinds {
	list := slices.Clone(s.Kinds)
	if list == nil {
		frequencies, scale := rope{theta: s.RopeTheta}.frequencyTable(s.HeadDim)
		list = models.Kinds{{Frequencies: frequencies, Scale: scale}}
	}
	for i := range list {
		list[i].Program = slices.IndexFunc(list, func(k models.Kind) bool {
			return (k.Window > 0) == (list[i].Window > 0) && k.Mixer == list[i].Mixer
		})
		list[i].Kept = s.mixer(list[i]).storedPerToken + 2*s.FFN
	}
	return list
}

// kind returns the kind of a layer.
func (s Shape) kind(layer int) models.Kind {
	if s.KindOf == nil {
		return s.kinds()[0]
	}
	return s.kinds()[s.KindOf[layer]]
}

// LayerPrefix is the beginning of the names of layer i's weights.
func (s Shape) LayerPrefix(i int) string { return fmt.Sprintf(s.Names.Layer, i) }

// maxSize bounds every width, so that the product of two widths cannot overflow.
const maxSize = 1 << 24

// validate reports impossible values in s, by their keys in config.json.
func (s Shape) validate() error {
	type limit struct {
		key        string
		value, max int
	}
	limits := []limit{
		{"vocab_size", s.Vocab, maxSize}, {"hidden_size", s.Hidden, maxSize}, {"intermediate_size", s.FFN, maxSize},
		{"num_hidden_layers", s.Layers, 1 << 12}, {"num_attention_heads", s.Heads, 1 << 12}, {"num_key_value_heads", s.KVHeads, 1 << 12},
		{"head_dim", s.HeadDim, 1 << 12}, {"max_position_embeddings", s.MaxPositions, 1 << 30},
	}
	if d := s.Block.Delta; d != (Delta{}) {
		limits = append(limits, limit{"linear_num_key_heads", d.KeyHeads, 1 << 12}, limit{"linear_num_value_heads", d.ValueHeads, 1 << 12},
			limit{"linear_key_head_dim", d.KeyWidth, 1 << 12}, limit{"linear_value_head_dim", d.ValueWidth, 1 << 12})
	}
	for _, size := range limits {
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
	case s.KindOf != nil && len(s.KindOf) != s.Layers:
		return fmt.Errorf("kinds of %d layers, but num_hidden_layers is %d", len(s.KindOf), s.Layers)
	case s.Other != nil && (s.Block.Taps < 2 || s.Block.Taps > 64):
		return fmt.Errorf("a convolution over %d tokens (conv_L_cache, linear_conv_kernel_dim): from 2 to 64 are supported", s.Block.Taps)
	case s.Block.Delta != (Delta{}) && s.Block.Delta.ValueHeads%s.Block.Delta.KeyHeads != 0:
		return fmt.Errorf("linear_num_value_heads (%d) must be divisible by linear_num_key_heads (%d)", s.Block.Delta.ValueHeads, s.Block.Delta.KeyHeads)
	case !(s.RMSEps > 0) || s.RMSEps > 1:
		return fmt.Errorf("rms_norm_eps (%g) must be positive and at most 1", s.RMSEps)
	}
	for _, k := range s.Kinds {
		if n := 2 * len(k.Frequencies); n == 0 || n > s.HeadDim || n != 2*len(s.Kinds[0].Frequencies) {
			return fmt.Errorf("%d frequencies of the rotary embedding for head_dim (%d): it takes half as many at most, and as many for all layers", n/2, s.HeadDim)
		}
		if k.Window > 0 && k.Window != s.Kinds.Window() {
			return fmt.Errorf("windows (sliding_window) of %d and %d tokens: one length is supported", k.Window, s.Kinds.Window())
		}
	}
	_, err := models.NewLayout(s.fused()) // an error if there are too many elements
	return err
}

// compute returns the type in which the layers compute, and the element type of their products.
func (a Architecture) compute() models.DType { return cmp.Or(a.Type, models.F32) }
