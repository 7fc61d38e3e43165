package train

import (
	"strings"

	"onering/models"
	"onering/models/qwen2"
	"onering/objectives"
	"onering/runtime"
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
	r := c.Rollout
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
	longest := func(n int) int64 {
		if g.MaxPositions > 0 {
			n = min(n, g.MaxPositions)
		}
		return int64(n)
	}
	length := longest(r.MaxPromptTokens + r.MaxNewTokens)
	trajectories := int64(r.PromptsPerRound) * int64(r.SamplesPerPrompt)
	slots := min(int64(r.Slots), trajectories)
	row := size * 2 * int64(g.Layers*g.KVHeads*g.CacheWidth) // keys and values of a token
	e.slots = slots * longest(c.longest()) * row
	prompts := min(int64(r.PromptsPerRound), slots+1) * int64(r.MaxPromptTokens)
	e.KVCache = e.slots + row*(prompts+min(prompts, 8192))

	// Learning: what micro-batches keep, and the graphs' own values, of layers
	// or of the head.
	step := min(int64(c.Train.BatchSize), trajectories) * length
	micro := min(max(int64(c.Train.MicroTokens), length), step)
	level := stashLevel(g, int(n), c.Train.MicroTokens)
	one := int64(runtime.StashBytes(g, level, int(micro)))
	kept := min(int64(runtime.StashBytes(g, level, int(step))), int64(keptBytes(g, int(n)))+one)
	T := (length + 7) / 8 * 8
	rows := (micro + length - 1) / length
	blocks := min(8, (T+511)/512)
	forward, backward, err := model.LayerBytes(level, int(blocks), int(micro), int(rows), int(T))
	if err != nil {
		return e, err
	}
	stream := 4 * micro * int64(g.Hidden)
	e.micro = one + max(forward, backward, headBytes(g, micro)) + 4*stream + 4*T*T // x, y, dx, dy; the mask
	// Sampling: logits and what draws from them; the widest values of a prefill.
	sampling := 4*4*slots*int64(g.Vocab) + min(prompts, 8192)*(4*4*int64(g.Hidden)+3*size*int64(g.FFN))
	e.Activations = max(0, kept-one) + e.micro + sampling
	e.sum()
	return e, nil
}
