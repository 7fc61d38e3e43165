// Package sampler turns prompts into responses with their log-probs: K samples
// of each prompt, through a Decoder that computes a prompt once and then moves
// many sequences on together.
//
// Sequences end at different times. A slot that becomes free is given to the
// next sample in the queue before the next step (continuous batching), so the
// decoder never waits for the longest response of a batch. The schedule does not
// change a response: each token is decided by a number that is a function of the
// seed, the prompt, the sample and the token's place alone (Uniform).
package sampler

import (
	"context"
	"fmt"
	"slices"
)

// Sample samples every request's responses and returns them ordered by request,
// then sample, whatever order they ended in.
//
// Sample uses the whole decoder: its slots, numbered from 0 to Slots()-1, must be
// free before. However Sample returns, they are free afterwards and no prefix is
// left. Prompts are taken in the order given. Slots are passed to the decoder in
// ascending order.
//
// done, if not nil, is called with each response as it ends, between two
// steps, on the caller's goroutine; slow work belongs on another. The response's
// slices are those returned later.
//
// Bad options, and prompts that are empty or too long for a slot, are reported
// before anything is computed. An error of the decoder, a log-prob that is not
// finite, uniforms that run out and the end of ctx (checked at each step) stop
// the call: the responses that had ended are returned beside the error.
func Sample(ctx context.Context, d Decoder, opts Options, reqs []Request, done func(Response)) ([]Response, Stats, error) {
	r, err := newRun(d, opts, reqs, span{0, len(reqs)}, done)
	if err != nil {
		return nil, Stats{}, err
	}
	return r.all(ctx)
}

// all samples what is in the queue; see Sample.
func (r *run) all(ctx context.Context) ([]Response, Stats, error) {
	if err := r.d.SetSampling(r.opts.Sampling); err != nil {
		return nil, Stats{}, fmt.Errorf("sampler: set sampling: %w", err)
	}
	defer r.release()
	err := r.loop(ctx)
	// A response that has not ended has no reason for it yet.
	ended := slices.DeleteFunc(r.responses, func(p Response) bool { return p.Finish == "" })
	return ended, r.stats, err
}

// A run is the state of one Sample call.
type run struct {
	d     Decoder
	opts  Options
	stops stops
	reqs  []Request
	done  func(Response)

	mixed     MixedDecoder // d, if samples choose tokens in different ways; else nil
	responses []Response   // of all requests, in the order returned
	first     []int        // where each request's responses begin
	stats     Stats

	waiting

	slots  []sequence
	busy   int
	active []int // the busy slots, ascending

	arguments
}

// waiting are the samples still to start: those of the requests queue[started:], and
// of the first of them the samples from sample on. Requests are computed, started and
// dropped in the same order, so the prefixes held are prefix[dropped:computed].
type waiting struct {
	queue    []int // indices of the requests to run
	prefix   []int // handles, parallel to queue
	computed int   // requests that have had their Prefill
	started  int   // requests whose samples have all begun
	dropped  int   // requests whose prefix is gone
	sample   int
}

// arguments are those of a decoder call, at most one entry per slot.
type arguments struct {
	prompts  [][]int32
	prefixes []int
	fresh    []int // slots to start
	ids      []int32
	uniforms []float32
	next     []int32
	logp     []float32
	entropy  []float32
}

// newRun checks all requests and returns a run of those of a span.
func newRun(d Decoder, opts Options, reqs []Request, own span, done func(Response)) (*run, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	n, maxTokens := d.Slots(), d.MaxTokens()
	if n < 1 || maxTokens < 2 {
		return nil, fmt.Errorf("sampler: a decoder with %d slots of %d tokens can hold no response", n, maxTokens)
	}
	if opts.PrefillTokens == 0 {
		opts.PrefillTokens = defaultPrefillTokens
	}
	r := &run{
		d: d, opts: opts, stops: newStops(opts.Stops), reqs: reqs, done: done,
		first:  make([]int, len(reqs)),
		slots:  make([]sequence, n),
		active: make([]int, 0, n),
		arguments: arguments{
			ids: make([]int32, n), uniforms: make([]float32, n),
			next: make([]int32, n), logp: make([]float32, n), entropy: make([]float32, n),
		},
	}
	r.stats.Slots = n
	total := 0
	for i, q := range reqs {
		r.first[i] = total
		if err := q.validate(i, opts.Greedy); err != nil {
			return nil, err
		}
		if q.LastGreedy {
			var ok bool
			if r.mixed, ok = d.(MixedDecoder); !ok {
				return nil, fmt.Errorf("sampler: request %d (id %d): a %T cannot sample one response greedily beside others", i, q.ID, d)
			}
		}
		fits := q.fits(maxTokens)
		if !fits && !opts.DropLong {
			return nil, fmt.Errorf("sampler: request %d (id %d): the prompt has %d tokens, and a slot holds %d with at least one of response: shorten it or drop long prompts", i, q.ID, len(q.Prompt), maxTokens)
		}
		switch {
		case !own.has(i):
		case !fits:
			r.stats.Dropped++
		default:
			r.queue = append(r.queue, i)
			total += q.Samples
		}
	}
	r.responses = make([]Response, total)
	r.prefix = make([]int, len(r.queue))
	return r, nil
}

func (r *run) loop(ctx context.Context) error {
	for {
		if err := r.refill(ctx); err != nil {
			return err
		}
		if r.stats.Responses == len(r.responses) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sampler: stopped after %d of %d responses: %w", r.stats.Responses, len(r.responses), err)
		}
		if err := r.step(); err != nil {
			return err
		}
	}
}

// step moves every active sequence on by one token.
func (r *run) step() error {
	n := len(r.active)
	for i, s := range r.active {
		q := &r.slots[s]
		r.ids[i] = q.ids[len(q.ids)-1]
		u, err := q.uniform(&r.opts)
		if err != nil {
			return err
		}
		r.uniforms[i] = u
	}
	if err := r.d.Step(r.active, r.ids[:n], r.uniforms[:n], r.next[:n], r.logp[:n], r.entropy[:n]); err != nil {
		return fmt.Errorf("sampler: step %d with %d sequences: %w", r.stats.Steps, n, err)
	}
	r.stats.Steps++
	r.stats.SlotSteps += n
	live := r.active[:0]
	for i, s := range r.active {
		ended, err := r.take(s, i)
		if err != nil {
			return err
		}
		if !ended {
			live = append(live, s)
		}
	}
	r.active = live
	return nil
}

// refill gives the free slots to the next samples in the queue until no slot is free
// or no sample is left. A first token may end its response, so this can take
// several rounds; the end of ctx cuts it short.
func (r *run) refill(ctx context.Context) error {
	if r.busy == len(r.slots) || r.started == len(r.queue) {
		return nil
	}
	for r.busy < len(r.slots) && r.started < len(r.queue) && ctx.Err() == nil {
		if err := r.prefill(); err != nil {
			return err
		}
		if err := r.start(); err != nil {
			return err
		}
	}
	r.active = r.active[:0]
	for s := range r.slots {
		if r.slots[s].busy {
			r.active = append(r.active, s)
		}
	}
	return nil
}

// prefill computes the next prompts in the queue: as many as the free slots need
// beyond the samples of those that are computed, and PrefillTokens allows.
func (r *run) prefill() error {
	free, tokens := len(r.slots)-r.busy+r.sample, 0
	for _, i := range r.queue[r.started:r.computed] {
		free -= r.reqs[i].Samples
	}
	r.prompts = r.prompts[:0]
	for _, i := range r.queue[r.computed:] {
		q := r.reqs[i]
		if free <= 0 || len(r.prompts) > 0 && tokens+len(q.Prompt) > r.opts.PrefillTokens {
			break
		}
		r.prompts = append(r.prompts, q.Prompt)
		tokens += len(q.Prompt)
		free -= q.Samples
	}
	if len(r.prompts) == 0 {
		return nil
	}
	handles, err := r.d.Prefill(r.prompts)
	if err == nil && len(handles) != len(r.prompts) {
		for _, h := range handles {
			r.d.Drop(h)
		}
		err = fmt.Errorf("the decoder returned %d prefixes", len(handles))
	}
	if err != nil {
		return fmt.Errorf("sampler: prefill of %d prompts from request %d on: %w", len(r.prompts), r.queue[r.computed], err)
	}
	r.computed += copy(r.prefix[r.computed:], handles)
	r.stats.Prefills++
	r.stats.Prompts += len(handles)
	r.stats.PrefillTokens += tokens
	return nil
}

// start begins samples of the computed prompts in the free slots, drops the
// prefixes that have no sample left to start, and takes the first tokens.
func (r *run) start() error {
	r.prefixes, r.fresh = r.prefixes[:0], r.fresh[:0]
	for s := 0; s < len(r.slots) && r.started < r.computed; s++ {
		if !r.slots[s].busy {
			r.prefixes = append(r.prefixes, r.prefix[r.started])
			u, err := r.assign(s)
			if err != nil {
				return err
			}
			r.uniforms[len(r.fresh)] = u
			r.fresh = append(r.fresh, s)
		}
	}
	n := len(r.fresh)
	if err := r.d.Start(r.prefixes, r.fresh, r.uniforms[:n], r.next[:n], r.logp[:n], r.entropy[:n]); err != nil {
		return fmt.Errorf("sampler: start of %d sequences: %w", n, err)
	}
	r.busy += n
	for _, s := range r.fresh {
		r.slots[s].busy = true
	}
	for ; r.dropped < r.started; r.dropped++ {
		r.d.Drop(r.prefix[r.dropped])
	}
	for i, s := range r.fresh {
		if _, err := r.take(s, i); err != nil {
			return err
		}
	}
	return nil
}

// assign makes slot s ready for the next sample in the queue and returns the uniform
// of its first token.
func (r *run) assign(s int) (float32, error) {
	i := r.queue[r.started]
	q := &r.slots[s]
	if r.mixed != nil {
		if err := r.mixed.SetSlotSampling(s, r.reqs[i].sampling(r.opts.Sampling, r.sample)); err != nil {
			return 0, fmt.Errorf("sampler: set sampling: %w", err)
		}
	}
	q.begin(&r.opts, &r.reqs[i], i, r.sample, r.d.MaxTokens())
	if r.sample++; r.sample == r.reqs[i].Samples {
		r.started, r.sample = r.started+1, 0
	}
	u, _ := q.uniform(&r.opts) // a given list has at least one
	return u, nil
}

// take adds the token at place i of the decoder's answer to the sequence in
// slot s, and says whether that ended it.
func (r *run) take(s, i int) (bool, error) {
	q := &r.slots[s]
	finish, stop, err := q.add(&r.opts, &r.stops, r.next[i], r.logp[i], r.entropy[i])
	if err != nil {
		return false, err
	}
	r.stats.Tokens++
	if r.opts.Token != nil {
		r.opts.Token(Token{q.req, q.sample, r.next[i], r.logp[i]})
	}
	if finish == "" {
		return false, nil
	}
	r.finish(s, finish, stop)
	return true, nil
}

// finish stores the response in slot s and frees the slot.
func (r *run) finish(s int, why Finish, stop string) {
	q := &r.slots[s]
	p := &r.responses[r.first[q.req]+q.sample]
	*p = q.response(why, stop)
	r.stats.Responses++
	r.free(s)
	if r.done != nil {
		r.done(*p)
	}
}

func (r *run) free(s int) {
	r.slots[s].busy, r.slots[s].text = false, nil
	r.busy--
	r.d.Free(s)
}

// release frees the slots and prefixes that a run holds when it stops early.
func (r *run) release() {
	for s := range r.slots {
		if r.slots[s].busy {
			r.free(s)
		}
	}
	for ; r.dropped < r.computed; r.dropped++ {
		r.d.Drop(r.prefix[r.dropped])
	}
}
