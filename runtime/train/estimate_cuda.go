package train

import (
	"strings"

	"onering/models"
	"onering/models/qwen2"
	"onering/objectives"
)

// computeTypes are the values of model.dtype.
var computeTypes = map[string]models.DType{"float32": models.F32, "bfloat16": models.BF16, "float16": models.F16}

// cudaBytes is what a process takes of a GPU before it holds a number: CUDA's
// context, the kernels, the workspaces of cuBLAS and cuDNN.
const cudaBytes = 1200e6

// onGPU says whether a run keeps its weights on a GPU.
func (c Config) onGPU() bool { return strings.HasPrefix(c.Runtime.Device, "cuda") }

// estimateCUDA computes what a run takes of a GPU's memory. Weights, gradients
// and moments are those of EstimateMemory; beside them lies the copy of the
// layers that the graphs compute with. Sampling and learning are counted as if
// each had an arena of its own: the one is idle while the other works, but
// keeps what it took. It has not been compared with a GPU yet.
func estimateCUDA(c Config, model qwen2.Config) (MemoryEstimate, error) {
	model.Compute = computeTypes[c.Model.DType]
	g := model.Geometry()
	n := int64(model.Layout().Size)
	e := MemoryEstimate{Weights: 4 * n, Gradients: 4 * n, Moments: 8 * n, Other: cudaBytes}
	_, from, to, err := model.Copy()
	if err != nil {
		return e, err
	}
	size := int64(g.Compute.Size())
	e.Halves = size * int64(to-from)
	if objectives.NeedsReference(c.Objective.Settings) {
		e.Reference = 4*n + e.Halves
	}
	w := c.work(g, n, size)
	e.slots, e.KVCache = w.slotCache, w.cache

	// Learning: what micro-batches keep, and the graphs' own values, of layers
	// or of the head.
	T := (w.length + 7) / 8 * 8
	rows := (w.micro + w.length - 1) / w.length
	blocks := min(8, (T+511)/512)
	forward, backward, err := model.LayerBytes(w.level, int(blocks), int(w.micro), int(rows), int(T))
	if err != nil {
		return e, err
	}
	stream := 4 * w.micro * int64(g.Hidden)
	e.micro = w.one + max(forward, backward, headBytes(g, w.micro)) + 4*stream + 4*T*T // x, y, dx, dy; the mask
	// Sampling: logits and what draws from them; the widest values of a prefill.
	sampling := 4*4*w.slots*int64(g.Vocab) + w.prefill*(4*4*int64(g.Hidden)+3*size*int64(g.FFN))
	e.Activations = max(0, w.kept-w.one) + e.micro + sampling
	e.sum()
	return e, nil
}
