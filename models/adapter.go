package models

import "strings"

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

// ModulesOf lists the products of a model's layer that may have such products beside
// them: the names, without the LayerPrefix, of what has a matrix.
func ModulesOf(a Architecture) (names []string) {
	l := a.Layout()
	for _, name := range l.Names() {
		module, ok := strings.CutPrefix(name, a.LayerPrefix(0))
		if place, _ := l.Find(name); ok && len(place.Shape) == 2 {
			names = append(names, strings.TrimSuffix(module, ".weight"))
		}
	}
	return names
}

// AdapterPrefix comes before the name of a module in the names of an adapter's
// tensors, and AdapterA and AdapterB come after it. They are PEFT's.
const (
	AdapterPrefix = "base_model.model."
	AdapterA      = ".lora_A.weight"
	AdapterB      = ".lora_B.weight"
)
