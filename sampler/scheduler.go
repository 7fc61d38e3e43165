package sampler

import (
	"fmt"
	"slices"
)

// A Call is a request that a Scheduler answers, with its own options. The goroutine that
// steps the Scheduler calls Token and Done between two steps.
type Call struct {
	Options // PrefillTokens and DropLong are ignored
	Request
	// Owner says whose prefixes the call may continue; see KeepPrefixes.
	Owner string
	// Cached is how many tokens of the prompt were not computed, once Token is called.
	Cached int
	// Done is called with each response as it ends.
	Done func(Response)
	// Failed is called instead, once, if the call cannot be answered to its end.
	Failed func(error)

	index   int         // index among the requests of Sample
	prefix  int         // the handle of the prompt, once it is computed
	has     bool        // the prefix exists
	kept    *keptPrefix // the prefix, if it is one that may be kept
	started int         // number of samples that have or had a slot
	over    bool        // the call was cancelled or has failed
}

// A Scheduler moves the sequences of calls on together. Calls may come while others are being answered, and
// begin in the order in which they came, in the slots that become free.
//
// It computes each prompt alone, so with an Invariant decoder the tokens of a call are the
// same whatever is answered beside it. Sample computes several together.
//
// A Scheduler is used by one goroutine at a time. The decoder must have no sequences.
type Scheduler struct {
	d        Decoder
	together int // prompts of up to this many tokens are computed together, or one by one before a step
	slots    []sequence
	busy     int // number of slots in use
	waiting  int // number of slots in use whose sequences wait for an observation
	arrivals Queue[arrival]
	queue    []*Call       // calls with samples that have no slot yet; the prompts of the first ones are computed
	rows     []Row         // rows of the newest call of the decoder
	kept     *keptPrefixes // prefixes of earlier calls; nil if none are kept
	stats    Stats
}

// NewScheduler takes over a decoder.
func NewScheduler(d Decoder) (*Scheduler, error) {
	n, maxTokens := d.Slots(), d.MaxTokens()
	if n < 1 || maxTokens < 2 {
		return nil, fmt.Errorf("sampler: a decoder with %d slots of %d tokens can hold no response", n, maxTokens)
	}
	return &Scheduler{d: d, slots: make([]sequence, n), stats: Stats{Slots: n}}, nil
}

// Check returns the error for which Add would refuse a call.
func (s *Scheduler) Check(c *Call) error {
	if err := c.Options.validate(); err != nil {
		return err
	}
	if err := c.Request.validate(0, c.Greedy); err != nil { // 0: a call is its own only request; errors name it by number
		return err
	}
	return c.fits(0, s.d.MaxTokens()) // 0 likewise
}

// Add queues a call.
func (s *Scheduler) Add(c *Call) error {
	if err := s.Check(c); err != nil {
		return err
	}
	s.queue = append(s.queue, c)
	return nil
}

// Cancel ends a call without calling Done or Failed. Its slots are free for the next step.
func (s *Scheduler) Cancel(c *Call) {
	for slot := range s.slots {
		if s.slots[slot].call == c {
			s.free(slot)
		}
	}
	if i := slices.Index(s.queue, c); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.drop(c)
	c.over = true
}

// Up to fewPromptTokens are computed before a step, if there is room for more than one
// prompt: while a slot is free, each step extends fewer sequences.
const fewPromptTokens = 4 * StepCost

// With KeepPrefixes up to manyPromptTokens of several short prompts are computed before a step: the rows
// that the step then has take less time together than in steps of their own.
const manyPromptTokens = 512

// Step begins samples of waiting calls in the free slots, and extends every sequence by a
// token. An error ends the calls that it concerns, and others continue. Step reports
// whether it can be called again before another call or an observation comes.
func (s *Scheduler) Step() bool {
	s.receive()
	for before := s.stats.PrefillTokens; s.begin() && s.stats.PrefillTokens-before < fewPromptTokens; {
	}
	s.advance()
	return s.busy > s.waiting || len(s.queue) > 0 && s.busy < len(s.slots)
}

func (s *Scheduler) idle() bool { return s.busy == 0 && len(s.queue) == 0 }

// begin begins samples of waiting calls in the free slots. It reports whether there were calls and slots.
func (s *Scheduler) begin() bool {
	if s.busy == len(s.slots) || len(s.queue) == 0 {
		return false
	}
	s.prefill()
	s.start()
	return true
}

// prefill computes the next prompts in the queue: as many as the free slots need in
// addition to computed ones, and as may be computed together.
func (s *Scheduler) prefill() {
	free, tokens := len(s.slots)-s.busy, 0
	var calls []*Call
	var prompts [][]int32
	for _, c := range s.queue {
		if !c.has {
			if free <= 0 || len(calls) > 0 && tokens+len(c.Prompt) > s.together {
				break
			}
			calls, prompts = append(calls, c), append(prompts, c.Prompt)
			tokens += len(c.Prompt)
		}
		free -= c.Samples - c.started
	}
	if len(calls) == 0 {
		return
	}
	if s.kept != nil {
		for _, c := range calls {
			if err := s.computePart(c); err != nil {
				s.refuse(c, fmt.Errorf("sampler: prefill of a prompt of %d tokens: %w", len(c.Prompt), err))
			} else if !c.has {
				break // later calls do not begin before it
			}
		}
		return
	}
	handles, err := s.d.Prefill(prompts)
	if err == nil && len(handles) != len(prompts) {
		for _, h := range handles {
			s.d.Drop(h)
		}
		err = fmt.Errorf("the decoder returned %d prefixes", len(handles))
	}
	if err != nil {
		s.fail(calls, fmt.Errorf("sampler: prefill of %d prompts from request %d on: %w", len(prompts), calls[0].index, err))
		return
	}
	for i, c := range calls {
		c.prefix, c.has = handles[i], true
	}
	s.stats.Prefills++
	s.stats.Prompts += len(handles)
	s.stats.PrefillTokens += tokens
}

// start begins samples of the computed prompts in the free slots, drops the
// prefixes that have no sample left to start, and takes the first tokens.
func (s *Scheduler) start() {
	s.rows = s.rows[:0]
	next := 0 // in the queue
	for slot := range s.slots {
		q := &s.slots[slot]
		if q.call != nil {
			continue
		}
		if next < len(s.queue) && s.queue[next].started == s.queue[next].Samples {
			next++
		}
		if next == len(s.queue) || !s.queue[next].has {
			break
		}
		q.begin(s.queue[next], s.d.MaxTokens())
		u, _ := q.uniform() // a given list has at least one
		s.rows = append(s.rows, q.row(slot, q.call.prefix, u))
	}
	s.busy += len(s.rows)
	if !s.beginRows("of prompts") {
		return
	}
	for len(s.queue) > 0 && s.queue[0].started == s.queue[0].Samples {
		s.drop(s.queue[0])
		s.queue = s.queue[1:]
	}
	s.giveTokens()
}

// advance extends every sequence by one token.
func (s *Scheduler) advance() {
	s.rows = s.rows[:0]
	for slot := range s.slots {
		q := &s.slots[slot]
		if q.call == nil {
			continue
		}
		row := q.row(slot, 0, 0)
		row.ID, row.Idle, row.Top = q.feed[0], q.waits, 0
		if len(q.feed) == 1 && !q.waits {
			var err error
			row.Top = q.call.Top
			if row.Uniform, err = q.uniform(); err != nil {
				s.refuse(q.call, err)
				continue
			}
		}
		s.rows = append(s.rows, row)
	}
	// earlier rows may belong to the same call as a refused row
	s.rows = slices.DeleteFunc(s.rows, func(r Row) bool { return s.slots[r.Slot].call == nil })
	n := len(s.rows) - s.waiting
	if n == 0 {
		return
	}
	if err := s.d.Step(s.rows); err != nil {
		s.fail(s.calls(s.rows), fmt.Errorf("sampler: step with %d sequences: %w", n, err))
		return
	}
	s.stats.Steps++
	s.stats.SlotSteps += n
	s.giveTokens()
}

// giveTokens gives the decoder's tokens to the sequences.
func (s *Scheduler) giveTokens() {
	for _, row := range s.rows {
		q := &s.slots[row.Slot]
		c := q.call
		if c == nil || row.Idle {
			continue // a callback cancelled the call, or another sample of it failed
		}
		if len(q.feed) > 1 {
			q.feed = q.feed[1:] // the token of an observation follows
			continue
		}
		finish, stop, err := q.add(row.Out)
		if err != nil {
			s.refuse(c, err)
			continue
		}
		s.stats.Tokens++
		if c.Token != nil {
			c.Token(Token{Request: c.index, Sample: q.sample, ID: row.Out.ID, LogProb: row.Out.LogProb, Likeliest: row.Out.Likeliest})
		}
		switch {
		case finish == "" || q.call != c:
		case c.Turn != nil && (finish == Stop || !q.full()):
			s.awaitObservation(row.Slot, finish, stop)
		default:
			s.end(row.Slot, q.response(finish, stop))
		}
	}
}

// end frees a slot and reports its response.
func (s *Scheduler) end(slot int, r Response) {
	c := s.slots[slot].call
	s.stats.Responses++
	if s.kept != nil {
		s.kept.save(slot, &s.slots[slot])
	}
	s.free(slot)
	c.Done(r)
}

// recompute computes a slot's sequence anew with its observation, and takes the next token.
func (s *Scheduler) recompute(slot int) {
	q := &s.slots[slot]
	tokens := q.tokens()
	u, err := q.uniform()
	var handles []int
	if err == nil {
		handles, err = s.d.Prefill([][]int32{tokens})
	}
	if err != nil {
		s.refuse(q.call, fmt.Errorf("sampler: after an observation: %w", err))
		return
	}
	defer s.d.Drop(handles[0])
	s.stats.Prefills++
	s.stats.PrefillTokens += len(tokens)
	q.feed = q.feed[len(q.feed)-1:]
	s.d.Free(slot)
	s.rows = append(s.rows[:0], q.row(slot, handles[0], u))
	if s.beginRows("after observations") {
		s.giveTokens()
	}
}

// beginRows begins the rows, if there are any, in slots that are free for the decoder. An
// error ends their calls.
func (s *Scheduler) beginRows(what string) (ok bool) {
	if len(s.rows) == 0 {
		return false
	}
	if err := s.d.Begin(s.rows); err != nil {
		calls := s.calls(s.rows)
		for _, row := range s.rows {
			s.slots[row.Slot].call = nil // its row has taken no slot
		}
		s.busy -= len(s.rows)
		s.fail(calls, fmt.Errorf("sampler: start of %d sequences %s: %w", len(s.rows), what, err))
		return false
	}
	return true
}

// calls lists the call of each row.
func (s *Scheduler) calls(rows []Row) (calls []*Call) {
	for _, row := range rows {
		calls = append(calls, s.slots[row.Slot].call)
	}
	return calls
}

// fail ends calls with an error.
func (s *Scheduler) fail(calls []*Call, err error) {
	for _, c := range calls {
		s.refuse(c, err)
	}
}

// refuse ends a call with an error, unless a callback has ended it.
func (s *Scheduler) refuse(c *Call, err error) {
	if !c.over {
		s.Cancel(c)
		c.Failed(err)
	}
}

func (s *Scheduler) free(slot int) {
	q := &s.slots[slot]
	if q.waits {
		s.waiting--
	}
	q.call, q.text, q.waits, q.ended = nil, nil, false, Response{}
	s.busy--
	s.d.Free(slot)
}

// drop forgets the prompt of a call.
func (s *Scheduler) drop(c *Call) {
	switch {
	case c.kept != nil:
		s.kept.release(c.kept)
	case c.has:
		s.d.Drop(c.prefix)
	}
	c.kept, c.has = nil, false
}

// Close ends all remaining calls with an error. The decoder is free again.
func (s *Scheduler) Close(err error) {
	calls := s.queue
	s.queue = nil
	for _, q := range s.slots {
		if q.call != nil {
			calls = append(calls, q.call)
		}
	}
	s.fail(calls, err)
	if s.kept != nil {
		s.kept.close()
	}
}
