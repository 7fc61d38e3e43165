package learn

import (
	"errors"
	"log/slog"
	"strings"

	"onering/models"
	"onering/runtime"
)

// How much of the memory of weights, gradients and moments the forward passes of one step may
// take until their backward passes, so that layers are not computed again, and that of one pass
// which goes backward before the next; how much of the memory of the weights the inputs of
// layers may take in addition; and what each may take in any case, in bytes.
const (
	stashShare = 0.2
	apartShare = 0.15
	keptShare  = 0.5
	smallStash = 256 << 20
)

// fewestTokens is the least size of a pass that goes backward before the next one:
// products over fewer tokens are slower.
const fewestTokens = 512

// SmallestMicroBatch bounds the halving of micro-batches, in tokens: a sequence is never
// cut, so smaller ones gain nothing.
const SmallestMicroBatch = 64

// Passes say how a step is cut into passes and what these keep for the backward pass.
type Passes struct {
	// MicroTokens bounds the tokens of a micro-batch; a longer sequence gets its own.
	MicroTokens int
	// ApartTokens also bounds micro-batches that may go backward before the next one
	// begins, so that memory can hold all of one pass; a shared prompt counts once. 0 is
	// no bound.
	ApartTokens int
	// StashBytes is how many bytes passes may store for their backward passes, see
	// runtime.LearnerOptions.
	StashBytes int
}

// PassesFor returns the Passes of a run on the CPU, or with apart false on a device or of an
// objective that weighs no response before it has the log-probs of all. micro is
// train.micro_tokens. Where memory is Spare, layers keep only their inputs unless a plan says what is left.
func PassesFor(g models.Geometry, parameters, micro int, apart bool) Passes {
	p := Passes{MicroTokens: micro}
	if g.Spare {
		return p
	}
	p.StashBytes = share(4*stashShare, parameters)
	if apart {
		p.ApartTokens = min(micro, max(fewestTokens, share(4*apartShare, parameters)/g.FullBytes(1)))
	}
	return p
}

// share returns a share of the bytes that so many parameters take.
func share(of float64, parameters int) int { return max(smallStash, int(of*4*float64(parameters))) }

// keptBytes bounds the bytes that a step's forward passes may store in all, without the
// last pass.
func keptBytes(g models.Geometry, parameters int) int {
	if g.Spare {
		return 0
	}
	return share(keptShare, parameters)
}

// isOutOfMemory says whether an error means that an allocation failed. ONNX Runtime has no
// code for these errors, so their text decides. A lost device is not short of memory, whatever
// its message says.
func isOutOfMemory(err error) bool {
	if err == nil || errors.Is(err, runtime.ErrLost) {
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
