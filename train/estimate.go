package train

import (
	"fmt"
	"os"
	"strings"

	"onering/data/arithmetic"
	"onering/models"
	"onering/objectives"
	"onering/train/learn"
)

// A MemoryEstimate is the memory that a run takes, in bytes, if every response is
// as long as it may be. All parts are exact except Activations and Other.
type MemoryEstimate struct {
	Weights int64 `json:"weights"`
	// Halves is the copy of the layers in 16 bits, for models that compute in them.
	Halves    int64 `json:"weights_16_bits,omitempty"`
	Gradients int64 `json:"gradients"`
	Moments   int64 `json:"moments"`
	// Offloaded is the moments in the host's memory; Moments is then 0.
	Offloaded int64 `json:"moments_on_host,omitempty"`
	// Reference is the second set of weights that an objective with a KL term needs.
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

// ReadModel reads the shape of a model without its weights.
func ReadModel(path string) (models.Model, error) {
	if path != Arithmetic {
		return models.ReadConfig(path)
	}
	dir, err := unpack(arithmetic.Model())
	if err != nil {
		return models.Model{}, err
	}
	defer os.RemoveAll(dir)
	return models.ReadConfig(dir)
}

// programBytes is what the program takes with ONNX Runtime loaded and its
// sessions open.
const programBytes = 70e6

// tokenBytes is what a token of a response takes in Go's heap: its figures, its
// share of the records and of the report, and garbage.
const tokenBytes = 640

// EstimateMemory computes what a run of c takes with a model of this shape, of the
// GPU's memory if runtime.device is a GPU.
func EstimateMemory(c Config, model models.Model) (MemoryEstimate, error) {
	compute := models.Compute{Type: ComputeTypes[c.Model.DType]}
	if c.onGPU() {
		compute.Provider = models.CUDA
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
	if objectives.NeedsReference(c.Objective.Settings) {
		e.Reference = 4*n + e.Halves
	}
	w := c.work(g, n, size)
	e.slots, e.KVCache = w.slotCache, w.cache
	if c.onGPU() {
		err := e.onCUDA(c, arch, w)
		return e, err
	}
	e.Copy, e.Available = 12*n, availableBytes()
	// Micro-batches beyond the budget use the memory of the last one: their layers
	// are computed again before the backward pass.
	e.micro = w.one + arenaBytes(layerBytes(g, w.micro, w.length), headBytes(g, w.micro))
	e.Activations = max(0, w.kept-w.one) + e.micro + 4*w.slots*int64(g.Vocab)

	e.Other = programBytes + w.trajectories*w.length*tokenBytes
	e.sum()
	return e, nil
}

// A work is what a run holds at once, in whatever memory.
type work struct {
	trajectories, slots int64
	length              int64 // tokens of a trajectory
	prefill             int64 // tokens of prompts computed at once
	slotCache, cache    int64 // bytes of keys and values: of the slots; with those of prompts
	micro               int64 // tokens of a micro-batch
	level               models.Stash
	one, kept           int64 // bytes of the stash: of a micro-batch; of all that are kept
}

// work computes what a run holds at once for a model of n weights whose keys and
// values take size bytes each.
func (c Config) work(g models.Geometry, n, size int64) work {
	r := c.Rollout
	longest := func(n int) int64 {
		if g.MaxPositions > 0 {
			n = min(n, g.MaxPositions)
		}
		return int64(n)
	}
	w := work{trajectories: int64(r.PromptsPerRound) * int64(r.SamplesPerPrompt), length: longest(r.MaxPromptTokens + r.MaxNewTokens)}
	w.slots = min(int64(r.Slots), w.trajectories)
	row := size * 2 * int64(g.Layers*g.KVHeads*g.CacheWidth) // keys and values of a token
	w.slotCache = w.slots * longest(c.longest()) * row       // evaluation may have longer responses than training
	// Prompts are computed some thousand tokens at a time and kept until their
	// samples have begun.
	prompts := min(int64(r.PromptsPerRound), w.slots+1) * int64(r.MaxPromptTokens)
	w.prefill = min(prompts, 8192)
	w.cache = w.slotCache + row*(prompts+w.prefill)

	step := min(int64(c.Train.BatchSize), w.trajectories) * w.length
	w.micro = min(max(int64(c.Train.MicroTokens), w.length), step)
	w.level = learn.StashFor(g, int(n), c.Train.MicroTokens)
	w.one = int64(g.StashBytes(w.level, int(w.micro)))
	w.kept = min(int64(g.StashBytes(w.level, int(step))), int64(learn.KeptBytes(g, int(n)))+w.one)
	return w
}

func (e *MemoryEstimate) sum() {
	e.Peak = e.Weights + e.Halves + e.Gradients + e.Moments + e.Reference + e.KVCache + e.Activations + e.Other
}

// layerBytes is what the backward pass of a layer takes while it runs: activations,
// their gradients, and the scores of attention, which are computed in blocks of
// queries. The number of arrays that exist at once was measured on layers of width
// 256 and 512 and rows of 120 to 2,000 tokens.
func layerBytes(g models.Geometry, tokens, length int64) int64 {
	a := int64(g.Heads * g.HeadDim)
	blocks := max(1, min(8, (length+511)/512))
	scores := int64(g.Heads) * tokens * length * (blocks + 1) / (2 * blocks)
	return 4 * (tokens*(4*int64(g.Hidden)+4*a+6*int64(g.FFN)) + scores*9/5)
}

// headBytes is what the backward pass of the head takes while it runs: the logits
// of a slice of the vocabulary, their softmax and its gradient. The factor was
// measured.
func headBytes(g models.Geometry, tokens int64) int64 {
	return 4 * tokens * min(int64(g.Vocab), 8192) * 14 / 5
}

// arenaBytes is what ONNX Runtime's arena holds between runs. It returns no memory,
// so it has room for head and layers; and if the layers take more than the head, it
// has buffers for passes of several sizes.
func arenaBytes(layer, head int64) int64 { return layer + max(head, layer+head*5/14) }

// Certain returns the memory that a run takes however short its responses are.
func (e MemoryEstimate) Certain() int64 {
	return e.Weights + e.Halves + e.Gradients + e.Moments + e.Reference + programBytes
}

// Check returns an error if the peak exceeds the available memory. It says which
// settings to change.
func (e MemoryEstimate) Check(c Config, model models.Model) error {
	if e.Available == 0 || e.Peak <= e.Available {
		return nil
	}
	return fmt.Errorf("train: the run takes up to %s of memory, %s are available: %s", bytesText(e.Peak), bytesText(e.Available), e.advice(c, model))
}

// advice says what to set so that the run fits.
func (e MemoryEstimate) advice(c Config, model models.Model) string {
	if e.Certain() > e.Available {
		text := fmt.Sprintf("weights, gradients and moments alone are %s; take a smaller model or a larger machine", bytesText(e.Certain()))
		if e.Certain()-e.Reference <= e.Available {
			text += ", or an objective without a reference policy (kl_beta = 0)"
		}
		return text
	}
	// The larger of the two is halved until it fits.
	less, now := c, e
	for now.Peak > e.Available {
		switch {
		case less.Rollout.Slots > 1 && (now.slots >= now.micro || less.Train.MicroTokens/2 < learn.SmallestMicroBatch):
			less.Rollout.Slots /= 2
		case less.Train.MicroTokens/2 >= learn.SmallestMicroBatch:
			less.Train.MicroTokens /= 2
		default:
			return fmt.Sprintf("lower rollout.max_new_tokens = %d or train.batch_size = %d", c.Rollout.MaxNewTokens, c.Train.BatchSize)
		}
		var err error
		if now, err = EstimateMemory(less, model); err != nil {
			return err.Error()
		}
	}
	var set []string
	if n := less.Rollout.Slots; n != c.Rollout.Slots {
		set = append(set, fmt.Sprintf("rollout.slots = %d", n))
	}
	if n := less.Train.MicroTokens; n != c.Train.MicroTokens {
		set = append(set, fmt.Sprintf("train.micro_tokens = %d", n))
	}
	return "set " + strings.Join(set, " and ")
}

// Refuse returns an error if not even Certain fits into the available memory.
func (e MemoryEstimate) Refuse(c Config, model models.Model) error {
	if e.Available > 0 && e.Certain() > e.Available {
		return e.Check(c, model)
	}
	return nil
}

// Lines returns the estimate as a table of names and sizes.
func (e MemoryEstimate) Lines() [][2]string {
	lines := [][2]string{{"weights", bytesText(e.Weights)}}
	if e.Halves > 0 {
		lines = append(lines, [2]string{"weights in 16 bits", bytesText(e.Halves)})
	}
	lines = append(lines, [2]string{"gradients", bytesText(e.Gradients)}, [2]string{"moments", bytesText(e.Moments)})
	if e.Reference > 0 {
		lines = append(lines, [2]string{"reference", bytesText(e.Reference)})
	}
	lines = append(lines, [][2]string{
		{"KV cache", bytesText(e.KVCache)}, {"activations", bytesText(e.Activations)}, {"other", bytesText(e.Other)}, {"peak", bytesText(e.Peak)},
	}...)
	if e.Offloaded > 0 {
		lines = append(lines, [2]string{"moments, on the host", bytesText(e.Offloaded)})
	}
	if e.Copy > 0 {
		lines = append(lines, [2]string{"checkpoint copy", bytesText(e.Copy) + " more, where there is room"})
	}
	if e.Available > 0 {
		lines = append(lines, [2]string{"available", bytesText(e.Available)})
	}
	return lines
}
