package rl

import (
	"cmp"

	"onering/models"
	"onering/objectives"
	"onering/train/learn"
)

// A work is what a run holds at once, in whatever memory.
type work struct {
	trajectories, slots int64
	length              int64 // tokens of a trajectory
	prefill             int64 // tokens of prompts computed at once
	cache               int64 // bytes of keys and values, of slots and of prompts
	micro               int64 // tokens of a micro-batch
	passes              learn.Passes
	one, kept           int64 // bytes of the stash: of a micro-batch; of all that are kept
}

// work computes what a process holds at once for a model of n weights whose keys and
// values take size bytes each.
func (c Config) work(g models.Geometry, n, size int64, split Split) work {
	r := c.Rollout
	longest := func(n int) int64 {
		if g.MaxPositions > 0 {
			n = min(n, g.MaxPositions)
		}
		return int64(n)
	}
	w := work{trajectories: int64(r.PromptsPerRound) * int64(r.SamplesPerPrompt), length: longest(r.MaxPromptTokens + r.MaxNewTokens)}
	own := split.share(int64(r.PromptsPerRound)) // prompts that are sampled here
	w.slots = min(int64(r.Slots), own*int64(c.sampled()))
	row := size * 2 * int64(g.Layers*g.KVHeads*g.CacheWidth) // keys and values of a token
	slots := w.slots * longest(c.longest()) * row            // evaluation may have longer responses than training
	// Prompts are computed some thousand tokens at a time and kept until their
	// samples have begun.
	prompts := min(own, w.slots+1) * int64(r.MaxPromptTokens)
	w.prefill = min(prompts, 8192)
	w.cache = slots + row*(prompts+w.prefill)

	step := split.share(min(int64(c.Train.BatchSize), w.trajectories)) * w.length
	w.passes = learn.PassesFor(g, int(n), c.Train.MicroTokens, int(w.length), objectives.WeighsApart(c.Objective.Settings) && !c.onGPU())
	w.micro = min(max(int64(cmp.Or(w.passes.AloneTokens, w.passes.MicroTokens)), w.length), step)
	w.one = int64(g.StashBytes(w.passes.Stash, int(w.micro)))
	if w.passes.Stash < models.StashLogits && !c.LoRA.On { // a shorter one keeps more
		w.one = max(w.one, int64(min(w.passes.StashBytes, g.StashBytes(models.StashLogits, int(w.micro)))))
	}
	if w.kept = w.one; w.passes.AloneTokens == 0 {
		w.kept = min(int64(g.StashBytes(w.passes.Stash, int(step))), int64(learn.KeptBytes(g, int(n)))+w.one)
	}
	return w
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
	return 4 * tokens * min(int64(g.Vocab), 8176) * 14 / 5
}

// arenaBytes is what ONNX Runtime's arena holds between runs. It returns no memory,
// so it has room for head and layers; and if the layers take more than the head, it
// has buffers for passes of several sizes.
func arenaBytes(layer, head int64) int64 { return layer + max(head, layer+head*5/14) }
