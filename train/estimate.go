package train

import (
	"fmt"

	"onering/models"
	"onering/models/lora"
	"onering/objectives"
	"onering/train/memory"
)

// A MemoryEstimate is the memory that a run takes, in bytes, if every response is
// as long as it may be. All parts are exact except Activations and Other.
type MemoryEstimate struct {
	Weights int64 `json:"weights"`
	// Halves is the layers in 16 bits, or in int8 with their scales: a copy for models
	// that compute in them, and in place of float32 where lora.base_dtype says so.
	Halves    int64 `json:"weights_16_bits,omitempty"`
	Gradients int64 `json:"gradients"`
	Moments   int64 `json:"moments"`
	// Offloaded is the moments in the host's memory; Moments is then 0.
	Offloaded int64 `json:"moments_on_host,omitempty"`
	// Reference is the second set of weights that an objective with a reference needs.
	Reference int64 `json:"reference"`
	KVCache   int64 `json:"kv_cache"`
	// Activations of the learner and the sampler at their peak.
	Activations int64 `json:"activations"`
	// Other is the rollouts of a round, the program and ONNX Runtime.
	Other int64 `json:"other"`
	Peak  int64 `json:"peak"`
	// Copy is what writing checkpoints in the background takes in addition, if
	// there is memory for it.
	Copy int64 `json:"checkpoint_copy"`
	// Available is the memory that the process may still take, 0 if unknown.
	Available int64 `json:"available"`

	micro, slots int64 // what train.micro_tokens and rollout.slots contribute
}

// programBytes is what the program takes with ONNX Runtime loaded and its
// sessions open.
const programBytes = 85e6

// tokenBytes is what a token of a response takes in Go's heap: its figures, its
// share of the records and of the report, and garbage.
const tokenBytes = 640

// EstimateMemory computes what a run of c takes with a model of this shape, of the
// GPU's memory if runtime.device is a GPU.
func EstimateMemory(c Config, model models.Model) (MemoryEstimate, error) {
	compute := models.Compute{Type: ComputeTypes[c.Model.DType]}
	if c.onGPU() {
		compute.Provider = c.provider()
	}
	if c.LoRA.On {
		a, err := lora.New(c.LoRA.Settings, model, "")
		if err != nil {
			return MemoryEstimate{}, err
		}
		compute.Adapter, compute.Base = &a.Adapter, BaseTypes[c.LoRA.BaseDType]
	}
	arch, err := model.Architecture(compute)
	if err != nil {
		return MemoryEstimate{}, err
	}
	g := arch.Geometry()
	n := int64(model.Layout().Size)
	from, to := arch.Copied()
	size := int64(g.Compute.Size())
	e := MemoryEstimate{Weights: 4 * n, Halves: size * int64(to-from), Gradients: 4 * n, Moments: 8 * n}
	trained := n
	if l := arch.AdapterLayout(); l != nil {
		trained = int64(l.Size)
		e.Weights, e.Gradients, e.Moments = 4*(n+trained), 4*trained, 8*trained
		if compute.Narrow() {
			e.Weights, e.Halves = e.Weights-4*int64(to-from), models.NarrowBytes(compute.Base, to-from)
		}
	} else if objectives.NeedsReference(c.Objective.Settings) {
		e.Reference = 4*n + e.Halves
	}
	if c.Model.Reference != "" {
		if e.Reference, err = otherReference(c.Model.Reference, compute); err != nil {
			return MemoryEstimate{}, err
		}
	}
	w := c.work(g, n, size)
	e.slots, e.KVCache = w.slotCache, w.cache
	if c.onGPU() {
		err := e.onCUDA(c, arch, w)
		return e, err
	}
	e.Copy, e.Available = 12*trained, memory.Available()
	// Micro-batches beyond the budget use the memory of the last one: their layers
	// are computed again before the backward pass.
	e.micro = w.one + arenaBytes(layerBytes(g, w.micro, w.length), headBytes(g, w.micro))
	e.Activations = max(0, w.kept-w.one) + e.micro + 4*w.slots*int64(g.Vocab)
	if compute.Narrow() { // a layer that runs is widened
		e.Activations += 4 * int64((to-from)/g.Layers)
	}

	e.Other = programBytes + w.trajectories*w.length*tokenBytes
	e.sum()
	return e, nil
}

// otherReference returns the bytes of a model in another folder.
func otherReference(dir string, compute models.Compute) (int64, error) {
	model, err := ReadModel(dir)
	if err != nil {
		return 0, fmt.Errorf("model.reference: %w", err)
	}
	compute.Adapter = nil
	arch, err := model.Architecture(compute)
	if err != nil {
		return 0, fmt.Errorf("model.reference: %w", err)
	}
	from, to := arch.Copied()
	return 4*int64(arch.Layout().Size) + int64(arch.Geometry().Compute.Size())*int64(to-from), nil
}

// sum sets Peak.
func (e *MemoryEstimate) sum() {
	e.Peak = e.Weights + e.Halves + e.Gradients + e.Moments + e.Reference + e.KVCache + e.Activations + e.Other
}

// Certain returns the memory that a run takes however short its responses are.
func (e MemoryEstimate) Certain() int64 {
	return e.Weights + e.Halves + e.Gradients + e.Moments + e.Reference + programBytes
}

// Lines returns the estimate as a table of names and sizes.
func (e MemoryEstimate) Lines() [][2]string {
	lines := [][2]string{{"weights", memory.Text(e.Weights)}}
	if e.Halves > 0 {
		lines = append(lines, [2]string{"weights in fewer bits", memory.Text(e.Halves)})
	}
	lines = append(lines, [2]string{"gradients", memory.Text(e.Gradients)}, [2]string{"moments", memory.Text(e.Moments)})
	if e.Reference > 0 {
		lines = append(lines, [2]string{"reference", memory.Text(e.Reference)})
	}
	lines = append(lines, [][2]string{
		{"KV cache", memory.Text(e.KVCache)}, {"activations", memory.Text(e.Activations)}, {"other", memory.Text(e.Other)}, {"peak", memory.Text(e.Peak)},
	}...)
	if e.Offloaded > 0 {
		lines = append(lines, [2]string{"moments, on the host", memory.Text(e.Offloaded)})
	}
	if e.Copy > 0 {
		lines = append(lines, [2]string{"checkpoint copy", memory.Text(e.Copy) + " more, where there is room"})
	}
	if e.Available > 0 {
		lines = append(lines, [2]string{"available", memory.Text(e.Available)})
	}
	return lines
}
