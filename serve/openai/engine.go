package openai

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"onering/internal/grammar"
	"onering/sampler"
	"onering/tokenize"
)

// A Model is a model that requests choose by its name.
type Model struct {
	Name      string
	Parent    string              // for an adapter the name of its model, else ""
	Tokenizer *tokenize.Tokenizer // nil if there is none; then requests use ids only
	Template  tokenize.Template   // template for chats
	Sampling  sampler.Sampling    // the default for requests; its MaxNewTokens is for chats
	EOS       []int32
	Vocab     int             // number of ids
	Decoder   sampler.Decoder // without sequences; only the Server uses it
	Kept      int             // number of tokens of prompts that are kept for later requests; the weights must not change then
	Close     func()          // called when the Server has ended or a request unloads the model; may be nil

	grammars struct { // of the forms that requests have asked for
		sync.Mutex
		vocabulary *grammar.Vocabulary
		known      map[string]*grammar.Grammar
	}
	scheduler       *sampler.Scheduler
	loadedByRequest bool // a request loaded it
	retired         bool // it takes no further requests
}

// An engine decodes for all requests, on one goroutine.
type engine struct {
	models   []*Model
	commands chan func() // functions to run between two steps
	ended    chan struct{}

	capacity atomic.Int64 // largest number of samples at the same time
	reserved atomic.Int64

	fatal  func(error) bool // may be nil
	failed error            // the error of a call that ends the engine
}

// stopOnFatal returns a call whose error also ends the engine, if it is fatal.
func (e *engine) stopOnFatal(c *sampler.Call) *sampler.Call {
	tell := c.Failed
	c.Failed = func(err error) {
		if e.fatal != nil && e.fatal(err) {
			e.failed = err
		}
		tell(err)
	}
	return c
}

// run decodes until ctx ends or a call has failed with a fatal error, which it returns,
// and then fails the remaining requests.
func (e *engine) run(ctx context.Context) error {
	defer close(e.ended)
	defer func() {
		for _, m := range e.models {
			m.end()
		}
	}()
	for {
		select { // commands come before the next step
		case do := <-e.commands:
			do()
			continue
		case <-ctx.Done():
			return nil
		default:
		}
		busy := e.step()
		if e.failed != nil {
			return e.failed
		}
		if !busy {
			select {
			case do := <-e.commands:
				do()
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// betweenSteps runs f between two steps of the decoders and returns its error, unless the engine has ended or ctx has.
func (e *engine) betweenSteps(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case e.commands <- func() { done <- f() }:
		return <-done // the engine always runs a command
	case <-e.ended:
		return errStopping
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve reserves room for n samples; the caller takes them from reserved at the end.
func (e *engine) reserve(n int) error {
	most := e.capacity.Load()
	if int64(n) > most {
		return invalid("n", "the request asks for %d responses, and this server has room for %d at a time", n, most)
	}
	if e.reserved.Add(int64(n)) > most {
		e.reserved.Add(-int64(n))
		return errFull
	}
	return nil
}

// An answer collects the engine's events for a request until the handler takes them.
type answer struct{ sampler.Queue[event] }

// An event is a token, the end of a response, or the failure of the request.
type event struct {
	choice int
	id     int32
	logp   float32
	top    []sampler.Candidate
	cached int            // number of tokens of the prompt that were not computed
	finish sampler.Finish // "" for a token
	stop   string
	err    error
}

// blankInterval is how often a blank is sent to a client that has closed its side of the connection.
const blankInterval = 50 * time.Millisecond

// next waits for events. If a client has closed its side of the connection (ctx has ended), it may be gone or
// still wait, as "nc -N" does: next calls sendBlank until that fails, which means that the client has gone.
func (a *answer) next(ctx context.Context, sendBlank func() error) ([]event, error) {
	select {
	case <-a.Come():
	case <-ctx.Done():
		for waiting := true; waiting; {
			select {
			case <-a.Come():
				waiting = false
			case <-time.After(blankInterval):
				if err := sendBlank(); err != nil {
					return nil, err
				}
			}
		}
	}
	return a.Take(), nil
}

// newCall makes the call for prompt number i of a request, whose tokens become events of choices i*samples and on.
func (a *answer) newCall(o sampler.Options, prompt []int32, i, samples int) *sampler.Call {
	c := &sampler.Call{Options: o, Request: sampler.Request{Prompt: prompt, ID: uint64(i), Samples: samples}}
	c.Token = func(t sampler.Token) {
		a.Add(event{choice: i*samples + t.Sample, id: t.ID, logp: t.LogProb, top: t.Likeliest, cached: c.Cached})
	}
	c.Done = func(r sampler.Response) {
		a.Add(event{choice: i*samples + r.Sample, finish: r.Finish, stop: r.Stop})
	}
	c.Failed = func(err error) { a.Add(event{err: err}) }
	return c
}

// submit begins calls of a model and returns a function that cancels the unfinished ones. If one call is refused, none
// goes on.
func (e *engine) submit(ctx context.Context, m *Model, calls []*sampler.Call) (end func(), err error) {
	cancel := func() error {
		for _, c := range calls {
			m.scheduler.Cancel(c)
		}
		return nil
	}
	err = e.betweenSteps(ctx, func() error {
		if m.retired {
			return &failure{status: http.StatusNotFound, message: fmt.Sprintf("the adapter %q was unloaded", m.Name),
				kind: "invalid_request_error", param: "model", code: "model_not_found"}
		}
		for _, c := range calls {
			if err := m.scheduler.Add(e.stopOnFatal(c)); err != nil {
				cancel()
				return fmt.Errorf("openai: %w", err)
			}
		}
		return nil
	})
	return func() { _ = e.betweenSteps(context.Background(), cancel) }, err
}

// maxLoaded is the largest number of adapters that requests have loaded.
const maxLoaded = 64

// A loading is the body of POST /v1/load_lora_adapter and /v1/unload_lora_adapter of vLLM.
type loading struct {
	Name    string `json:"lora_name"`
	Path    string `json:"lora_path"`
	InPlace bool   `json:"load_inplace"` // replace an adapter that was loaded under the name
	ID      *int   `json:"lora_int_id"`  // vLLM's number of an adapter, which is ignored
}

var errNoLoad = &failure{http.StatusForbidden, "this server loads no adapters: start onering serve with " +
	"--lora-root DIR, the folder under which they lie", "invalid_request_error", "", ""}

// handleAdapters answers requests that load or unload adapters by change; done is the word for that in the answer.
// Decoding pauses meanwhile.
func (s *Server) handleAdapters(done string, change func(q loading) error) func(http.ResponseWriter, *http.Request, []byte) error {
	return func(w http.ResponseWriter, r *http.Request, body []byte) error {
		var q loading
		if err := read(body, &q); err != nil {
			return err
		}
		if s.Load == nil {
			return errNoLoad
		}
		err := s.engine.betweenSteps(r.Context(), func() error { return change(q) })
		if err == nil {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			fmt.Fprintf(w, "Success: LoRA adapter '%s' %s successfully.", q.Name, done)
		}
		return err
	}
}

// addAdapter loads an adapter as a model, perhaps in place of one of the same name. The engine calls it between two
// steps.
func (s *Server) addAdapter(q loading) error {
	old, _ := s.model(q.Name)
	count := len(slices.DeleteFunc(s.list(), func(m *Model) bool { return !m.loadedByRequest })) // of a copy of the list
	switch {
	case q.Name == "" || q.Path == "":
		return invalid("lora_name", "there must be lora_name and lora_path")
	case old != nil && !old.loadedByRequest:
		return invalid("lora_name", "%q is a name that the server began with: give the adapter another", q.Name)
	case old != nil && !q.InPlace:
		return invalid("lora_name", "The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.", q.Name)
	case old == nil && count >= maxLoaded:
		return invalid("lora_name", "there are %d loaded adapters, as many as there may be: unload one", count)
	}
	m, err := s.Load(q.Name, q.Path)
	if err != nil {
		return invalid("lora_path", "%v", err)
	}
	if err := m.prepare(); err != nil {
		m.Close()
		return err
	}
	m.loadedByRequest = true
	if old != nil {
		s.retire(old) // only now: an adapter that cannot be loaded replaces none
	}
	s.engine.models = append(s.engine.models, m)
	s.engine.capacity.Add(int64(m.Decoder.Slots()))
	s.setModels(append(s.list(), m))
	return nil
}

// removeAdapter unloads an adapter. Its unfinished requests are still answered.
func (s *Server) removeAdapter(q loading) error {
	m, err := s.model(q.Name)
	switch {
	case q.Name == "" || err != nil:
		return &failure{http.StatusNotFound, fmt.Sprintf("The lora adapter '%.100s' cannot be found.", q.Name), "NotFoundError", "lora_name", ""}
	case !m.loadedByRequest:
		return invalid("lora_name", "%q is a name that the server began with: it stays", q.Name)
	}
	s.retire(m)
	return nil
}

// retire stops new requests for a model. The engine closes it when it is idle.
func (s *Server) retire(m *Model) {
	m.retired = true
	s.setModels(slices.DeleteFunc(s.list(), func(x *Model) bool { return x == m }))
}

// list returns the models that requests may name.
func (s *Server) list() []*Model { return slices.Clone(*s.served.Load()) }

func (s *Server) setModels(list []*Model) { s.served.Store(&list) }

// prepare makes the model's Scheduler.
func (m *Model) prepare() (err error) {
	if m.Sampling == (sampler.Sampling{}) {
		m.Sampling = sampler.Plain(0)
	}
	if m.scheduler, err = sampler.NewScheduler(m.Decoder); err != nil {
		return fmt.Errorf("openai: model %q: %w", m.Name, err)
	}
	if m.Kept > 0 {
		m.scheduler.KeepPrefixes(m.Kept)
	}
	return nil
}

// end closes a model.
func (m *Model) end() {
	m.scheduler.Close(errStopping)
	if m.Close != nil {
		m.Close()
	}
}

// step extends every model's sequences by a token, and closes idle retired models. It
// reports whether there is more to do.
func (e *engine) step() (busy bool) {
	e.models = slices.DeleteFunc(e.models, func(m *Model) bool {
		more := m.scheduler.Step()
		busy = more || busy
		if more || !m.retired {
			return false
		}
		m.end()
		e.capacity.Add(-int64(m.Decoder.Slots()))
		return true
	})
	return busy
}
