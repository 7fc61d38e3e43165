// Package sampler turns prompts into responses with their log-probs: K samples of each prompt, through a
// Decoder that computes a prompt once and then extends many sequences together.
//
// Sequences end at different times. A slot that becomes free is given to the next sample in the queue before
// the next step (continuous batching), so the decoder never waits for the longest response of a batch. The
// schedule does not change a response: each token is decided by a number that is a function of the seed, the
// prompt, the sample and the token's place alone (Uniform).
package sampler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Sample samples every request's responses and returns them ordered by request,
// then sample, whatever order they ended in.
//
// Sample uses the whole decoder: its slots, numbered from 0 to Slots()-1, must be free before. When Sample
// returns, even with an error, they are free and no prefix is left. Prompts are taken in the order given. Slots
// are passed to the decoder in ascending order.
//
// done, if not nil, is called with each response as it ends, between two steps, on the caller's goroutine; slow
// work belongs on another. The response's slices are those returned later.
//
// Bad options, and prompts that are empty or too long for a slot, are reported before anything is computed. An
// error of the decoder, a log-prob that is not finite, uniforms that run out and the end of ctx (checked at
// each step) stop the call: the responses that had ended are returned beside the error.
func Sample(ctx context.Context, d Decoder, opts Options, reqs []Request, done func(Response)) ([]Response, Stats, error) {
	b, err := newBatch(d, opts, reqs, span{0, len(reqs)}, done)
	if err != nil {
		return nil, Stats{}, err
	}
	responses, err := b.run(ctx)
	return responses, b.stats, err
}

// A batch is a Scheduler whose calls are all queued at the start and end together if one fails.
type batch struct {
	*Scheduler
	whileWaiting func(wait func()) // calls wait; a lane lets another run meanwhile
	responses    []Response        // responses of all requests, in the order in which they are returned
	err          error             // the first error
}

// newBatch checks all requests, so that each of several lanes refuses the same ones, and returns a batch of those in
// the span ofLane. Its run calls done, if not nil, with each response.
func newBatch(d Decoder, opts Options, reqs []Request, ofLane span, done func(Response)) (*batch, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s, err := NewScheduler(d)
	if err != nil {
		return nil, err
	}
	s.promptTokensAtOnce = cmp.Or(opts.PrefillTokens, defaultPrefillTokens)
	b := &batch{Scheduler: s, whileWaiting: func(wait func()) { wait() }}
	total := 0
	for i, q := range reqs {
		if err := q.validate(i, opts.Greedy); err != nil {
			return nil, err
		}
		tooLong := q.checkFits(i, d.MaxTokens())
		if tooLong != nil && !opts.DropLong {
			return nil, tooLong
		}
		if !ofLane.has(i) {
			continue
		}
		if tooLong != nil {
			s.stats.Dropped++
			continue
		}
		first := total
		total += q.Samples
		c := &Call{Options: opts, Request: q, index: i}
		c.Done = func(p Response) {
			b.responses[first+p.Sample] = p
			if done != nil {
				done(p)
			}
		}
		c.Failed = func(err error) {
			if b.err == nil {
				b.err = err
				b.Close(err)
			}
		}
		s.queue = append(s.queue, c)
	}
	b.responses = make([]Response, total)
	return b, nil
}

// run samples the queued requests and returns the responses that have ended.
func (b *batch) run(ctx context.Context) ([]Response, error) {
	defer func() { b.Close(b.err) }()
	for {
		for ctx.Err() == nil && b.beginWaiting() { // again while slots are free: it begins few at once, and a first token may end its response
		}
		if b.err == nil && !b.idle() && ctx.Err() != nil {
			b.err = fmt.Errorf("sampler: stopped after %d of %d responses: %w", b.stats.Responses, len(b.responses), ctx.Err())
		}
		if b.err != nil || b.idle() {
			return slices.DeleteFunc(b.responses, func(p Response) bool { return p.Finish == "" }), b.err // "": has not ended
		}
		b.receive()
		b.stepAll()
		canBegin := len(b.queue) > 0 && b.busy < len(b.slots)
		if b.waiting > 0 && b.waiting == b.busy && !canBegin { // all sequences wait for an observation
			b.whileWaiting(func() {
				select {
				case <-b.arrivals.Come():
				case <-ctx.Done():
				}
			})
		}
	}
}
