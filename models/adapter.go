package models

// An Adapter is low-rank products beside some of a model's (LoRA). A module with
// the weight W [out,in] then computes
//
//	y = W x + Scale B (A x), with A [Rank,in] and B [out,Rank].
//
// Where a Compute has one, the Programs read A and B beside the weights, and their
// gradients are those of A and B alone.
type Adapter struct {
	Rank  int
	Scale float64
	// Modules are what has such products in each layer, by names that lack the
	// LayerPrefix: "self_attn.q_proj". They are the same in all layers, which share
	// one Program.
	Modules []string
}

// AdapterPrefix comes before the name of a module in the names of an adapter's
// tensors, and AdapterA and AdapterB come after it. They are PEFT's.
const (
	AdapterPrefix = "base_model.model."
	AdapterA      = ".lora_A.weight"
	AdapterB      = ".lora_B.weight"
)
