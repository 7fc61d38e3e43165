package sampler

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Lanes are decoders that sample in parallel. Each gets consecutive requests, with about
// equally many samples. The same decoder samples a response in every run, for any AtOnce.
type Lanes struct {
	Decoders []Decoder
	AtOnce   int // how many decoders sample at the same time; at least 1
	// Rest, if not nil, is called before several decoders sample at once, and wake after it.
	Rest func() (wake func(), err error)
}

// Lane is a single decoder.
func Lane(d Decoder) Lanes { return Lanes{Decoders: []Decoder{d}, AtOnce: 1} }

// Invariant returns l with decoders that give a sequence the same bits whatever is decoded beside it and (on a CPU)
// however many slots they have, until done is called. A decoder of one slot needs nothing for that.
func (l Lanes) Invariant() (invariant Lanes, done func()) {
	invariant = l
	invariant.Decoders = slices.Clone(l.Decoders)
	var all []*Invariant
	for i, d := range l.Decoders {
		if d.Slots() > 1 {
			all = append(all, NewInvariant(d, InvariantToSlots))
			invariant.Decoders[i] = all[len(all)-1]
		}
	}
	return invariant, func() {
		for _, d := range all {
			d.Close()
		}
	}
}

// Sample is like the function Sample, with a goroutine for each of several decoders. These goroutines call done
// and Options.Token, but never two at the same time. The first error ends all decoders.
func (l Lanes) Sample(ctx context.Context, opts Options, reqs []Request, done func(Response)) ([]Response, Stats, error) {
	if len(l.Decoders) == 1 {
		return Sample(ctx, l.Decoders[0], opts, reqs, done)
	}
	var callbacks sync.Mutex // held while done or opts.Token runs
	if token := opts.Token; token != nil {
		opts.Token = func(t Token) { callbacks.Lock(); defer callbacks.Unlock(); token(t) }
	}
	report := func(r Response) {
		callbacks.Lock()
		defer callbacks.Unlock()
		if done != nil {
			done(r)
		}
	}
	var runs []*batch
	for i, ofLane := range cutIntoSpans(reqs, len(l.Decoders)) {
		r, err := newBatch(l.Decoders[i], opts, reqs, ofLane, report)
		if err != nil {
			return nil, Stats{}, err
		}
		runs = append(runs, r)
	}
	ended, err := l.run(ctx, runs)
	all, stats := []Response{}, Stats{}
	for i, r := range runs { // in the order of the requests
		all = append(all, ended[i]...)
		stats.Add(r.stats)
	}
	return all, stats, err
}

// run runs the batch of each lane, AtOnce at the same time, and returns the responses that ended in
// each, and the first error.
func (l Lanes) run(ctx context.Context, runs []*batch) ([][]Response, error) {
	ended := make([][]Response, len(runs))
	if l.Rest != nil && l.AtOnce > 1 { // the runtime's threads would take time from those of the lanes
		wake, err := l.Rest()
		if err != nil {
			return ended, err
		}
		defer wake()
	}
	running := make(chan struct{}, max(1, l.AtOnce)) // has an element for each lane that runs
	group, ctx := errgroup.WithContext(ctx)
	for i, r := range runs {
		group.Go(func() (err error) {
			running <- struct{}{}
			defer func() { <-running }()
			r.whileWaiting = func(wait func()) { // another lane runs meanwhile
				<-running
				wait()
				running <- struct{}{}
			}
			ended[i], err = r.run(ctx)
			return err // the first ends ctx, and so the other lanes
		})
	}
	return ended, group.Wait()
}

// A span is a range of requests, from the first (included) to the last (excluded).
type span struct{ from, to int }

func (s span) has(i int) bool { return s.from <= i && i < s.to }

// cutIntoSpans cuts requests into one to n spans with about as many samples in each.
func cutIntoSpans(reqs []Request, n int) []span {
	list, total, before := []span{{}}, 0, 0
	for _, q := range reqs {
		total += q.Samples
	}
	for i, q := range reqs {
		if len(list) < n && before*n >= len(list)*total {
			list = append(list, span{from: i})
		}
		list[len(list)-1].to = i + 1
		before += q.Samples
	}
	return list
}
