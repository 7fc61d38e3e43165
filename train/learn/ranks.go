package learn

import (
	"errors"
	"math"

	"onering/models"
)

// Ranks are the processes that take each step together, one of which is this one.
// Each computes the scores and gradients of its own sequences of the batch; all hold
// the same weights, the same bound of micro-batches and the same loss scale before the
// step, and after it, because they take the same decisions from the same figures.
//
// An implementation observes these rules:
//
//   - Every rank makes the same calls in the same order; but a Spread may be made
//     while a SumParts goes on, each in its own order. A call returns when all ranks
//     have made it, or with an error when one is gone. It does not end with a
//     context: the others would wait for this rank.
//   - Agree returns on every rank the largest of the numbers that the ranks gave it.
//   - AgreeOn returns nil if all ranks give nil, and else an error on each.
//   - Share gives every rank the rows of all: row i is the one of rank owner[i].
//     Rows that this rank does not own have their length already.
//   - SumParts replaces each element that this rank owns by the sum over all ranks,
//     added in the order of the ranks, so that a run with the same number of ranks
//     gives the same bits. Rank r owns those from bounds[r] to bounds[r+1]-1; the
//     others between the first and the last bound are left as they are. Gradients are
//     multiplied by the same loss scale everywhere.
//   - Spread gives every rank the bytes that each owns, rank r those from at[r] to
//     at[r+1]-1. Collect gives such elements to the first rank alone, and Scatter gives
//     each rank those that it owns from the first.
//   - After an error no rank updates anything.
//
// Gradients are summed while the backward pass goes on, so a rank that fails in it sums
// what it has, and the ranks agree afterwards.
//
// The norm, the loss scale after an overflow, the clip and the update follow from
// the summed gradients alone: they need no agreement.
type Ranks interface {
	Rank() int
	Size() int
	Agree(own byte) (byte, error)
	AgreeOn(own error) error
	Share(owner []int, rows ...[][]float64) error
	SumParts(x []float32, bounds []int) error
	Spread(x []byte, at []int) error
	Collect(x []float32, bounds []int) error
	Scatter(x []float32, bounds []int) error
	// Device returns an implementation of SumParts and Spread on the ranks' devices, with
	// the same bits; nil if the elements pass through the host.
	Device() Device
}

// A Device sums and spreads the elements that arenas of w hold on the devices of all ranks;
// the host's elements do not change. All calls are made by one goroutine, in the same order
// on every rank. They may return before they are complete, which Wait waits for.
type Device interface {
	SumParts(w *models.Weights, bounds []int) error
	Spread(w *models.Weights, bounds []int) error
	Wait() error
}

// The result of a rank's part of a step. The largest of all ranks decides what all do.
const (
	done        byte = iota // continue
	joint                   // weigh the batch as a whole and compute the step again
	outOfMemory             // halve micro-batches and compute the step again
	notFinite               // leave the step out: NaN or an infinity was found
	failed                  // stop
)

// single implements Ranks for a run of one process.
type single struct{}

func (single) Rank() int                         { return 0 }
func (single) Size() int                         { return 1 }
func (single) Agree(own byte) (byte, error)      { return own, nil }
func (single) AgreeOn(own error) error           { return own }
func (single) Share([]int, ...[][]float64) error { return nil }
func (single) SumParts([]float32, []int) error   { return nil }
func (single) Spread([]byte, []int) error        { return nil }
func (single) Collect([]float32, []int) error    { return nil }
func (single) Scatter([]float32, []int) error    { return nil }
func (single) Device() Device                    { return nil }

// errMemoryElsewhere is the error of a rank whose part of the step is done while another
// rank ran out of memory.
var errMemoryElsewhere = errors.New("learn: memory ended on another rank")

// errJoint is the error of a step whose weights of a response depend on others despite
// Apart.
var errJoint = errors.New("learn: the weights of a response depend on the log-probs of others")

// outcome is what err means for the step.
func (s *Stepper) outcome(err error) byte {
	switch {
	case err == nil:
		return done
	case errors.As(err, new(*NonfiniteError)):
		return notFinite
	case errors.Is(err, errJoint):
		return joint
	case (isOutOfMemory(err) || errors.Is(err, errMemoryElsewhere)) && s.limit.canHalve():
		return outOfMemory
	}
	return failed
}

// agree returns err, or the error of another rank if that is worse by the order of outcomes, from done to failed, so that
// all ranks do the same. Every rank calls it with the error of its own part, or nil.
func (s *Stepper) agree(err error) error {
	own := s.outcome(err)
	all, lost := s.ranks.Agree(own)
	switch {
	case lost != nil:
		return errors.Join(err, lost)
	case all == outOfMemory && own != all:
		return errMemoryElsewhere
	case all == joint && own != all:
		return errJoint
	case all < notFinite: // all are done, or this rank has the worst outcome itself
		return err
	}
	if own != all {
		err = nil // the other rank's error counts
	}
	said := s.ranks.AgreeOn(err) // the worst error, of whichever rank
	switch {
	case all == failed:
		return said
	case own == all:
		return err
	}
	return &NonfiniteError{What: "a figure of another rank", Value: math.NaN(), Elsewhere: said.Error()}
}
