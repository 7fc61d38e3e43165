package models

import (
	"fmt"
	"slices"
)

// Sizes are the numbers that give a model its shape.
type Sizes struct {
	Layers  int // L, num_hidden_layers
	Hidden  int // D, hidden_size
	Heads   int // H, num_attention_heads
	KVHeads int // G, num_key_value_heads
	HeadDim int // K, head_dim, or D/H where it is not stated
	FFN     int // F, intermediate_size
	Vocab   int // V, vocab_size
	// MaxPositions is the longest sequence: max_position_embeddings, or with Short what a
	// longrope's short_factor is for.
	MaxPositions int
	Short        bool
}

// Context says which key of config.json sets MaxPositions, and what helps where that is too few.
func (s Sizes) Context() string {
	if s.Short {
		return fmt.Sprintf("original_max_position_embeddings is %d, up to which longrope's short_factor counts: "+
			"for longer sequences write the list of long_factor there, too, in config.json", s.MaxPositions)
	}
	return fmt.Sprintf("max_position_embeddings is %d", s.MaxPositions)
}

// A Compute says how Programs compute. The caller chooses it; a model's files do not
// state it.
type Compute struct {
	// Type is the type in which the layers compute: F32 (also Invalid), BF16 or F16.
	Type DType
	// Provider is the provider whose kernels must support the Programs.
	Provider Provider
	// Adapter describes the products that Programs compute beside the model; nil for the model
	// alone.
	Adapter *Adapter
	// Base is the type that holds the layers' matrices where they are not trained, but perhaps
	// an Adapter is in their place: F32 (also Invalid), BF16, F16, I8 or NF4. The Programs
	// convert the matrices as they run and compute in Type, on a CPU: F32 or BF16.
	Base DType
	// Sampled says that tokens are all that is asked of the model: then Base holds the head, too, and
	// an embedding that is the head. A Learner's Programs need them in float32.
	Sampled bool
}

// Narrow reports whether the layers' matrices are held only in a type of fewer bits than F32.
func (c Compute) Narrow() bool {
	return c.Base == BF16 || c.Base == F16 || c.Base == I8 || c.Base == NF4
}

// A Provider is a part of ONNX Runtime with kernels for one kind of device.
type Provider int

// The providers. Programs of 16 bits for a CPU are the same as for CUDA.
const (
	CPU Provider = iota
	CUDA
)

// A Geometry holds the figures of a model that a runtime needs.
type Geometry struct {
	Sizes
	RopeTheta float64
	// Kinds are the kinds of layers, and KindOf[i] is the kind of layer i; nil if there is
	// only one.
	Kinds  Kinds
	KindOf []int
	// Spare says that a run in 16 bits has better uses of memory than activations: on a GPU slots of
	// the sampler, and beside a base of fewer bits the base.
	Spare bool
	// CacheWidth is the width of a head in the cache: HeadDim, or the next
	// multiple of 16.
	CacheWidth int
	// States are what the cache keeps of each row, layer by layer.
	States []State
	// Embedding and Head name the [V,D] tensors of the token embedding and of
	// the output head. They name the same tensor if the two are tied.
	Embedding, Head string
	// Norm names the final norm's weight.
	Norm string
	// Beside are what the names of tensors begin with that the folder has beside the model,
	// such as those of a vision tower.
	Beside []string
	// Modules are what the names of the layers' tensors begin with, and what the paths of
	// their modules in transformers begin with; empty if names are paths.
	Modules [2]string
	// Normed is how many products of a layer have a norm behind them.
	Normed int
	// ZeroNorms is set if norms multiply by 1 + weight, so that new ones are 0.
	ZeroNorms bool
	// Compute is the type in which the layers compute: F32, BF16 or F16. The ports of
	// Programs say which weights have that type.
	Compute DType
}

// A Kind is what the layers of a model may differ in: how they see positions.
type Kind struct {
	// Frequencies [n/2] give the angle by which position p turns pair i of the first n
	// elements of a head: p*Frequencies[i]. The layers have no rotary embedding if all are 0.
	Frequencies []float32 `json:"rope_frequencies"`
	// Scale multiplies the cosines and sines of the angles.
	Scale float32 `json:"rope_scale"`
	// Mixer is what takes tokens of a row together.
	Mixer Mixer `json:"mixer,omitempty"`
	// Window is how many keys a query sees: its own and those right before it; 0 stands for all.
	Window int `json:"window"`
	// Program is the first kind that has the same layer Programs.
	Program int `json:"program"`
	// Kept is how many elements of each token a full layer stores in the type of products,
	// beside elements of the stream.
	Kept int `json:"-"`
}

// A Mixer is what takes the tokens of a row together in a layer.
type Mixer string

// The mixers. Layers with a convolution or the delta rule do not use the angles of their Kind.
const (
	Attention   Mixer = ""
	Convolution Mixer = "convolution"
	DeltaRule   Mixer = "delta rule"
)

// Turns reports whether the layers have a rotary embedding.
func (k Kind) Turns() bool {
	return slices.ContainsFunc(k.Frequencies, func(f float32) bool { return f != 0 })
}

// Kinds are the kinds of a model's layers. All that have a window have the same.
type Kinds []Kind

// FirstWithAngles returns the first kind that has the angles of kind k. Its number is in the names of
// the ports for them; see OfKind.
func (list Kinds) FirstWithAngles(k int) int {
	return slices.IndexFunc(list, func(x Kind) bool {
		return slices.Equal(x.Frequencies, list[k].Frequencies) && x.Scale == list[k].Scale
	})
}

// Window returns the window of the kinds that have one; 0 if none has.
func (list Kinds) Window() (most int) {
	for _, k := range list {
		most = max(most, k.Window)
	}
	return most
}

// Kind returns the number of the kind of a layer.
func (g Geometry) Kind(layer int) int {
	if g.KindOf == nil {
		return 0
	}
	return g.KindOf[layer]
}

// InputBytes is how many bytes a forward pass over n tokens stores at least for its backward
// pass: the input of each layer, from which that computes the layer again.
func (g Geometry) InputBytes(n int) int { return 4 * n * g.Hidden * g.Layers }

// StashBytes is how many bytes a layer stores in addition if it is full, over n tokens, so that
// nothing is computed again, but for the logits.
func (g Geometry) StashBytes(layer, n int) int {
	return n * (g.Compute.Size()*g.Kinds[g.Kind(layer)].Kept + 4*g.Hidden*(1+g.Normed))
}

// FullBytes is how many bytes a forward pass over n tokens stores at most: everything of all layers, and the logits.
func (g Geometry) FullBytes(n int) int {
	all := g.InputBytes(n) + 4*n*g.Vocab
	for i := range g.Layers {
		all += g.StashBytes(i, n)
	}
	return all
}

// Full returns how many layers can be full in a pass over n tokens that stores up to a number
// of bytes, and how many bytes of these are left then.
func (g Geometry) Full(n, bytes int) (layers, left int) {
	left = max(0, bytes-g.InputBytes(n))
	for layers < g.Layers && g.StashBytes(layers, n) <= left {
		left -= g.StashBytes(layers, n)
		layers++
	}
	return layers, left
}

// An Architecture builds the Programs of one model. Each names its weight inputs as the
// Layout does, except for layer Programs, which leave out the LayerPrefix: one session
// serves all layers.
type Architecture interface {
	Geometry() Geometry
	Layout() *Layout
	// AdapterLayout places the tensors of the Compute's Adapter; nil without one.
	// Programs name them without AdapterPrefix, as they name weights.
	AdapterLayout() *Layout
	// LayerPrefix is the beginning of the names of layer i's weights.
	LayerPrefix(i int) string

	// Prefill computes prompts from their start, Decode one more token for
	// each row of the cache, Sample chooses tokens.
	Prefill() (Program, error)
	Decode(form Form) (Program, error)
	Sample(choice Choice, form Form) (Program, error)

	// Layer is one decoder layer of a kind over packed tokens, forward and backward. If it is
	// full, the forward graph also returns q, k, v, the attention's output, x2, gate and up,
	// which the backward graph reads; else that computes the layer again from its input x [N,D].
	Layer(kind int, full bool, blocks int) (forward, backward Program, err error)
	// LayerBytes returns the peak memory in bytes of a run of each layer Program of a kind,
	// without its inputs and outputs, for n tokens in rows rows of T places.
	LayerBytes(kind int, full bool, blocks, n, rows, T int) (forward, backward int64, err error)
	// With an Adapter, the backward Programs of Layer, Norm and Head give the gradients
	// of the adapter and of their input, and none of weights.

	// Norm is the final norm with the sampling temperature.
	Norm() (forward, backward Program, err error)
	// Head is the log-softmax over a slice of the vocabulary.
	Head(form HeadForm) (forward, target, backward Program, err error)
	// Rows are for devices whose memory Go cannot access.
	Rows() (RowPrograms, error)
	// GradNorm is the sum of the squares of a slice of the gradients; any optimizer clips
	// by it.
	GradNorm() (Program, error)
	// Copied returns the range of weight elements, from inclusive to exclusive, that the
	// Programs read from a copy of type Compute. The optimizer's update writes that copy.
	// The range is empty in F32.
	Copied() (from, to int)
	// Held returns the range of weight elements whose matrices are held in a Base of fewer bits
	// alone, which nothing writes. The range is empty without one.
	Held() (from, to int)
}

// A HeadForm says what the Programs of the head do besides the log-softmax.
type HeadForm struct {
	// Full forward Programs return the logits, which their backward Programs take.
	Full bool
	// EntropyGradient is for backward Programs that take dL/dentropy.
	EntropyGradient bool
	// Kept rows are distributions over the tokens of a set, which forward takes, and backward
	// unless it is full.
	Kept bool
	// Squares has forward sum the squares of probabilities.
	Squares bool
}

// RowPrograms look rows of float32 matrices up and add them up, for the embedding.
type RowPrograms struct {
	Gather Program // y [n,D] = X[ids]
	Add    Program // rows [n,D] onto X at ids
	Pair   Program // y [m,D] = rows[left] + pair rows[right]
	// Embed is Gather and Learn is Add for the embedding, which some models scale.
	Embed, Learn Program
}

// A Form is how a Program for few tokens multiplies: Direct has the weight as the second
// operand of Gemm. Wide has it as the first, so the runtime does not repack it in every
// call, which is faster for about 4 to 64 rows.
type Form int

// The forms.
const (
	Direct Form = iota
	Wide
)

// Forms lists every form.
var Forms = []Form{Direct, Wide}

// Suffix returns what the name of a Program ends with for this form.
func (f Form) Suffix() string { return [...]string{"", ".wide"}[f] }

// A Choice is how Sample chooses a token.
type Choice int

const (
	// Draw samples from the whole vocabulary by inverting the cumulative
	// distribution.
	Draw Choice = iota
	// Greedy takes the first largest logit.
	Greedy
	// Candidates chooses no token, but returns the likeliest ones.
	Candidates
)

// Choices lists every choice.
var Choices = []Choice{Draw, Greedy, Candidates}
