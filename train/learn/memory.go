package learn

import (
	"log/slog"
	"strings"

	"onering/models"
)

const (
	// stashShare is how much of the memory of weights, gradients and moments the
	// kept forward pass of one micro-batch may take.
	stashShare = 0.2
	// fullerShare is how much of it a short one may take to keep more than StashFor says.
	fullerShare = 0.15
	// keptShare is how much of the memory of the weights the forward passes of
	// one step may keep until their backward passes. The layers of further
	// passes are computed again before their backward pass.
	keptShare = 0.5
	// smallStash is what either may take in any case, in bytes.
	smallStash = 256 << 20
	// SmallestMicroBatch bounds the halving of micro-batches, in tokens: a
	// sequence is never cut, so smaller ones gain nothing.
	SmallestMicroBatch = 64
)

// StashFor is the highest level whose stash fits, for micro-batches of so many
// tokens, of which one sequence may have more than train.micro_tokens, and a model of
// so many parameters. Layers that compute in 16 bits run on
// a GPU, where memory is better spent on slots of the sampler: they keep only
// their inputs.
func StashFor(g models.Geometry, parameters, tokens int) models.Stash {
	if g.Compute != models.F32 {
		return models.StashInput
	}
	allowed := max(smallStash, int(stashShare*4*4*float64(parameters)))
	for level := models.StashLogits; level > models.StashInput; level-- {
		if g.StashBytes(level, tokens) <= allowed {
			return level
		}
	}
	return models.StashInput
}

// StashBytes is what the kept forward pass of one micro-batch may take: that of a short
// one keeps all of some layers or of all where StashFor keeps less. It is 0 where layers
// compute in 16 bits.
func StashBytes(g models.Geometry, parameters int) int {
	if g.Compute != models.F32 {
		return 0
	}
	return max(smallStash, int(fullerShare*4*4*float64(parameters)))
}

// KeptBytes is how much the forward passes of a step may keep in all, besides the
// last one; nothing where layers compute in 16 bits (see StashFor).
func KeptBytes(g models.Geometry, parameters int) int {
	if g.Compute != models.F32 {
		return 0
	}
	return max(smallStash, int(keptShare*4*float64(parameters)))
}

// isOutOfMemory says whether an error of ONNX Runtime is that an allocation
// failed. ONNX Runtime has no error code for that, so its text decides.
func isOutOfMemory(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for _, sign := range []string{"Failed to allocate memory", "bad_alloc", "bad allocation", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// A microLimit bounds the tokens of a micro-batch.
type microLimit struct {
	tokens int
	log    *slog.Logger
}

// canHalve says whether micro-batches can be smaller.
func (l *microLimit) canHalve() bool { return l.tokens/2 >= SmallestMicroBatch }

// halve makes micro-batches smaller after an allocation failed.
func (l *microLimit) halve(err error, about ...any) {
	l.tokens /= 2
	l.log.Warn("memory is short: micro-batches are halved and the step is computed again", append(about, "micro_tokens", l.tokens, "reason", err)...)
}
