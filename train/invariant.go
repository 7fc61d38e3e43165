package train

import (
	"onering/runtime"
	"onering/sampler"
)

// An invariant decoder gives a sequence the same bits whatever is decoded
// beside it. runtime.Decoder can do that for any number of rows but one: a
// single row takes another kernel, whose last bits differ. So no single row is
// ever computed: the last slot of the decoder is kept free to run beside one
// that would be alone.
//
// It is worth its price (see runtime.Decoder.SetInvariant, and a lone sequence
// is slower) where a result must not depend on the number of slots: in
// evaluation, and in rollouts that ask for it.
type invariant struct {
	sampler.Decoder
	companion int // the slot
	prefix    int // of the companion; -1 until it is needed
	running   bool
}

// newInvariant takes over a decoder of at least two slots.
func newInvariant(d sampler.Decoder) *invariant {
	if d, ok := d.(*runtime.Decoder); ok {
		d.SetInvariant(true)
	}
	return &invariant{Decoder: d, companion: d.Slots() - 1, prefix: -1}
}

// Slots returns the slots left for sequences that count.
func (d *invariant) Slots() int { return d.companion }

// Start begins the sequence of a lone slot twice.
func (d *invariant) Start(prefixes, slots []int, uniforms []float32, next []int32, logp, entropy []float32) error {
	if len(slots) > 1 {
		return d.Decoder.Start(prefixes, slots, uniforms, next, logp, entropy)
	}
	d.rest()
	var p pair
	err := d.Decoder.Start([]int{prefixes[0], prefixes[0]}, []int{slots[0], d.companion}, []float32{uniforms[0], uniforms[0]}, p.next[:], p.logp[:], p.entropy[:])
	if err != nil {
		return err
	}
	d.Decoder.Free(d.companion)
	p.first(next, logp, entropy)
	return nil
}

// Step moves the companion on beside a lone sequence. The companion began with
// one token when that had at least as many, and rests before another is alone:
// it never outgrows its slot.
func (d *invariant) Step(slots []int, ids []int32, uniforms []float32, next []int32, logp, entropy []float32) error {
	if len(slots) > 1 {
		d.rest()
		return d.Decoder.Step(slots, ids, uniforms, next, logp, entropy)
	}
	if !d.running {
		if err := d.wake(); err != nil {
			return err
		}
	}
	var p pair
	if err := d.Decoder.Step([]int{slots[0], d.companion}, []int32{ids[0], 0}, []float32{uniforms[0], 0}, p.next[:], p.logp[:], p.entropy[:]); err != nil {
		return err
	}
	p.first(next, logp, entropy)
	return nil
}

// wake starts a sequence of the companion's: zeros after a zero.
func (d *invariant) wake() error {
	if d.prefix < 0 {
		handles, err := d.Prefill([][]int32{{0}})
		if err != nil {
			return err
		}
		d.prefix = handles[0]
	}
	var p pair
	if err := d.Decoder.Start([]int{d.prefix}, []int{d.companion}, []float32{0}, p.next[:1], p.logp[:1], p.entropy[:1]); err != nil {
		return err
	}
	d.running = true
	return nil
}

// rest ends the companion's sequence.
func (d *invariant) rest() {
	if d.running {
		d.Decoder.Free(d.companion)
		d.running = false
	}
}

// close gives back what the companion holds.
func (d *invariant) close() {
	d.rest()
	if d, ok := d.Decoder.(*runtime.Decoder); ok {
		d.SetInvariant(false)
	}
	if d.prefix >= 0 {
		d.Drop(d.prefix)
		d.prefix = -1
	}
}

// A pair is the decoder's answer for a sequence and the companion.
type pair struct {
	next          [2]int32
	logp, entropy [2]float32
}

func (p *pair) first(next []int32, logp, entropy []float32) {
	next[0], logp[0], entropy[0] = p.next[0], p.logp[0], p.entropy[0]
}
