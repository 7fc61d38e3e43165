package sampler

import "fmt"

// An Invariant decoder gives a sequence the same bits whatever is decoded
// beside it. The decoder below can do that for any number of rows but one: a
// single row takes another kernel of ONNX Runtime, whose last bits differ. So no
// single row is ever computed: the last slot is kept free, and decodes a
// companion beside a sequence that would be alone.
//
// It costs a slot and, for few rows of a large model, time. It is for results
// that must not depend on the number of slots: evaluations, and rollouts that
// ask for it.
type Invariant struct {
	Decoder
	companion int // its slot
	prefix    int // the companion's prompt; -1 before the first use
	running   bool
	ways      map[int]Sampling // how the slots sample that have ways of their own
}

// An invariantSetter is a Decoder that can compute every row of two or more with
// the same bits, whatever the other rows are. Decoders without the method are
// taken to do so always.
type invariantSetter interface {
	SetInvariant(on bool)
}

// NewInvariant takes over a decoder of at least two slots until Close.
func NewInvariant(d Decoder) *Invariant {
	if d, ok := d.(invariantSetter); ok {
		d.SetInvariant(true)
	}
	return &Invariant{Decoder: d, companion: d.Slots() - 1, prefix: -1}
}

// Slots returns the slots that are left for the caller's sequences.
func (d *Invariant) Slots() int { return d.companion }

// SetSlotSampling fixes how one slot chooses tokens, if the decoder can do that.
func (d *Invariant) SetSlotSampling(slot int, s Sampling) error {
	if d.ways == nil {
		d.ways = make(map[int]Sampling)
	}
	d.ways[slot] = s
	return setSlot(d.Decoder, slot, s)
}

func setSlot(d Decoder, slot int, s Sampling) error {
	mixed, ok := d.(MixedDecoder)
	if !ok {
		return fmt.Errorf("sampler: a %T samples all slots in one way", d)
	}
	return mixed.SetSlotSampling(slot, s)
}

// follow has the companion sample as the slot beside it does: rows that sample in the
// same way are sampled together.
func (d *Invariant) follow(slot int) error {
	if s, ok := d.ways[slot]; ok {
		return setSlot(d.Decoder, d.companion, s)
	}
	return nil
}

// Start begins a lone sequence twice, once in the companion's slot.
func (d *Invariant) Start(prefixes, slots []int, uniforms []float32, next []int32, logp, entropy []float32) error {
	if len(slots) > 1 {
		return d.Decoder.Start(prefixes, slots, uniforms, next, logp, entropy)
	}
	d.stopCompanion()
	if err := d.follow(slots[0]); err != nil {
		return err
	}
	var p pair
	err := d.Decoder.Start([]int{prefixes[0], prefixes[0]}, []int{slots[0], d.companion}, []float32{uniforms[0], uniforms[0]}, p.next[:], p.logp[:], p.entropy[:])
	if err != nil {
		return err
	}
	d.Decoder.Free(d.companion)
	p.first(next, logp, entropy)
	return nil
}

// Step moves the companion on beside a lone sequence. The companion started with
// one token when the sequence had at least one, and is stopped before another
// sequence is alone, so it never outgrows its slot.
func (d *Invariant) Step(slots []int, ids []int32, uniforms []float32, next []int32, logp, entropy []float32) error {
	if len(slots) > 1 {
		d.stopCompanion()
		return d.Decoder.Step(slots, ids, uniforms, next, logp, entropy)
	}
	if !d.running {
		if err := d.startCompanion(); err != nil {
			return err
		}
	}
	if err := d.follow(slots[0]); err != nil {
		return err
	}
	var p pair
	if err := d.Decoder.Step([]int{slots[0], d.companion}, []int32{ids[0], 0}, []float32{uniforms[0], 0}, p.next[:], p.logp[:], p.entropy[:]); err != nil {
		return err
	}
	p.first(next, logp, entropy)
	return nil
}

// startCompanion begins a sequence of zeros.
func (d *Invariant) startCompanion() error {
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

func (d *Invariant) stopCompanion() {
	if d.running {
		d.Decoder.Free(d.companion)
		d.running = false
	}
}

// Close frees what the companion holds; the decoder stays open and is as it was
// before NewInvariant.
func (d *Invariant) Close() {
	d.stopCompanion()
	if d, ok := d.Decoder.(invariantSetter); ok {
		d.SetInvariant(false)
	}
	if d.prefix >= 0 {
		d.Drop(d.prefix)
		d.prefix = -1
	}
}

// A pair is the decoder's results for a sequence and the companion.
type pair struct {
	next          [2]int32
	logp, entropy [2]float32
}

// first hands the results of the sequence to the caller.
func (p *pair) first(next []int32, logp, entropy []float32) {
	next[0], logp[0], entropy[0] = p.next[0], p.logp[0], p.entropy[0]
}
