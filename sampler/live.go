package sampler

import (
	"errors"
	"fmt"
	"slices"
)

// A MixedDecoder is a Decoder whose slots may choose tokens in different ways.
type MixedDecoder interface {
	Decoder
	// SetSlotSampling fixes how the following calls choose the tokens of one slot.
	SetSlotSampling(slot int, s Sampling) error
}

// A Call is a request that a Live answers, with options of its own. Token and Done
// are called between two steps, by the goroutine that steps the Live.
type Call struct {
	Options // PrefillTokens and DropLong have no meaning
	Request
	// Done is called with each response as it ends.
	Done func(Response)
	// Failed is called instead, once, if the call cannot be answered to its end.
	Failed func(error)

	stops   stops
	prefix  int  // the handle of the prompt, once it is computed
	has     bool // there is a prefix
	started int  // samples that have a slot, or had one
}

// A Live answers calls that come while others are being answered: each step moves
// all sequences on that there are, and a call begins in the next slots that become
// free. Calls begin in the order in which they came. A prompt is computed alone, one
// before each step, so with an Invariant decoder the tokens of a call are the same
// whatever is answered beside it.
//
// A Live is used by one goroutine at a time. The decoder must have no sequences.
type Live struct {
	d     MixedDecoder
	slots []liveSlot
	queue []*Call // with samples that have no slot yet

	active []int // the busy slots, ascending
	arguments
}

// A liveSlot is a sequence and the call that it is of, nil if the slot is free.
type liveSlot struct {
	sequence
	call *Call
}

// NewLive takes over a decoder.
func NewLive(d MixedDecoder) (*Live, error) {
	n := d.Slots()
	if n < 1 || d.MaxTokens() < 2 {
		return nil, fmt.Errorf("sampler: a decoder with %d slots of %d tokens can hold no response", n, d.MaxTokens())
	}
	if err := d.SetSampling(Plain(1)); err != nil {
		return nil, fmt.Errorf("sampler: set sampling: %w", err)
	}
	return &Live{d: d, slots: make([]liveSlot, n), arguments: arguments{
		ids: make([]int32, n), uniforms: make([]float32, n),
		next: make([]int32, n), logp: make([]float32, n), entropy: make([]float32, n),
	}}, nil
}

// Check returns the error for which Add would refuse a call.
func (l *Live) Check(c *Call) error {
	if err := c.Options.validate(); err != nil {
		return err
	}
	if err := c.Request.validate(0, c.Greedy); err != nil {
		return err
	}
	if !c.fits(l.d.MaxTokens()) {
		return fmt.Errorf("sampler: the prompt has %d tokens, and a slot holds %d with at least one of response", len(c.Prompt), l.d.MaxTokens())
	}
	return nil
}

// Add queues a call.
func (l *Live) Add(c *Call) error {
	if err := l.Check(c); err != nil {
		return err
	}
	c.stops = newStops(c.Stops)
	l.queue = append(l.queue, c)
	return nil
}

// Cancel ends a call without calling it back. Its slots are free for the next step.
func (l *Live) Cancel(c *Call) {
	for s := range l.slots {
		if l.slots[s].call == c {
			l.free(s)
		}
	}
	if i := slices.Index(l.queue, c); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	l.drop(c)
}

// Step begins samples of at most one waiting call in the free slots, and moves every
// sequence on by a token. Errors go to the calls that they are about. It reports
// whether there is more to do.
func (l *Live) Step() bool {
	l.admit()
	if active := l.busy(); len(active) > 0 {
		if err := l.step(active); err != nil {
			l.fail(active, err)
		}
	}
	return len(l.queue) > 0 || len(l.busy()) > 0
}

// busy lists the slots in use, ascending.
func (l *Live) busy() []int {
	l.active = l.active[:0]
	for s := range l.slots {
		if l.slots[s].call != nil {
			l.active = append(l.active, s)
		}
	}
	return l.active
}

// admit starts samples of the first call in the queue.
func (l *Live) admit() {
	l.fresh = l.fresh[:0]
	for s := range l.slots {
		if l.slots[s].call == nil {
			l.fresh = append(l.fresh, s)
		}
	}
	if len(l.queue) == 0 || len(l.fresh) == 0 {
		return
	}
	c := l.queue[0]
	if err := l.start(c); err != nil {
		l.refuse(c, err)
		return
	}
	if c.started == c.Samples {
		l.queue = l.queue[1:]
		l.drop(c)
	}
}

// start begins as many samples of a call as there are free slots, which l.fresh lists.
func (l *Live) start(c *Call) error {
	if !c.has {
		handles, err := l.d.Prefill([][]int32{c.Prompt})
		if err == nil && len(handles) != 1 {
			err = fmt.Errorf("the decoder returned %d prefixes", len(handles))
		}
		if err != nil {
			return fmt.Errorf("sampler: prefill of %d tokens: %w", len(c.Prompt), err)
		}
		c.prefix, c.has = handles[0], true
	}
	n := min(len(l.fresh), c.Samples-c.started)
	l.prefixes = l.prefixes[:0]
	for i, s := range l.fresh[:n] {
		q := &l.slots[s]
		q.begin(&c.Options, &c.Request, 0, c.started+i, l.d.MaxTokens())
		l.uniforms[i], _ = q.uniform(&c.Options) // a given list has at least one
		l.prefixes = append(l.prefixes, c.prefix)
		if err := l.d.SetSlotSampling(s, c.Sampling); err != nil {
			return fmt.Errorf("sampler: set sampling: %w", err)
		}
	}
	if err := l.d.Start(l.prefixes, l.fresh[:n], l.uniforms[:n], l.next[:n], l.logp[:n], l.entropy[:n]); err != nil {
		return fmt.Errorf("sampler: start of %d sequences: %w", n, err)
	}
	for _, s := range l.fresh[:n] {
		l.slots[s].call = c
	}
	c.started += n
	l.takeAll(l.fresh[:n])
	return nil
}

// step moves the sequences of the active slots on.
func (l *Live) step(active []int) error {
	n := len(active)
	for i, s := range active {
		q := &l.slots[s]
		u, err := q.uniform(&q.call.Options)
		if err != nil {
			l.refuse(q.call, err)
			return nil // the others go on with the next step
		}
		l.ids[i], l.uniforms[i] = q.ids[len(q.ids)-1], u
	}
	if err := l.d.Step(active, l.ids[:n], l.uniforms[:n], l.next[:n], l.logp[:n], l.entropy[:n]); err != nil {
		return fmt.Errorf("sampler: step with %d sequences: %w", n, err)
	}
	l.takeAll(active)
	return nil
}

// takeAll hands the decoder's answers to the sequences in slots.
func (l *Live) takeAll(slots []int) {
	for i, s := range slots {
		q := &l.slots[s]
		c := q.call
		if c == nil {
			continue // canceled by a call back, or failed with another sample
		}
		finish, stop, err := q.add(&c.Options, &c.stops, l.next[i], l.logp[i], l.entropy[i])
		if err != nil {
			l.refuse(c, err)
			continue
		}
		if c.Token != nil {
			c.Token(Token{Sample: q.sample, ID: l.next[i], LogProb: l.logp[i]})
		}
		if finish != "" && q.call == c {
			response := q.response(finish, stop)
			l.free(s)
			c.Done(response)
		}
	}
}

// fail ends all calls that have a sequence in slots.
func (l *Live) fail(slots []int, err error) {
	for _, s := range slices.Clone(slots) {
		if c := l.slots[s].call; c != nil {
			l.refuse(c, err)
		}
	}
}

// refuse ends a call with an error.
func (l *Live) refuse(c *Call, err error) {
	l.Cancel(c)
	c.Failed(err)
}

func (l *Live) free(s int) {
	l.slots[s].call, l.slots[s].text = nil, nil
	l.d.Free(s)
}

// drop forgets the prompt of a call.
func (l *Live) drop(c *Call) {
	if c.has {
		l.d.Drop(c.prefix)
		c.has = false
	}
}

// errClosed is what calls get that were not answered when a Live was closed.
var errClosed = errors.New("sampler: stopped before the response ended")

// Close ends all calls with an error. The decoder is free again.
func (l *Live) Close() {
	for _, c := range slices.Clone(l.queue) {
		l.refuse(c, errClosed)
	}
	l.fail(l.busy(), errClosed)
}
