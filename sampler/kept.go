package sampler

import (
	"fmt"
	"slices"
)

// A Kept decoder has one slot and keeps the sequence of a call of Sample in it. If the next prompt continues
// that sequence, as in a conversation, its further tokens are appended by steps. A step takes about as long as
// StepCost tokens of a prompt, so this is done only where it is faster.
type Kept struct {
	Decoder
	StepCost int
	Reused   int // number of tokens of the newest prompt that were not computed again

	heldIDs    []int32 // tokens of the sequence in the slot; nil if the slot is free
	prompt     []int32 // the newest prompt of Prefill
	continues  bool    // prompt continues heldIDs; otherwise the decoder has computed it
	stepFailed bool    // a step failed, so the content of the slot is unknown
}

// NewKept takes over a decoder of one slot until Close.
func NewKept(d Decoder, stepCost int) *Kept { return &Kept{Decoder: d, StepCost: stepCost} }

// Prefill computes a prompt, unless it continues the sequence that the slot still holds, and appending the rest is
// faster; then it leaves that to Begin.
func (d *Kept) Prefill(prompts [][]int32) ([]int, error) {
	if len(prompts) != 1 || d.Slots() != 1 {
		return nil, fmt.Errorf("sampler: a Kept decoder has %d prompts and %d slots; it takes one of each", len(prompts), d.Slots())
	}
	d.prompt = slices.Clone(prompts[0])
	further := len(d.prompt) - len(d.heldIDs)
	d.continues = d.heldIDs != nil && !d.stepFailed && further > 0 && further*d.StepCost <= len(d.heldIDs) && // steps cost no more than the held tokens would
		slices.Equal(d.heldIDs, d.prompt[:len(d.heldIDs)])
	if d.continues {
		d.Reused = len(d.heldIDs)
		return []int{0}, nil // 0 is no handle: Begin and Drop do not read it
	}
	d.Reused = 0
	d.Close() // frees the slot of the sequence before
	return d.Decoder.Prefill(prompts)
}

// Begin begins the sequence from the prefix that Prefill computed, or, where Prefill found that the prompt
// continues the sequence held in the slot, appends the prompt's further tokens to that by steps.
func (d *Kept) Begin(rows []Row) error {
	if !d.continues {
		err := d.Decoder.Begin(rows)
		if err == nil {
			d.heldIDs = slices.Clone(d.prompt)
		}
		return err
	}
	for _, id := range d.prompt[len(d.heldIDs):] {
		rows[0].ID = id
		if err := d.Step(rows); err != nil { // Step also adds id to heldIDs; the last step samples the first token
			d.Close()
			return err
		}
	}
	return nil
}

// Step appends a token to the sequence.
func (d *Kept) Step(rows []Row) error {
	err := d.Decoder.Step(rows)
	d.heldIDs, d.stepFailed = append(d.heldIDs, rows[0].ID), d.stepFailed || err != nil
	return err
}

// Free leaves the sequence in the slot.
func (d *Kept) Free(int) {}

// Drop forgets a prefix that the decoder has computed.
func (d *Kept) Drop(prefix int) {
	if !d.continues {
		d.Decoder.Drop(prefix)
	}
}

// Close frees the slot.
func (d *Kept) Close() {
	if d.heldIDs != nil {
		d.Decoder.Free(0)
	}
	d.heldIDs, d.stepFailed = nil, false
}
