package sampler

import "sync"

// A Segment is a part of an episode in which the conversation only grew: a prompt and what followed it.
type Segment struct {
	Prompt []int32
	Response
}

// A Queue passes values to one reader, who takes all of them at once. The zero Queue is empty.
type Queue[T any] struct {
	mu   sync.Mutex
	list []T
	once sync.Once
	come chan struct{}
}

// Come has an element if the queue is not empty.
func (q *Queue[T]) Come() chan struct{} {
	q.once.Do(func() { q.come = make(chan struct{}, 1) })
	return q.come
}

// Add adds a value; it never waits.
func (q *Queue[T]) Add(x T) {
	q.mu.Lock()
	q.list = append(q.list, x)
	q.mu.Unlock()
	select {
	case q.Come() <- struct{}{}:
	default:
	}
}

// Take returns all values, in order.
func (q *Queue[T]) Take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list = nil
	return list
}

// An arrival is an observation for a slot's sequence, if that is still the same.
type arrival struct {
	slot   int
	call   *Call
	sample int
	Observation
}

// awaitObservation makes a slot's sequence wait for the observation after a turn.
func (s *Scheduler) awaitObservation(slot int, finish Finish, stop string) {
	q := &s.slots[slot]
	q.awaiting, q.endedTurn = true, q.response(finish, stop)
	s.waiting++
	x := arrival{slot: slot, call: q.call, sample: q.sample}
	q.call.Turn(q.endedTurn, func(o Observation) {
		x.Observation = o
		s.arrivals.Add(x)
	})
}

// receive continues sequences whose observations have come, or ends them where the observation says so or does not
// fit. To append many tokens, it computes the whole sequence anew as a prompt, which is faster than steps.
func (s *Scheduler) receive() {
	for _, x := range s.arrivals.Take() {
		q := &s.slots[x.slot]
		if q.call != x.call || q.sample != x.sample || !q.awaiting {
			continue // the sequence was cancelled
		}
		q.awaiting = false
		s.waiting--
		switch {
		case x.Err != nil:
			s.failCall(q.call, x.Err)
		case x.End != "":
			q.endedTurn.Finish = x.End
			s.endResponse(x.slot, q.endedTurn)
		case !q.addObservation(x.Observation): // no room for it
			q.endedTurn.Finish, q.endedTurn.Stop = Length, ""
			s.endResponse(x.slot, q.endedTurn)
		case stepsAreSlower(len(q.unfed), len(q.call.Prompt)+len(q.ids)+q.observedTokens):
			s.recompute(x.slot)
		} // else the next steps feed the observation's tokens one by one
	}
}

const (
	// StepCost is the number of prompt tokens that take as long as one step of a single sequence:
	// measured with a model of 135M weights on two cores, 2.4 ms a token and 69 ms a step.
	StepCost = 28
	// up to fewTokens are always appended by steps, which other sequences share
	fewTokens = 16
)

// stepsAreSlower says whether appending n tokens takes longer than computing all tokens anew. It
// depends only on lengths, so that a response's bits do not depend on time.
func stepsAreSlower(n, all int) bool { return n > fewTokens && n*StepCost > all }
