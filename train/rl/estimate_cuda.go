package rl

import (
	"fmt"
	"strings"

	"onering/models"
	"onering/runtime"
	"onering/sampler"
)

// cudaBytes is what a process takes of a GPU's memory before it allocates anything:
// CUDA's context, the kernels, the workspaces of cuBLAS and cuDNN.
const cudaBytes = 1200e6

// webgpuBytes is the same for the WebGPU provider, as a guess: its device, the kernels
// and the buffers that it keeps to use again.
const webgpuBytes = 300e6

// onGPU says whether a run keeps its weights on a GPU.
func (c Config) onGPU() bool { return c.provider() != models.CPU }

// provider is that of the device that a run names.
func (c Config) provider() models.Provider {
	switch kind, _, _ := strings.Cut(c.Runtime.Device, ":"); kind {
	case "cuda":
		return models.CUDA
	case "webgpu":
		return models.WebGPU
	}
	return models.CPU
}

// readBack sets what a run on a GPU takes of the host's memory where l is the layout of what
// is trained.
func (e *MemoryEstimate) readBack(c Config, l *models.Layout) {
	weights := 4 * int64(l.Size)
	moments := e.Moments
	if c.Optimizer.Offload {
		e.Moments, e.Offloaded, moments = 0, moments, 0
	}
	if e.Gathered > 0 { // all at once, and copied from there
		e.Saving = weights + moments
		e.Copy = 3*weights + e.Saving + e.Gathered
		return
	}
	e.Saving = weights + moments/2
	_, largest := l.Largest()
	e.Copy = 3*weights + 4*int64(largest)
}

// onCUDA completes the estimate for a GPU's memory. Sampling and learning count in
// full: while one works, the other's memory is idle but not returned. The estimate
// has not been compared with a GPU yet.
func (e *MemoryEstimate) onCUDA(c Config, arch models.Architecture, w work) error {
	g := arch.Geometry()
	size := int64(g.Compute.Size())
	e.Other = cudaBytes
	// Learning: what micro-batches keep, and the graphs' own values, of layers
	// or of the head.
	T := (w.length + 7) / 8 * 8
	rows := (w.micro + w.length - 1) / w.length
	blocks := min(8, (T+511)/512)
	forward, backward, err := arch.LayerBytes(w.passes.Stash, int(blocks), int(w.micro), int(rows), int(T))
	if err != nil {
		return err
	}
	stream := 4 * w.micro * int64(g.Hidden)
	one := w.one + max(forward, backward, headBytes(g, w.micro)) + 4*stream + 4*T*T // x, y, dx, dy; the mask
	// Sampling: logits and what draws from them; the widest values of a prefill.
	if c.provider() == models.WebGPU {
		// The head is one slice; an update in place has a copy of what it updates, and
		// the largest tensor is the head.
		e.Other = webgpuBytes
		one += max(0, 4*w.micro*int64(g.Vocab)*4-headBytes(g, w.micro)) + 2*4*int64(g.Vocab)*int64(g.Hidden)
	}
	sampling := 4*4*w.slots*int64(g.Vocab) + w.prefill*(4*4*int64(g.Hidden)+3*size*int64(g.FFN))
	e.Activations = max(0, w.kept-w.one) + one + sampling
	e.Peak = e.total()
	return nil
}

// Buffers returns those buffers of a run on WebGPU that may be larger than a GPU has them,
// with what decides their sizes.
func Buffers(c Config, model models.Model, split Split) ([]runtime.Buffer, error) {
	arch, _, err := c.architecture(model)
	if err != nil {
		return nil, err
	}
	g := arch.Geometry()
	w := c.work(g, int64(model.Layout().Size), int64(g.Compute.Size()), split)
	tokens := c.longest()
	if g.MaxPositions > 0 {
		tokens = min(tokens, g.MaxPositions)
	}
	all := []runtime.Buffer{
		runtime.CacheBuffer(g, int(w.slots), tokens), runtime.PromptBuffer(g, c.Rollout.MaxPromptTokens),
		c.logits(g, w, split), c.scores(g, w),
		{What: fmt.Sprintf("the activations of a micro-batch of %d tokens", w.micro), Bytes: 4 * w.micro * int64(max(g.FFN, g.Hidden, g.Heads*g.HeadDim)), Pieces: true,
			Setting: "train.micro_tokens", Value: w.micro, Least: w.length, Otherwise: shorter},
	}
	if !c.LoRA.On { // the tensors of an adapter are small
		all = append(all, runtime.TrainedBuffer(model.Layout()))
	}
	for _, s := range []sampler.Sampling{c.Rollout.Sampling, c.Eval.Sampling} {
		if s.TopK > 0 || s.TopP < 1 {
			all = append(all, runtime.Buffer{What: fmt.Sprintf("the logits of %d rows, of which top_k and top_p take the largest,", w.slots), Bytes: 4 * w.slots * int64(g.Vocab),
				Setting: "rollout.slots", Value: w.slots, Least: 1})
			break
		}
	}
	return all, nil
}

// shorter is what helps where one trajectory is too long.
const shorter = "set a smaller rollout.max_prompt_tokens or rollout.max_new_tokens"

// logits are those of a micro-batch: of one long response, or of as many tokens of
// responses as a micro-batch may have.
func (c Config) logits(g models.Geometry, w work, split Split) runtime.Buffer {
	one := int64(c.Rollout.MaxNewTokens)
	rows := min(max(one, int64(c.Train.MicroTokens)), split.share(min(int64(c.Train.BatchSize), w.trajectories))*one)
	return runtime.Buffer{What: fmt.Sprintf("the logits of a micro-batch, of %d tokens,", rows), Bytes: 4 * rows * int64(g.Vocab),
		Setting: "train.micro_tokens", Value: rows, Least: one, Otherwise: "set a smaller rollout.max_new_tokens"}
}

// scores are those of attention in a block of queries, of a micro-batch of the longest
// trajectories: shorter ones have fewer.
func (c Config) scores(g models.Geometry, w work) runtime.Buffer {
	long := (w.length + 7) / 8 * 8
	blocks := min(8, (long+511)/512)
	rows := max(1, w.micro/w.length)
	return runtime.Buffer{What: fmt.Sprintf("the scores of attention of %d trajectories of %d tokens", rows, w.length),
		Bytes:   4 * int64(g.Heads) * rows * long * ((long + blocks - 1) / blocks),
		Setting: "train.micro_tokens", Value: rows * w.length, Least: w.length, Otherwise: shorter}
}
