package learn

import (
	"errors"
	"log/slog"
	"strings"

	"onering/models"
	"onering/runtime"
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
	// fewestTokens is how many a pass has room for that is taken backward before the next
	// one: products over fewer are slower.
	fewestTokens = 512
	// SmallestMicroBatch bounds the halving of micro-batches, in tokens: a
	// sequence is never cut, so smaller ones gain nothing.
	SmallestMicroBatch = 64
)

// Passes say how a step is cut into passes and what these keep for the backward pass.
type Passes struct {
	// MicroTokens bounds the tokens of a micro-batch to begin with; a longer
	// sequence goes alone.
	MicroTokens int
	// AloneTokens bounds them too where each pass may be taken backward before the next
	// one begins, so that memory holds all of one pass; a prompt that several sequences
	// share counts once. 0 is no such bound.
	AloneTokens int
	// Stash is how much forward passes keep for the backward pass, at least; see StashFor.
	Stash models.Stash
	// StashBytes is what one of them may take to keep more; see the function.
	StashBytes int
}

// PassesFor returns the Passes of a run on the CPU, or with alone false on a device or of an
// objective that weighs no response before it has the log-probs of all. micro is
// train.micro_tokens and longest the tokens of the longest sequence.
func PassesFor(g models.Geometry, parameters, micro, longest int, alone bool) Passes {
	p := Passes{MicroTokens: micro, StashBytes: StashBytes(g, parameters)}
	if alone && g.Compute == models.F32 {
		p.AloneTokens = min(micro, max(fewestTokens, p.StashBytes/g.StashBytes(models.StashLogits, 1)))
		micro = p.AloneTokens
	}
	p.Stash = StashFor(g, parameters, max(micro, longest))
	return p
}

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

// isOutOfMemory says whether an error is that an allocation failed, or that a buffer would
// be too large. ONNX Runtime has no error code for that, so its text decides.
func isOutOfMemory(err error) bool {
	if err == nil || errors.Is(err, runtime.ErrLost) || errors.Is(err, runtime.ErrTooLarge) {
		return errors.Is(err, runtime.ErrTooLarge)
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
