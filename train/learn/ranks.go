package learn

import (
	"context"
	"errors"
	"fmt"
	"math"

	"onering/models"
)

// Ranks are the processes that take each step together, one of which is this one.
// Each computes the gradients of its own sequences of the batch; all hold the same
// weights, the same optimizer state, the same bound of micro-batches and the same
// loss scale before the step, and after it, because they take the same decisions
// from the same figures.
//
// An implementation observes these rules:
//
//   - Every rank makes the same calls in the same order. A call returns when all
//     ranks have made it, or with an error when one is gone or ctx has ended.
//   - Agree returns on every rank the largest of the outcomes that the ranks gave
//     it.
//   - Sum replaces the gradients of every rank by their sum over all ranks, added
//     in the order of the ranks, so that a run with the same number of ranks gives
//     the same bits. Gradients are multiplied by the same loss scale everywhere.
//     Those on a device are at the runtime.Env that made them, not in g.Data.
//   - After an error no rank updates anything.
//
// The norm, the loss scale after an overflow, the clip and the update follow from
// the summed gradients alone: they need no agreement.
type Ranks interface {
	Agree(ctx context.Context, own Outcome) (Outcome, error)
	Sum(ctx context.Context, g *models.Weights) error
}

// An Outcome is what became of a rank's part of a step. Of several the largest
// decides what all ranks do.
type Outcome int

const (
	Done        Outcome = iota // continue
	OutOfMemory                // halve micro-batches and compute the step again
	NotFinite                  // leave the step out: NaN or an infinity was found
	Failed                     // stop
)

// Alone is the only rank of a run of one process.
type Alone struct{}

// Agree implements Ranks.
func (Alone) Agree(_ context.Context, own Outcome) (Outcome, error) { return own, nil }

// Sum implements Ranks.
func (Alone) Sum(context.Context, *models.Weights) error { return nil }

// errMemoryElsewhere is what a rank returns whose part of the step is done while
// the memory of another ended.
var errMemoryElsewhere = errors.New("learn: memory ended on another rank")

// ErrOtherRank is what a rank returns whose step stops because another rank
// failed.
var ErrOtherRank = errors.New("learn: another rank failed")

// outcome is what err means for the step.
func (s *Stepper) outcome(err error) Outcome {
	var nonfinite *NonfiniteError
	switch {
	case err == nil:
		return Done
	case errors.As(err, &nonfinite):
		return NotFinite
	case (isOutOfMemory(err) || errors.Is(err, errMemoryElsewhere)) && s.limit.canHalve():
		return OutOfMemory
	}
	return Failed
}

// agree returns err, or what another rank has met where that is worse.
func (s *Stepper) agree(ctx context.Context, err error) error {
	own := s.outcome(err)
	all, failed := s.options.Ranks.Agree(ctx, own)
	switch {
	case failed != nil:
		return errors.Join(err, failed)
	case all == own:
		return err
	case all == OutOfMemory:
		return errMemoryElsewhere
	case all == NotFinite:
		return &NonfiniteError{What: "a figure of another rank", Value: math.NaN()}
	case err != nil:
		return fmt.Errorf("%w; on this rank: %v", ErrOtherRank, err)
	}
	return ErrOtherRank
}
