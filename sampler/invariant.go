package sampler

import "math"

// An Invariant decoder gives a sequence the same bits, whatever other sequences are decoded. The decoder under
// it does so for two or more rows; for a single row ONNX Runtime uses another kernel, whose last bits differ.
// So the last slot is reserved for a companion, which is decoded beside a sequence that would be alone, unless the
// decoder says that a row alone has the same bits.
//
// It costs a slot and, if the number of slots must not matter either, time for few rows of a large model.
type Invariant struct {
	Decoder
	needsNoCompanion bool // the decoder gives a row alone the same bits
	companion        int  // slot of the companion
	companionPrefix  int  // the companion's prompt; -1 before the first use
	companionRuns    bool
}

// Invariance says on what the bits of a sequence do not depend.
type Invariance int

const (
	NoInvariance          Invariance = iota // nothing is promised
	InvariantToNeighbours                   // the other sequences, with an equal number of slots: for servers
	InvariantToSlots                        // nor the number of slots, on a CPU: for evaluations, and for rollouts that ask for it
)

// An invariantSetter is a Decoder that can compute every row of two or more with the same
// bits, whatever the other rows are, and says whether a single row has them, too. Decoders without
// the method are assumed to do so always, but for a single row.
type invariantSetter interface {
	SetInvariant(Invariance) (alone bool)
}

// NewInvariant takes over a decoder of at least two slots until Close.
func NewInvariant(d Decoder, of Invariance) *Invariant {
	x := &Invariant{Decoder: d, companion: d.Slots() - 1, companionPrefix: -1}
	if d, ok := d.(invariantSetter); ok {
		x.needsNoCompanion = d.SetInvariant(of)
	}
	return x
}

// Slots returns the number of slots for the caller's sequences.
func (d *Invariant) Slots() int { return d.companion }

// Begin begins a lone sequence twice, once in the companion's slot.
func (d *Invariant) Begin(rows []Row) error {
	if len(rows) > 1 || d.needsNoCompanion {
		return d.Decoder.Begin(rows)
	}
	d.stopCompanion()
	pair := []Row{rows[0], rows[0]}
	pair[1].Slot = d.companion
	if err := d.Decoder.Begin(pair); err != nil {
		return err
	}
	d.Decoder.Free(d.companion)
	rows[0].Out = pair[0].Out
	return nil
}

// Step steps a lone sequence together with the companion, whose token is always 0. The companion started with one
// token when the sequence had at least one, and is stopped before another sequence is alone, so it never outgrows its
// slot. It samples in the same way as the sequence, since the decoder samples such rows together.
func (d *Invariant) Step(rows []Row) error {
	if len(rows) > 1 || d.needsNoCompanion {
		d.stopCompanion()
		return d.Decoder.Step(rows)
	}
	pair := []Row{rows[0], {Slot: d.companion, Way: rows[0].Way, Masked: rows[0].Masked}}
	if rows[0].Score != nil { // the companion's token does not matter, so its Score lets Draw find one fast:
		score := float32(math.Inf(-1)) // nothing may be drawn, so Draw has nothing to sort
		if !rows[0].NeedsAllScores() {
			score = 0 // Draw takes the first candidate
		}
		pair[1].Score = func(Candidate) float32 { return score }
	}
	if !d.companionRuns {
		if err := d.startCompanion(pair[1]); err != nil {
			return err
		}
	}
	if err := d.Decoder.Step(pair); err != nil {
		return err
	}
	rows[0].Out = pair[0].Out
	return nil
}

// startCompanion begins a sequence of zeros.
func (d *Invariant) startCompanion(row Row) error {
	if d.companionPrefix < 0 {
		handles, err := d.Prefill([][]int32{{0}})
		if err != nil {
			return err
		}
		d.companionPrefix = handles[0]
	}
	row.Prefix = d.companionPrefix
	if err := d.Decoder.Begin([]Row{row}); err != nil {
		return err
	}
	d.companionRuns = true
	return nil
}

func (d *Invariant) stopCompanion() {
	if d.companionRuns {
		d.Decoder.Free(d.companion)
		d.companionRuns = false
	}
}

// Close frees the companion; the decoder stays open, as it was before NewInvariant.
func (d *Invariant) Close() {
	d.stopCompanion()
	if d, ok := d.Decoder.(invariantSetter); ok {
		d.SetInvariant(NoInvariance)
	}
	if d.companionPrefix >= 0 {
		d.Drop(d.companionPrefix)
		d.companionPrefix = -1
	}
}
