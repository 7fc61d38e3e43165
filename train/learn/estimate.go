package learn

import (
	"cmp"

	"onering/models"
	"onering/runtime"
)

// Tokens returns the largest number of tokens of a micro-batch, for a step of total
// tokens whose longest sequence has longest.
func (p Passes) Tokens(step, longest int64) int64 {
	return min(max(int64(cmp.Or(p.ApartTokens, p.MicroTokens)), longest), step)
}

// Needs estimates what a step of so many tokens, whose longest sequence has longest, needs at its peak besides weights and
// gradients: kept for the values that forward passes store for backward passes, running for the pass that runs.
func (p Passes) Needs(arch models.Architecture, compute models.Compute, step, longest int64) (kept, running runtime.Need, err error) {
	g, micro := arch.Geometry(), p.Tokens(step, longest)
	onePass := max(g.InputBytes(int(micro)), min(p.StashBytes, g.FullBytes(int(micro))))
	allPasses := onePass
	if p.ApartTokens == 0 { // passes may wait for each other; beyond a budget they are computed again
		allPasses = max(onePass, min(g.InputBytes(int(step)), keptBytes(g, arch.Layout().Size)+onePass))
	}
	need := func(bytes int64) runtime.Need {
		return runtime.Need{What: "activations", Device: bytes, Setting: "train.micro_tokens"}
	}
	// The backward pass of the head: the float32 logits of a slice of the vocabulary, their softmax
	// and its gradient. The factor of 14/5 was measured.
	logits := micro * min(int64(g.Vocab), 8176) // 8176: the default of runtime.LearnerOptions.HeadRows
	head := 4 * logits * 14 / 5
	switch {
	case compute.Provider == models.CPU && g.Compute == models.BF16:
		// Our operators store no scores of attention (a length of 0 has none), and logits once more only, in 2 bytes
		// beside 4; a product of a gradient stores its matrix anew, in 2 bytes an element.
		return need(int64(allPasses)), need(max(layerBytes(g, micro, 0), 6*logits) + int64(2*g.Hidden*g.FFN)), err
	case compute.Provider == models.CPU:
		layer := layerBytes(g, micro, longest)
		for i, k := range g.Kinds {
			if k.Mixer == models.Attention || k.Program != i {
				continue // layerBytes has attention; a kind with the Programs of an earlier one has its size
			}
			_, b, failed := arch.LayerBytes(i, false, 1, int(micro), int((micro+longest-1)/longest), int(longest))
			layer, err = max(layer, b), cmp.Or(err, failed)
		}
		// ONNX Runtime's arena returns no memory, so it holds room for head and layers; if
		// the layers need more than the head, it holds buffers for passes of several sizes. head*5/14
		// is the logits alone.
		bytes := layer + max(head, layer+head*5/14)
		if compute.Narrow() { // the largest matrix of a layer, which a gradient unpacks
			bytes += int64(g.Compute.Size() * g.Hidden * g.FFN)
		}
		return need(int64(allPasses)), need(bytes), err
	}
	T, rows := (longest+7)/8*8, (micro+longest-1)/longest // a micro-batch has rows of T places
	full, _ := g.Full(int(micro), p.StashBytes)
	peak := head
	for i, k := range g.Kinds {
		if k.Program != i {
			continue // an earlier kind has the same Programs
		}
		blocks := int(min(8, (T+511)/512)) // of 512 queries
		f, b, failed := arch.LayerBytes(i, full == g.Layers, blocks, int(micro), int(rows), int(T))
		peak, err = max(peak, f, b), cmp.Or(err, failed)
	}
	bytes := peak + 4*4*micro*int64(g.Hidden) + 4*T*T // x, y, dx, dy; the mask
	return need(int64(allPasses)), need(bytes), err
}

// layerBytes is the memory of a running backward pass of a layer on the CPU: activations,
// their gradients, and in rows of a length the scores of attention, which are computed in blocks of
// queries. The number of arrays that exist at once was measured on layers of width 256 and 512 and
// rows of 120 to 2,000 tokens, and in bfloat16 on layers of width 896.
func layerBytes(g models.Geometry, tokens, length int64) int64 {
	blocks := max(1, min(8, (length+511)/512))
	scores := int64(g.Heads) * tokens * length * (blocks + 1) / (2 * blocks)
	return int64(g.Compute.Size()) * (tokens*int64(4*g.Hidden+4*g.Heads*g.HeadDim+6*g.FFN) + scores*9/5)
}
