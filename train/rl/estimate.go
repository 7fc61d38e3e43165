package rl

import (
	"fmt"

	"onering/internal/memory"
	"onering/models"
	"onering/models/lora"
	"onering/objectives"
	"onering/policy"
	"onering/train/learn"
	"onering/train/ranks"
)

// A Split says into how many processes a run is divided; the zero Split is one.
type Split struct {
	Ranks  int // of the run
	OnHost int // of those, how many share the memory of this machine
}

// share is the largest part that a rank has of n things.
func (s Split) share(n int64) int64 {
	ranks := int64(max(1, s.Ranks))
	return (n + ranks - 1) / ranks
}

// A MemoryEstimate is the memory that a run takes, in bytes, if every response is
// as long as it may be; with several ranks that of each. All parts are exact except
// Activations, Reduction and Other.
type MemoryEstimate struct {
	Weights int64 `json:"weights"`
	// Halves is the layers in 16 bits, or in int8 with their scales: a copy for models
	// that compute in them, and in place of float32 where lora.base_dtype says so.
	Halves    int64 `json:"weights_16_bits,omitempty"`
	Gradients int64 `json:"gradients"`
	Moments   int64 `json:"moments"`
	// Reference is the second set of weights that an objective with a reference needs.
	Reference int64 `json:"reference"`
	KVCache   int64 `json:"kv_cache"`
	// Activations of the learner and the sampler at their peak.
	Activations int64 `json:"activations"`
	// Other is the rollouts of a round, the program and ONNX Runtime.
	Other int64 `json:"other"`
	Peak  int64 `json:"peak"`
	// Copy is what writing checkpoints in the background takes in addition, if
	// there is memory for it: the host's, and beside a GPU in place of Saving.
	Copy int64 `json:"checkpoint_copy"`
	// Available is the memory that the process may still take, 0 if unknown.
	Available int64 `json:"available"`

	Hosted
	Lengths
	Divided
}

// A Hosted is what a run on a GPU takes of the host's memory; of several ranks see
// Divided too.
type Hosted struct {
	// Offloaded is the moments in the host's memory; Moments is then 0.
	Offloaded int64 `json:"moments_on_host,omitempty"`
	// Saving is what is read back while a checkpoint is written: the weights, and the
	// moments one after the other, or with several ranks that share them all at once.
	Saving int64 `json:"checkpoint_on_host,omitempty"`
}

// Lengths are those that are assumed of every prompt and response, in tokens: the
// longest there may be.
type Lengths struct {
	PromptTokens   int `json:"prompt_tokens"`
	ResponseTokens int `json:"response_tokens"`
}

// A Divided is what an estimate has only with several ranks.
type Divided struct {
	Ranks  int `json:"ranks,omitempty"`
	OnHost int `json:"ranks_on_host,omitempty"` // that share Available
	// Reduction is what a rank sums gradients in, and messages on their way.
	Reduction int64 `json:"reduction,omitempty"`
	// Staging is this in the host's memory beside a GPU, with a copy of the gradients;
	// Reduction is then 0.
	Staging int64 `json:"reduction_on_host,omitempty"`
	// Gathered is the moments that the others keep, which rank 0 has while it writes a
	// checkpoint.
	Gathered int64 `json:"moments_gathered,omitempty"`
	// Writing is all that rank 0 takes then, when it has given back what steps left; 0
	// beside a GPU.
	Writing int64 `json:"peak_at_checkpoint,omitempty"`
	// Sent is how many bytes of gradients and weights rank 0 sends in a step.
	Sent int64 `json:"sent_per_step,omitempty"`
}

// programBytes is what the program takes with ONNX Runtime loaded and its
// sessions open.
const programBytes = 85e6

// tokenBytes is what a token of a response takes in Go's heap: its figures, its
// share of the records and of the report, and garbage.
const tokenBytes = 640

// mpiBytes is what Open MPI takes of a rank, as measured.
const mpiBytes = 12e6

// EstimateMemory computes what a run of c takes with a model of this shape, of the
// GPU's memory if runtime.device is a GPU.
func EstimateMemory(c Config, model models.Model, split Split) (MemoryEstimate, error) {
	arch, compute, err := c.architecture(model)
	if err != nil {
		return MemoryEstimate{}, err
	}
	g := arch.Geometry()
	n := int64(model.Layout().Size)
	from, to := arch.Copied()
	size := int64(g.Compute.Size())
	e := MemoryEstimate{Weights: 4 * n, Halves: size * int64(to-from), Gradients: 4 * n, Moments: 8 * n,
		Lengths: Lengths{c.Rollout.MaxPromptTokens, c.Rollout.MaxNewTokens}}
	layout, trained := model.Layout(), n
	if l := arch.AdapterLayout(); l != nil {
		layout, trained = l, int64(l.Size)
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
	w := c.work(g, n, size, split)
	e.KVCache = w.cache
	e.divide(c, trained, split)
	if c.onGPU() {
		e.readBack(c, layout)
		err := e.onCUDA(c, arch, w)
		return e, err
	}
	e.Copy, e.Available = 12*trained, memory.Available()
	widened := int64(0) // of a layer that runs
	if compute.Narrow() {
		widened = 4 * int64((to-from)/g.Layers)
	}
	e.onCPU(g, [2]int{int(n), int(trained)}, w, widened)
	return e, nil
}

// architecture is that of a run of c, and what it computes in.
func (c Config) architecture(model models.Model) (arch models.Architecture, compute models.Compute, err error) {
	compute.Type = policy.ComputeTypes[c.Model.DType]
	if c.onGPU() {
		compute.Provider = c.provider()
	}
	if c.LoRA.On {
		a, err := lora.New(c.LoRA.Settings, model, "")
		if err != nil {
			return nil, compute, err
		}
		compute.Adapter, compute.Base = &a.Adapter, policy.BaseTypes[c.LoRA.BaseDType]
	}
	arch, err = model.Architecture(compute)
	return arch, compute, err
}

// onCPU sets what rollouts, steps and checkpoints take, and Peak. parameters are those of
// the model, and how many are trained.
func (e *MemoryEstimate) onCPU(g models.Geometry, parameters [2]int, w work, widened int64) {
	// Micro-batches beyond the budget use the memory of the last one: their layers
	// are computed again before the backward pass.
	arena := arenaBytes(layerBytes(g, w.micro, w.length), headBytes(g, w.micro)) + 4*w.slots*int64(g.Vocab) + widened
	e.Activations = max(w.one, w.kept) + arena
	e.Other = programBytes + w.trajectories*w.length*tokenBytes
	if e.Ranks > 1 {
		e.Other += mpiBytes
	}
	e.Peak = e.total()
	kept := e.Activations - arena // the arena stays
	if memory.TakesTurns(parameters[0]) {
		e.Peak -= min(e.KVCache, kept)
	}
	if e.Gathered > 0 {
		e.Writing = e.total() + e.Gathered
		if memory.TakesTurns(parameters[1]) { // see saving.Learned.SaveTo
			e.Writing -= e.KVCache + kept
		}
	}
}

// divide sets what each of several ranks takes where so many elements are trained.
func (e *MemoryEstimate) divide(c Config, trained int64, split Split) {
	if split.Ranks < 2 {
		return
	}
	e.Divided = Divided{Ranks: split.Ranks, OnHost: max(1, split.OnHost)}
	e.Sent = ranks.Volume(0, split.Ranks, learn.EvenBuckets(int(trained), 0, split.Ranks))
	e.Reduction = ranks.Buffers(split.Ranks, int(trained))
	if c.onGPU() {
		e.Reduction, e.Staging = 0, e.Reduction+4*trained
	}
	if c.Distributed.Shard == "optimizer" {
		own := split.share(e.Moments)
		e.Moments, e.Gathered = own, e.Moments-own
	}
}

// otherReference returns the bytes of a model in another folder.
func otherReference(dir string, compute models.Compute) (int64, error) {
	model, err := policy.ReadModel(dir)
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

// total is all parts together, of which the cache and activations may take turns.
func (e MemoryEstimate) total() int64 {
	return e.Weights + e.Halves + e.Gradients + e.Moments + e.Reference + e.KVCache + e.Activations + e.Reduction + e.Other
}

// onHost is what the ranks of this machine take of its memory if each takes so much, with
// what rank 0 takes more for a checkpoint.
func (e MemoryEstimate) onHost(each int64) int64 {
	return int64(max(1, e.OnHost))*each + max(0, min(e.Gathered, e.Writing-each))
}

// Certain returns the memory that a run takes however short its responses are.
func (e MemoryEstimate) Certain() int64 {
	return e.Weights + e.Halves + e.Gradients + e.Moments + e.Reference + programBytes
}

// assumed says what is assumed.
func (l Lengths) assumed() string {
	return fmt.Sprintf("every prompt of %d tokens and every response of %d", l.PromptTokens, l.ResponseTokens)
}

// Lines returns the estimate as a table of names and sizes.
func (e MemoryEstimate) Lines() [][2]string {
	var lines [][2]string
	if e.Ranks > 1 {
		lines = append(lines, [2]string{"ranks", fmt.Sprintf("%d, of which each takes:", e.Ranks)})
	}
	lines = append(lines, [2]string{"weights", memory.Text(e.Weights)})
	if e.Halves > 0 {
		lines = append(lines, [2]string{"weights in fewer bits", memory.Text(e.Halves)})
	}
	lines = append(lines, [2]string{"gradients", memory.Text(e.Gradients)}, [2]string{"moments", memory.Text(e.Moments)})
	if e.Reference > 0 {
		lines = append(lines, [2]string{"reference", memory.Text(e.Reference)})
	}
	cache, activations := "KV cache", "activations"
	if e.Peak < e.total() {
		cache, activations = "KV cache, while sampling", "activations, while training"
	}
	lines = append(lines, [2]string{cache, memory.Text(e.KVCache)}, [2]string{activations, memory.Text(e.Activations)})
	if e.Reduction > 0 {
		lines = append(lines, [2]string{"reduction", memory.Text(e.Reduction)})
	}
	lines = append(lines, [2]string{"other", memory.Text(e.Other)}, [2]string{"peak", memory.Text(e.Peak)})
	if e.Offloaded > 0 {
		lines = append(lines, [2]string{"moments, on the host", memory.Text(e.Offloaded)})
	}
	if e.Staging > 0 {
		lines = append(lines, [2]string{"reduction, on the host", memory.Text(e.Staging)})
	}
	if e.Gathered > 0 {
		text := memory.Text(e.Gathered) + " on rank 0 while a checkpoint is written"
		if e.Writing > 0 {
			text += ", when it takes " + memory.Text(e.Writing)
		}
		lines = append(lines, [2]string{"moments of the others", text})
	}
	if e.Sent > 0 {
		lines = append(lines, [2]string{"sent per step", memory.Text(e.Sent)})
	}
	if e.Saving > 0 {
		text := memory.Text(e.Saving) + " while one is written, or " + memory.Text(e.Copy) + " beside training, where there is room"
		lines = append(lines, [2]string{"checkpoint, on the host", text})
	} else if e.Copy > 0 {
		lines = append(lines, [2]string{"checkpoint copy", memory.Text(e.Copy) + " more, where there is room"})
	}
	if e.Available > 0 {
		text := memory.Text(e.Available)
		if e.OnHost > 1 {
			text += fmt.Sprintf(" to %d ranks, which take %s", e.OnHost, memory.Text(e.onHost(e.Peak)))
		}
		lines = append(lines, [2]string{"available", text})
	}
	return append(lines, [2]string{"assumed", e.assumed() + "; shorter ones take less"})
}
