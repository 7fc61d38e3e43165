package openai

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"onering/sampler"
	"onering/tokenize"
)

// A Model is what requests choose by its name.
type Model struct {
	Name      string
	Parent    string              // the name of the model beside which it is an adapter, else ""
	Tokenizer *tokenize.Tokenizer // nil if there is none; then there are only ids
	Template  tokenize.Template   // of chats
	Sampling  sampler.Sampling    // of requests that do not state it; the most tokens, of chats
	EOS       []int32
	Vocab     int             // ids are below it
	Decoder   sampler.Decoder // has no sequences; the Server alone uses it

	scheduler *sampler.Scheduler
	close     func() // of a model that was loaded by a request, else nil
	retired   bool   // it takes no further requests
}

// An engine decodes for all requests, on one goroutine.
type engine struct {
	models   []*Model
	commands chan func() // run between two steps
	ended    chan struct{}

	most atomic.Int64 // samples that may be in the works
	held atomic.Int64

	fatal  func(error) bool // may be nil
	failed error            // an error of a call that ends the engine
}

// watched is a call whose error is the engine's, too, if it is fatal.
func (e *engine) watched(c *sampler.Call) *sampler.Call {
	tell := c.Failed
	c.Failed = func(err error) {
		if e.fatal != nil && e.fatal(err) {
			e.failed = err
		}
		tell(err)
	}
	return c
}

// run decodes until ctx ends or a call has failed by an error that is fatal, and then ends
// what is being answered. It returns that error.
func (e *engine) run(ctx context.Context) error {
	defer close(e.ended)
	defer func() {
		for _, m := range e.models {
			m.end()
		}
	}()
	for busy := false; ; {
		if !busy {
			select {
			case do := <-e.commands:
				do()
			case <-ctx.Done():
				return nil
			}
		}
		for more := true; more; {
			select {
			case do := <-e.commands:
				do()
			case <-ctx.Done():
				return nil
			default:
				more = false
			}
		}
		busy = e.step()
		if e.failed != nil {
			return e.failed
		}
	}
}

// do runs f between two steps, unless the engine has ended or ctx has.
func (e *engine) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case e.commands <- func() { f(); close(done) }:
		<-done // the engine never leaves a command undone
		return nil
	case <-e.ended:
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve takes n of the samples that may be in the works, until they are given back.
func (e *engine) reserve(n int) error {
	most := e.most.Load()
	if int64(n) > most {
		return invalid("n", "the request asks for %d responses, and this server has room for %d at a time", n, most)
	}
	if e.held.Add(int64(n)) > most {
		e.held.Add(-int64(n))
		return errFull
	}
	return nil
}

// An answer collects what the engine says of a request until the handler takes it.
type answer struct {
	mu     sync.Mutex
	events []event
	wake   chan struct{} // has an element if there are events
}

// An event is a token, the end of a response, or the failure of the request.
type event struct {
	choice int
	id     int32
	logp   float32
	top    []sampler.Candidate
	finish sampler.Finish // "" for a token
	stop   string
	err    error
}

func newAnswer() *answer { return &answer{wake: make(chan struct{}, 1)} }

// add hands over an event; it never waits.
func (a *answer) add(e event) {
	a.mu.Lock()
	a.events = append(a.events, e)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// listening is how often a client that has ended its side of the connection is sent a blank.
const listening = 50 * time.Millisecond

// next waits for events. A client whose side of the connection has ended (ctx has) may be gone,
// or wait for its answer as "nc -N" does: it is sent blanks until one does not arrive.
func (a *answer) next(ctx context.Context, blank func() error) ([]event, error) {
	select {
	case <-a.wake:
	case <-ctx.Done():
		for waiting := true; waiting; {
			select {
			case <-a.wake:
				waiting = false
			case <-time.After(listening):
				if err := blank(); err != nil {
					return nil, err
				}
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	events := a.events
	a.events = nil
	return events, nil
}

// call makes the call for prompt number i of a request with samples of each.
func (a *answer) call(o sampler.Options, prompt []int32, i, samples int) *sampler.Call {
	c := &sampler.Call{Options: o, Request: sampler.Request{Prompt: prompt, ID: uint64(i), Samples: samples}}
	c.Token = func(t sampler.Token) {
		a.add(event{choice: i*samples + t.Sample, id: t.ID, logp: t.LogProb, top: t.Likeliest})
	}
	c.Done = func(r sampler.Response) {
		a.add(event{choice: i*samples + r.Sample, finish: r.Finish, stop: r.Stop})
	}
	c.Failed = func(err error) { a.add(event{err: err}) }
	return c
}

// submit begins calls of a model and returns a function that ends those that are
// still being answered.
func (e *engine) submit(ctx context.Context, m *Model, calls []*sampler.Call) (end func(), err error) {
	var refused error
	err = e.do(ctx, func() {
		if m.retired {
			refused = &failure{http.StatusNotFound, fmt.Sprintf("the adapter %q was unloaded", m.Name), "invalid_request_error", "model", "model_not_found"}
			return
		}
		for i, c := range calls {
			if refused = m.scheduler.Add(e.watched(c)); refused != nil {
				for _, c := range calls[:i] {
					m.scheduler.Cancel(c)
				}
				return
			}
		}
	})
	if err == nil && refused != nil {
		err = fmt.Errorf("openai: %w", refused)
	}
	cancel := func() {
		for _, c := range calls {
			m.scheduler.Cancel(c)
		}
	}
	return func() { _ = e.do(context.Background(), cancel) }, err
}
