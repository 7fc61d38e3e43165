package sampler

import "sync"

// A Segment is a part of an episode in which its history only grew: a prompt and what
// followed it.
type Segment struct {
	Prompt []int32
	Response
}

// arrivals are the observations that have come for sequences that wait for them.
type arrivals struct {
	mu   sync.Mutex
	list []arrival
	come chan struct{} // has an element if there are any
}

// An arrival is an observation for the sequence of a slot, if it is still the same.
type arrival struct {
	slot   int
	call   *Call
	sample int
	Observation
}

func newArrivals() *arrivals { return &arrivals{come: make(chan struct{}, 1)} }

// add hands over an observation; it never waits.
func (a *arrivals) add(x arrival) {
	a.mu.Lock()
	a.list = append(a.list, x)
	a.mu.Unlock()
	select {
	case a.come <- struct{}{}:
	default:
	}
}

// take returns what has come.
func (a *arrivals) take() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.list
	a.list = nil
	return list
}

// rest lets the sequence of a slot wait for what follows a turn that has ended.
func (s *Scheduler) rest(slot int, finish Finish, stop string) {
	q := &s.slots[slot]
	q.waits, q.ended = true, q.response(finish, stop)
	s.waiting++
	x := arrival{slot: slot, call: q.call, sample: q.sample}
	q.call.Turn(q.ended, func(o Observation) {
		x.Observation = o
		s.arrivals.add(x)
	})
}

// receive lets sequences go on whose observations have come. Where many tokens have to be
// appended, the whole sequence is computed anew as a prompt, which is faster than steps.
func (s *Scheduler) receive() {
	var anew []int // slots
	for _, x := range s.arrivals.take() {
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
			anew = append(anew, x.slot)
		}
	}
	if len(anew) > 0 {
		s.recompute(anew)
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
