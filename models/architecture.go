package models

// Sizes are the numbers that give a model its shape.
type Sizes struct {
	Layers  int // L, num_hidden_layers
	Hidden  int // D, hidden_size
	Heads   int // H, num_attention_heads
	KVHeads int // G, num_key_value_heads
	HeadDim int // K, head_dim, or D/H where it is not stated
	FFN     int // F, intermediate_size
	Vocab   int // V, vocab_size
	// MaxPositions is max_position_embeddings, the longest sequence.
	MaxPositions int
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
	// Base is the type that holds the layers' matrices where an Adapter is trained in
	// their place: F32 (also Invalid), BF16, F16 or I8, in which every Block elements of
	// a row have a scale. The Programs convert the matrices as they run and compute in
	// Type, which must be F32.
	Base DType
}

// Narrow reports whether the layers' matrices are held only in a type of fewer bits than F32.
func (c Compute) Narrow() bool { return c.Base == BF16 || c.Base == F16 || c.Base == I8 }

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
	// RopeFrequencies [K/2] give the angle by which position p turns pair i of a
	// head: p*RopeFrequencies[i].
	RopeFrequencies []float32
	// Unturned[i] is set if layer i applies no rotary embedding; nil if every
	// layer applies it.
	Unturned []bool
	// CacheParts is the number of cache parts that DecodeParts takes; 1 if there is no
	// such Program.
	CacheParts int
	// CacheWidth is the width of a head in the cache: HeadDim, or the next
	// multiple of 16.
	CacheWidth int
	// Embedding and Head name the [V,D] tensors of the token embedding and of
	// the output head. They name the same tensor if the two are tied.
	Embedding, Head string
	// Norm names the final norm's weight.
	Norm string
	// Compute is the type in which the layers compute: F32, BF16 or F16. The ports of
	// Programs say which weights have that type.
	Compute DType
}

// StashBytes estimates how many bytes the layers and the head store in a forward pass
// over n tokens for the backward pass.
func (g Geometry) StashBytes(level Stash, n int) int {
	size := g.Compute.Size() // bytes of an element, except in the layers' inputs and outputs
	per := 4 * g.Hidden
	if level >= StashAttention {
		per += size*(2*g.Heads*g.HeadDim+2*g.KVHeads*g.HeadDim) + 4*g.Hidden
	}
	if level >= StashAll {
		per += size * 2 * g.FFN
	}
	kept := n * per * g.Layers
	if level >= StashLogits {
		kept += n * 4 * g.Vocab
	}
	return kept
}

// Fuller returns how many layers can store StashAll, if the other layers store level, in
// a pass over n tokens within a number of bytes, and how much all layers store then.
func (g Geometry) Fuller(level Stash, n, bytes int) (layers, kept int) {
	kept = g.StashBytes(level, n)
	if level >= StashAll {
		return g.Layers, kept
	}
	if each := (g.StashBytes(StashAll, n) - kept) / max(1, g.Layers); each > 0 && bytes > kept {
		layers = min(g.Layers, (bytes-kept)/each)
		kept += layers * each
	}
	return layers, kept
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
	// each row of the cache, Sample chooses tokens. DecodeParts is Decode over a cache
	// in CacheParts parts, whose rows have room for different numbers of tokens.
	// DecodeMany is Decode for many rows on a CPU in float32.
	Prefill() (Program, error)
	Decode(form Form) (Program, error)
	DecodeParts(form Form) (Program, error)
	DecodeMany(form Form) (Program, error)
	Sample(choice Choice, form Form) (Program, error)

	// Layer is one decoder layer over packed tokens, forward and backward. The backward
	// graph reads the values that the forward graph stored (see Stash).
	Layer(stash Stash, blocks int) (forward, backward Program, err error)
	// LayerBytes returns the peak memory in bytes of a run of each layer Program,
	// without its inputs and outputs, for n tokens in rows rows of T places.
	LayerBytes(stash Stash, blocks, n, rows, T int) (forward, backward int64, err error)
	// With an Adapter, the backward Programs of Layer, Norm and Head give the gradients
	// of the adapter and of their input, and none of weights.

	// Norm is the final norm with the sampling temperature.
	Norm() (forward, backward Program, err error)
	// Head is the log-softmax over a slice of the vocabulary. backward also takes
	// dL/dentropy if entropyGradient is set, and the stored logits if stash is
	// StashLogits.
	Head(stash Stash, entropyGradient bool) (forward, target, backward Program, err error)
	// Rows are for devices whose memory Go cannot access.
	Rows() (RowPrograms, error)
	// GradNorm is the sum of the squares of a slice of the gradients; any optimizer clips
	// by it.
	GradNorm() (Program, error)
	// Copied returns the range of weight elements, from inclusive to exclusive, that the
	// Programs read from a copy of type Compute. The optimizer's update writes that copy.
	// With a Base of fewer bits it is the range of the matrices in that type, which
	// nothing writes. The range is empty if both are F32.
	Copied() (from, to int)
}

// RowPrograms look rows of float32 matrices up and add them up, for the embedding.
type RowPrograms struct {
	Gather Program // y [n,D] = X[ids]
	Add    Program // rows [n,D] onto X at ids
	Pair   Program // y [m,D] = rows[left] + pair rows[right]
}

// A Form is how a Program for few tokens multiplies: Direct has the weight as the second
// operand of Gemm. Wide has it as the first, so the runtime does not repack it in every
// call, which is faster for about 4 to 64 rows. Paired is Wide with each two rows of a
// weight read as one of twice the length: for few tokens the product is bound by reading
// the weight, and rows of a few kilobytes are read faster the longer they are.
type Form int

// The forms.
const (
	Direct Form = iota
	Wide
	Paired
)

// Forms lists every form.
var Forms = []Form{Direct, Wide, Paired}

// Suffix returns what the name of a Program ends with for this form.
func (f Form) Suffix() string { return [...]string{"", ".wide", ".paired"}[f] }

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

// A Stash says how much of a layer's forward pass is stored for its backward pass.
type Stash int

const (
	// StashInput stores only x [N,D]: backward computes the layer again.
	StashInput Stash = iota
	// StashAttention also stores q, k, v, the attention's output and x2.
	StashAttention
	// StashAll also stores gate and up.
	StashAll
	// StashLogits also stores the logits of the head.
	StashLogits
)
