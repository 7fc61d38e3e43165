package sampler

import "sync"

// A Segment is a part of an episode in which its history only grew: a prompt and what
// followed it.
type Segment struct {
	Prompt []int32
	Response
}

// A Queue hands things over to one who takes all that there are. The zero Queue has nothing.
type Queue[T any] struct {
	mu   sync.Mutex
	list []T
	once sync.Once
	come chan struct{}
}

// Come has an element if there is anything.
func (q *Queue[T]) Come() chan struct{} {
	q.once.Do(func() { q.come = make(chan struct{}, 1) })
	return q.come
}

// Add hands something over; it never waits.
func (q *Queue[T]) Add(x T) {
	q.mu.Lock()
	q.list = append(q.list, x)
	q.mu.Unlock()
	select {
	case q.Come() <- struct{}{}:
	default:
	}
}

// Take returns what has come, in order.
func (q *Queue[T]) Take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list = nil
	return list
}

// An arrival is an observation for the sequence of a slot, if it is still the same.
type arrival struct {
	slot   int
	call   *Call
	sample int
	Observation
}

// rest lets the sequence of a slot wait for what follows a turn that has ended.
func (s *Scheduler) rest(slot int, finish Finish, stop string) {
	q := &s.slots[slot]
	q.waits, q.ended = true, q.response(finish, stop)
	s.waiting++
	x := arrival{slot: slot, call: q.call, sample: q.sample}
	q.call.Turn(q.ended, func(o Observation) {
		x.Observation = o
		s.arrivals.Add(x)
	})
}

// receive lets sequences go on whose observations have come. Where many tokens have to be
// appended, the whole sequence is computed anew as a prompt, which is faster than steps.
func (s *Scheduler) receive() {
	for _, x := range s.arrivals.Take() {
		q := &s.slots[x.slot]
		if q.call != x.call || q.sample != x.sample || !q.waits {
			continue // canceled
		}
		q.waits = false
		s.waiting--
		switch {
		case x.Err != nil:
			s.refuse(q.call, x.Err)
		case x.End != "":
			q.ended.Finish = x.End
			s.end(x.slot, q.ended)
		case !q.observe(x.Observation):
			q.ended.Finish, q.ended.Stop = Length, ""
			s.end(x.slot, q.ended)
		case longer(len(q.feed), len(q.call.Prompt)+len(q.ids)+q.others):
			s.recompute(x.slot)
		}
	}
}

const (
	// StepCost is how many tokens of a prompt take as long as a step of a single sequence:
	// measured with a model of 135M weights on two cores, 2.4 ms a token and 69 ms a step.
	StepCost = 28
	// fewTokens are appended by steps in any case: others take part in them.
	fewTokens = 16
)

// longer says whether n tokens more are appended sooner by computing all tokens anew. It
// depends on lengths alone, so that the bits of a response do not depend on time.
func longer(n, all int) bool { return n > fewTokens && n*StepCost > all }
