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

	index      int         // index among the requests of Sample
	prefix     int         // the handle of the prompt, once it is computed
	computed   bool        // the prefix exists
	keptPrefix *keptPrefix // the prefix, if it is one that may be kept
	started    int         // number of samples that have or had a slot
	over       bool        // the call was cancelled or has failed
}

// A Scheduler moves the sequences of calls on together. Calls may come while others are being answered, and
// begin in the order in which they came, in the slots that become free.
//
// It computes each prompt alone, so with an Invariant decoder the tokens of a call are the
// same whatever is answered beside it. Sample computes several together.
//
// A Scheduler is used by one goroutine at a time. The decoder must have no sequences.
type Scheduler struct {
	d                  Decoder
	promptTokensAtOnce int // most tokens of several prompts that one prefill computes
	slots              []sequence
	busy               int // number of slots in use
	waiting            int // number of slots in use whose sequences wait for an observation
	arrivals           Queue[arrival]
	queue              []*Call       // calls with samples that have no slot yet; the prompts of the first ones are computed
	rows               []Row         // rows of the newest call of the decoder
	keptPrefixes       *keptPrefixes // prefixes of earlier calls; nil if none are kept
	stats              Stats
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
	return c.checkFits(0, s.d.MaxTokens()) // 0 likewise
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
			s.freeSlot(slot)
		}
	}
	if i := slices.Index(s.queue, c); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.dropPrompt(c)
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
	for before := s.stats.PrefillTokens; s.beginWaiting() && s.stats.PrefillTokens-before < fewPromptTokens; {
	}
	s.stepAll()
	return s.busy > s.waiting || len(s.queue) > 0 && s.busy < len(s.slots)
}

func (s *Scheduler) idle() bool { return s.busy == 0 && len(s.queue) == 0 }

// beginWaiting begins samples of waiting calls in the free slots. It reports whether there were calls and slots.
func (s *Scheduler) beginWaiting() bool {
	if s.busy == len(s.slots) || len(s.queue) == 0 {
		return false
	}
	s.prefill()
	s.startSamples()
	return true
}

// prefill computes the next prompts in the queue: as many as the free slots need in addition to computed ones, and at
// most promptTokensAtOnce of several. Where prefixes are kept it computes the next part of each until one needs more.
func (s *Scheduler) prefill() {
	free, tokens := len(s.slots)-s.busy, 0 // free: slots that the calls so far do not fill
	var calls []*Call
	var prompts [][]int32
	for _, c := range s.queue {
		if !c.computed {
			if free <= 0 || len(calls) > 0 && tokens+len(c.Prompt) > s.promptTokensAtOnce {
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
	if s.keptPrefixes != nil {
		for _, c := range calls {
			if err := s.computePart(c); err != nil {
				s.failCall(c, fmt.Errorf("sampler: prefill of a prompt of %d tokens: %w", len(c.Prompt), err))
			} else if !c.computed {
				break // its next part comes before later calls
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
		s.failCalls(calls, fmt.Errorf("sampler: prefill of %d prompts from request %d on: %w", len(prompts), calls[0].index, err))
		return
	}
	for i, c := range calls {
		c.prefix, c.computed = handles[i], true
	}
	s.stats.Prefills++
	s.stats.Prompts += len(handles)
	s.stats.PrefillTokens += tokens
}

// startSamples begins samples of the computed prompts in the free slots, and gives them their first tokens. Calls
// whose samples have all started lose their prefix and leave the queue.
func (s *Scheduler) startSamples() {
	s.rows = s.rows[:0]
	next := 0 // in the queue
	for slot := range s.slots {
		q := &s.slots[slot]
		if q.call != nil {
			continue
		}
		if next < len(s.queue) && s.queue[next].started == s.queue[next].Samples {
			next++ // this call has all its slots; the next one has at least one sample to start
		}
		if next == len(s.queue) || !s.queue[next].computed {
			break
		}
		q.begin(s.queue[next], s.d.MaxTokens())
		u, _ := q.uniform() // no error: a list of the user has at least one
		s.rows = append(s.rows, q.row(slot, q.call.prefix, u))
	}
	s.busy += len(s.rows)
	if !s.beginRows("of prompts") {
		return
	}
	for len(s.queue) > 0 && s.queue[0].started == s.queue[0].Samples {
		s.dropPrompt(s.queue[0])
		s.queue = s.queue[1:]
	}
	s.giveTokens()
}

// stepAll runs a Step of the decoder, which extends every sequence by one token: the one that was sampled last, or the
// next one of an observation. A sequence that waits for an observation keeps its slot, so its row is part of the step.
func (s *Scheduler) stepAll() {
	s.rows = s.rows[:0]
	for slot := range s.slots {
		q := &s.slots[slot]
		if q.call == nil {
			continue
		}
		row := q.row(slot, 0, 0) // a Step reads no prefix; the uniform follows
		row.ID, row.Idle, row.Top = q.unfed[0], q.awaiting, 0
		if len(q.unfed) == 1 && !q.awaiting { // only what is sampled after the last one is used
			var err error
			row.Top = q.call.Top
			if row.Uniform, err = q.uniform(); err != nil {
				s.failCall(q.call, err)
				continue
			}
		}
		s.rows = append(s.rows, row)
	}
	// A call that failed has ended all its sequences, some of which have rows already.
	s.rows = slices.DeleteFunc(s.rows, func(r Row) bool { return s.slots[r.Slot].call == nil })
	n := len(s.rows) - s.waiting // how many rows are not idle
	if n == 0 {
		return
	}
	if err := s.d.Step(s.rows); err != nil {
		s.failCalls(s.callsOf(s.rows), fmt.Errorf("sampler: step with %d sequences: %w", n, err))
		return
	}
	s.stats.Steps++
	s.stats.SlotSteps += n
	s.giveTokens()
}

// giveTokens gives each sequence of s.rows the token that the decoder sampled for it, calls Token with it, and where it
// ends a turn or the response, has the sequence wait for an observation or ends it.
func (s *Scheduler) giveTokens() {
	for _, row := range s.rows {
		q := &s.slots[row.Slot]
		c := q.call
		if c == nil || row.Idle {
			continue // a callback cancelled the call, or another sample of it failed; or it waits
		}
		if len(q.unfed) > 1 { // another token of the observation follows, so what was sampled is not used
			q.unfed = q.unfed[1:]
			continue
		}
		finish, stop, err := q.addToken(row.Out)
		if err != nil {
			s.failCall(c, err)
			continue
		}
		s.stats.Tokens++
		if c.Token != nil {
			c.Token(Token{Request: c.index, Sample: q.sample, ID: row.Out.ID, LogProb: row.Out.LogProb, Likeliest: row.Out.Likeliest})
		}
		switch {
		case finish == "" || q.call != c: // it continues, or Token cancelled the call
		case c.Turn != nil && (finish == Stop || !q.isFull()): // only the turn has ended
			s.awaitObservation(row.Slot, finish, stop)
		default:
			s.endResponse(row.Slot, q.response(finish, stop))
		}
	}
}

// endResponse frees a slot and reports its response.
func (s *Scheduler) endResponse(slot int, r Response) {
	c := s.slots[slot].call
	s.stats.Responses++
	if s.keptPrefixes != nil {
		s.keptPrefixes.saveSlot(slot, &s.slots[slot])
	}
	s.freeSlot(slot)
	c.Done(r)
}

// recompute computes all tokens of a slot's sequence anew, as a prompt that ends with its observation, begins the
// sequence from that in the same slot, and gives it the next token.
func (s *Scheduler) recompute(slot int) {
	q := &s.slots[slot]
	tokens := q.tokens()
	u, err := q.uniform()
	var handles []int
	if err == nil {
		handles, err = s.d.Prefill([][]int32{tokens})
	}
	if err != nil {
		s.failCall(q.call, fmt.Errorf("sampler: after an observation: %w", err))
		return
	}
	defer s.d.Drop(handles[0])
	s.stats.Prefills++
	s.stats.PrefillTokens += len(tokens)
	q.unfed = q.unfed[len(q.unfed)-1:] // leaves one, so that giveTokens uses the token that Begin samples
	s.d.Free(slot)
	s.rows = append(s.rows[:0], q.row(slot, handles[0], u))
	if s.beginRows("after observations") {
		s.giveTokens()
	}
}

// beginRows begins the rows, if there are any, in slots that are free for the decoder. An error ends their calls.
func (s *Scheduler) beginRows(what string) (ok bool) {
	if len(s.rows) == 0 {
		return false
	}
	if err := s.d.Begin(s.rows); err != nil {
		calls := s.callsOf(s.rows)
		for _, row := range s.rows {
			s.slots[row.Slot].call = nil // its row has taken no slot
		}
		s.busy -= len(s.rows)
		s.failCalls(calls, fmt.Errorf("sampler: start of %d sequences %s: %w", len(s.rows), what, err))
		return false
	}
	return true
}

// callsOf lists the call of each row.
func (s *Scheduler) callsOf(rows []Row) (calls []*Call) {
	for _, row := range rows {
		calls = append(calls, s.slots[row.Slot].call)
	}
	return calls
}

// failCalls ends calls with an error.
func (s *Scheduler) failCalls(calls []*Call, err error) {
	for _, c := range calls {
		s.failCall(c, err)
	}
}

// failCall ends a call with an error, unless a callback has ended it.
func (s *Scheduler) failCall(c *Call, err error) {
	if !c.over {
		s.Cancel(c)
		c.Failed(err)
	}
}

func (s *Scheduler) freeSlot(slot int) {
	q := &s.slots[slot]
	if q.awaiting {
		s.waiting--
	}
	q.call, q.text, q.awaiting, q.endedTurn = nil, nil, false, Response{}
	s.busy--
	s.d.Free(slot)
}

// dropPrompt forgets the prompt of a call.
func (s *Scheduler) dropPrompt(c *Call) {
	switch {
	case c.keptPrefix != nil:
		s.keptPrefixes.release(c.keptPrefix)
	case c.computed:
		s.d.Drop(c.prefix)
	}
	c.keptPrefix, c.computed = nil, false
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
	s.failCalls(calls, err)
	if s.keptPrefixes != nil {
		s.keptPrefixes.close()
	}
}
