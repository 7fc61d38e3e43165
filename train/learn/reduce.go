package learn

import (
	"errors"
	"sync"

	"onering/models"
	"onering/runtime"
	"onering/train/metrics"
)

// Buckets are the elements of the gradients, from the first to the last, in the buckets that the ranks sum at once.
// Rank r sums elements b[r] (included) to b[r+1] (excluded) of a bucket b; if each rank updates a part, these are the
// part's elements. All ranks have the same buckets.
func (s *Stepper) Buckets() [][]int {
	if s.sharded() {
		return s.optimizer.Buckets()
	}
	return EvenBuckets(len(s.learner.Gradients.Data), s.options.Bucket, s.ranks.Size())
}

// EvenBuckets are the Buckets of elements where all ranks update all. size is Options.Bucket.
func EvenBuckets(elements, size, ranks int) (buckets [][]int) {
	if size <= 0 {
		size = runtime.DefaultBucket
	}
	for first := 0; first < elements; first += size {
		n := min(size, elements-first)
		bounds := make([]int, ranks+1)
		for r := range bounds {
			bounds[r] = first + int(int64(n)*int64(r)/int64(ranks))
		}
		buckets = append(buckets, bounds)
	}
	return buckets
}

// A reduction sums the gradients over the ranks, one bucket after the other, while the
// backward pass computes those that come later.
type reduction struct {
	*Stepper
	left  [][]int // buckets, see Buckets, that were not handed over; the last is the next
	count int     // number of elements that were handed over
	tasks chan []int
	done  chan error
	err   error // error of copying from the device
}

// openReduction starts a reduction. This rank must finish it, even after an error, since
// the others wait for it. It is nil for a single rank.
func (s *Stepper) openReduction() *reduction {
	if s.ranks.Size() == 1 {
		return nil
	}
	r := &reduction{Stepper: s, left: s.Buckets(), done: make(chan error, 1)}
	r.tasks = make(chan []int, len(r.left)) // passing elements on never waits
	go r.work()
	return r
}

// work sums the buckets as they arrive: SumParts leaves this rank the sum of its own part of a
// bucket. If all ranks need all sums, a second goroutine sends the parts around while the next
// bucket is summed. After an error both go on emptying their channels, so that nobody waits.
func (r *reduction) work() {
	g, allNeedAll := r.learner.Gradients, !r.sharded()
	if d := r.ranks.Device(); d != nil {
		r.done <- r.onDevice(d, g, allNeedAll)
		return
	}
	x := g.Data
	summed := make(chan []int, cap(r.tasks))
	var spreadErr error
	var spreading sync.WaitGroup
	spreading.Go(func() {
		for b := range summed {
			if spreadErr == nil {
				spreadErr = r.spreadFloats(x, b)
			}
		}
	})
	var err error
	for b := range r.tasks { // the buckets that hand passes on, until finish
		if err != nil {
			continue
		}
		if err = r.ranks.SumParts(x, b); err == nil && allNeedAll {
			summed <- b
		}
	}
	close(summed)
	spreading.Wait()
	if err == nil {
		err = spreadErr
	}
	r.done <- err
}

// onDevice is work where the gradients do not leave the devices.
func (r *reduction) onDevice(d Device, g *models.Weights, allNeedAll bool) (err error) {
	for b := range r.tasks {
		if err == nil {
			err = d.SumParts(g, b)
		}
		if err == nil && allNeedAll {
			err = d.Spread(g, b)
		}
	}
	return errors.Join(err, d.Wait())
}

// hand hands the buckets to work whose elements are all at or above first, to which no later pass adds: the backward
// pass goes from the last elements to the first. Where the sums are taken in the host's memory it copies them there.
func (r *reduction) hand(first int) {
	for n := len(r.left); n > 0 && r.left[n-1][0] >= first; n = len(r.left) {
		b := r.left[n-1]
		r.left = r.left[:n-1]
		r.count += b[len(b)-1] - b[0]
		if r.err == nil && r.ranks.Device() == nil {
			r.err = r.env.DownloadPart(r.learner.Gradients, b[0], b[len(b)-1])
		}
		r.tasks <- b
	}
}

// final is called as the Learner's Final.
func (s *Stepper) final(first int) {
	if r := s.reduction; r != nil && s.lastBackward && first > 0 {
		r.hand(first)
	}
}

// finish hands over the remaining buckets, waits for the sums and copies them to this rank's
// device: all of them, or if each rank updates a part its own. err is an error of copying, and lost
// one of the ranks, which cannot reach each other. It does nothing on a nil reduction.
func (r *reduction) finish() (err, lost error) {
	if r == nil {
		return nil, nil
	}
	r.observe(metrics.PhaseReduce)
	r.hand(0) // all buckets that remain: no element is below 0
	close(r.tasks)
	// Linked devices have their sums already.
	if lost = <-r.done; lost != nil || r.err != nil || r.ranks.Device() != nil {
		return r.err, lost
	}
	g, own := r.learner.Gradients, r.ranks.Rank()
	for _, b := range r.Buckets() {
		from, to := b[0], b[len(b)-1]
		if r.sharded() {
			from, to = b[own], b[own+1]
		}
		err = errors.Join(err, r.env.UploadPart(g, from, to))
	}
	return err, nil
}
