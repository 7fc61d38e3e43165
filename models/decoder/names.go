package decoder

import "strings"

// names are the Hugging Face names of a model's tensors. Names from InputNorm on belong
// to a layer and lack its prefix; for a product they name the module, whose tensors are
// .weight and .bias.
type names struct {
	Embedding, Norm, Head string // names of tensors
	Layer                 string // the format of a layer's prefix, with its index

	// Names of tensors: the norms in front of attention and of SwiGLU, and those of what
	// they add to the stream. The layers of a family lack the norms without a name.
	InputNorm, BeforeMLPNorm     string
	AfterMixerNorm, AfterMLPNorm string
	QNorm, KNorm                 string // names of tensors, if the Block has them
	Q, K, V, O                   string
	Gate, Up, Down               string
	// Modules of layers with a convolution, of which Conv is not a product.
	ConvIn, Conv, ConvOut string
	// Modules of layers with the delta rule, of which DeltaConv is not a product, and tensors:
	// the logarithm of the rate of decay, what is added to its operand, and the norm.
	DeltaQKV, DeltaGate, DeltaBeta, DeltaDecay, DeltaConv, DeltaOut string
	DeltaRate, DeltaShift, DeltaNorm                                string
	// DeltaIn names the matrix of DeltaQKV, DeltaGate, DeltaBeta and DeltaDecay, which
	// decoding reads as one. No model folder has it.
	DeltaIn string
	// QKV and GateUp name the matrices that decoding reads as one: the rows of q, k and
	// v, and of gate and up. A model folder has them only if the Block is Fused.
	QKV, GateUp string

	beside  []string  // see models.Geometry.Beside
	modules [2]string // see models.Geometry.Modules
}

// Within returns the names in the files of a larger model, in which those of the layers, the
// embedding and the norm begin with body in place of "model." and the head's with head, beside
// tensors whose names begin in other ways. Paths of modules begin with path in place of body.
func (n names) Within(body, head, path string, beside ...string) names {
	for _, name := range []*string{&n.Embedding, &n.Norm, &n.Layer} {
		*name = body + strings.TrimPrefix(*name, "model.")
	}
	n.Head, n.beside, n.modules = head+n.Head, beside, [2]string{body, path}
	return n
}

// LlamaNames are the names of Llama, which Qwen2 and many others share.
var LlamaNames = names{
	Embedding: "model.embed_tokens.weight", Norm: "model.norm.weight", Head: "lm_head.weight",
	Layer:     "model.layers.%d.",
	InputNorm: "input_layernorm.weight", BeforeMLPNorm: "post_attention_layernorm.weight",
	QNorm: "self_attn.q_norm.weight", KNorm: "self_attn.k_norm.weight",
	Q: "self_attn.q_proj", K: "self_attn.k_proj", V: "self_attn.v_proj", O: "self_attn.o_proj",
	Gate: "mlp.gate_proj", Up: "mlp.up_proj", Down: "mlp.down_proj",
	QKV: "self_attn.qkv_proj", GateUp: "mlp.gate_up_proj",
}
