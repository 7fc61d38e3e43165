package train

import (
	"strings"

	"onering/models"
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
