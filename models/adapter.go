package models

import (
	"slices"
	"strings"
)

// An Adapter adds low-rank products to some products of a model (LoRA). A module with the
// weight W [out,in] then computes
//
//	y = W x + Scale B (A x), with A [Rank,in] and B [out,Rank].
//
// If a Compute has an Adapter, the Programs also read A and B, and compute gradients of A
// and B alone.
type Adapter struct {
	Rank  int
	Scale float64
	// Modules names the modules with such products in each layer, without the
	// LayerPrefix: "self_attn.q_proj". They are the same in all layers that have them.
	Modules []string
}

// ModulesOf lists the modules of a model's layers that may have low-rank products: the
// names, without the LayerPrefix, of modules with a matrix.
func ModulesOf(a Architecture) (names []string) {
	l := a.Layout()
	for i := range a.Geometry().Layers {
		for _, name := range l.Names() {
			module, ok := strings.CutPrefix(name, a.LayerPrefix(i))
			module = strings.TrimSuffix(module, ".weight")
			if place, _ := l.Find(name); ok && len(place.Shape) == 2 && !slices.Contains(names, module) {
				names = append(names, module)
			}
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
