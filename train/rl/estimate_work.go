package rl

import (
	"fmt"

	"onering/models"
	"onering/objectives"
	"onering/runtime"
	"onering/train/learn"
)

// onGPU says whether a run keeps its weights on a GPU.
func (c Config) onGPU() bool { return c.provider().Graphs() != models.CPU }

// provider is that of the device that a run names, for auto the CPU's.
func (c Config) provider() runtime.Provider {
	if p := runtime.ProviderOf(c.Runtime.Device); p != nil {
		return p
	}
	return runtime.ProviderOf("cpu")
}

// A work is what a run holds at once, in whatever memory.
type work struct {
	trajectories, step int64 // of a round; of a step
	slots, longest     int64 // of the sampler, and the tokens of one
	length             int64 // tokens of a trajectory
	prefill, cached    int64 // tokens of prompts computed at once; of slots and of prompts
	passes             learn.Passes
}

// work computes what a process holds at once.
func (c Config) work(arch models.Architecture, split Split) work {
	g, r := arch.Geometry(), c.Rollout
	longest := func(n int) int64 {
		if g.MaxPositions > 0 {
			n = min(n, g.MaxPositions)
		}
		return int64(n)
	}
	w := work{trajectories: int64(r.PromptsPerRound) * int64(r.SamplesPerPrompt), length: longest(r.MaxPromptTokens + r.MaxNewTokens)}
	own := split.share(int64(r.PromptsPerRound)) // prompts that are sampled here
	w.slots, w.longest = min(int64(r.Slots), own*int64(c.sampled())), longest(c.longest())
	// Prompts are computed some thousand tokens at a time and kept until their samples have
	// begun.
	prompts := min(own, w.slots+1) * int64(r.MaxPromptTokens)
	w.prefill = min(prompts, 8192)
	w.cached = w.slots*w.longest + prompts + w.prefill
	w.step = split.share(min(int64(c.Train.BatchSize), w.trajectories))
	w.passes = learn.PassesFor(g, arch.Layout().Size, c.Train.MicroTokens, int(w.length), objectives.WeighsApart(c.Objective.Settings) && !c.onGPU())
	if c.LoRA.On { // see train.PassesOf
		w.passes.StashBytes = 0
	}
	return w
}

// buffers are those of a run on WebGPU that may be larger than a GPU has them, with what
// decides their sizes.
func (c Config) buffers(arch models.Architecture, w work) []runtime.Buffer {
	const shorter = "set a smaller rollout.max_prompt_tokens or rollout.max_new_tokens" // where one trajectory is too long
	g, micro := arch.Geometry(), w.passes.Tokens(w.step*w.length, w.length)
	// Logits are of one long response, or of as many tokens of responses as a micro-batch may
	// have; scores of attention of a block of queries of the longest trajectories.
	one := int64(c.Rollout.MaxNewTokens)
	learned := min(max(one, int64(c.Train.MicroTokens)), w.step*one)
	padded, rows := (w.length+7)/8*8, max(1, micro/w.length)
	blocks := min(8, (padded+511)/512)
	all := []runtime.Buffer{
		runtime.CacheBuffer(g, int(w.slots), int(w.longest)), runtime.PromptBuffer(g, c.Rollout.MaxPromptTokens),
		{What: fmt.Sprintf("the logits of a micro-batch, of %d tokens,", learned), Bytes: 4 * learned * int64(g.Vocab),
			Setting: "train.micro_tokens", Value: learned, Least: one, Otherwise: "set a smaller rollout.max_new_tokens"},
		{What: fmt.Sprintf("the scores of attention of %d trajectories of %d tokens", rows, w.length), Bytes: 4 * int64(g.Heads) * rows * padded * ((padded + blocks - 1) / blocks),
			Setting: "train.micro_tokens", Value: rows * w.length, Least: w.length, Otherwise: shorter},
		{What: fmt.Sprintf("the activations of a micro-batch of %d tokens", micro), Bytes: 4 * micro * int64(max(g.FFN, g.Hidden, g.Heads*g.HeadDim)), Pieces: true,
			Setting: "train.micro_tokens", Value: micro, Least: w.length, Otherwise: shorter},
	}
	if !c.LoRA.On { // the tensors of an adapter are small
		all = append(all, runtime.TrainedBuffer(arch.Layout()))
	}
	if c.Rollout.Sampling.Filtered() || c.Eval.Sampling.Filtered() {
		all = append(all, runtime.Buffer{What: fmt.Sprintf("the logits of %d rows, of which a filter of sampling takes the largest,", w.slots), Bytes: 4 * w.slots * int64(g.Vocab),
			Setting: "rollout.slots", Value: w.slots, Least: 1})
	}
	return all
}
