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

	tokens []int32 // tokens of the sequence in the slot; nil if the slot is free
	prompt []int32 // prompt of the prefix that was handed out
	grows  bool    // the prompt continues the sequence; otherwise the decoder has computed it
	broken bool    // a step failed, so the content of the slot is unknown
}

// NewKept takes over a decoder of one slot until Close.
func NewKept(d Decoder, stepCost int) *Kept { return &Kept{Decoder: d, StepCost: stepCost} }

// Prefill computes a prompt, unless appending it to the sequence is faster.
func (d *Kept) Prefill(prompts [][]int32) ([]int, error) {
	if len(prompts) != 1 || d.Slots() != 1 {
		return nil, fmt.Errorf("sampler: a Kept decoder has %d prompts and %d slots; it takes one of each", len(prompts), d.Slots())
	}
	d.prompt = slices.Clone(prompts[0])
	further := len(d.prompt) - len(d.tokens)
	d.grows = d.tokens != nil && !d.broken && further > 0 && further*d.StepCost <= len(d.tokens) &&
		slices.Equal(d.tokens, d.prompt[:len(d.tokens)])
	if d.grows {
		d.Reused = len(d.tokens)
		return []int{0}, nil
	}
	d.Reused = 0
	d.Close()
	return d.Decoder.Prefill(prompts)
}

// Begin begins the sequence, or appends the prompt's further tokens to it.
func (d *Kept) Begin(rows []Row) error {
	if !d.grows {
		err := d.Decoder.Begin(rows)
		if err == nil {
			d.tokens = slices.Clone(d.prompt)
		}
		return err
	}
	for _, id := range d.prompt[len(d.tokens):] {
		rows[0].ID = id
		if err := d.Step(rows); err != nil {
			d.Close()
			return err
		}
	}
	return nil
}

// Step appends a token to the sequence.
func (d *Kept) Step(rows []Row) error {
	err := d.Decoder.Step(rows)
	d.tokens, d.broken = append(d.tokens, rows[0].ID), d.broken || err != nil
	return err
}

// Free leaves the sequence in the slot.
func (d *Kept) Free(int) {}

// Drop forgets a prefix that the decoder has computed.
func (d *Kept) Drop(prefix int) {
	if !d.grows {
		d.Decoder.Drop(prefix)
	}
}

// Close frees the slot.
func (d *Kept) Close() {
	if d.tokens != nil {
		d.Decoder.Free(0)
	}
	d.tokens, d.broken = nil, false
}
