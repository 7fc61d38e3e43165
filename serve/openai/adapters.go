package openai

import (
	"fmt"
	"net/http"
	"slices"

	"onering/sampler"
)

// maxLoaded is how many adapters there may be that were loaded by requests.
const maxLoaded = 64

// A loading is the body of POST /v1/load_lora_adapter of vLLM.
type loading struct {
	Name    string `json:"lora_name"`
	Path    string `json:"lora_path"`
	InPlace bool   `json:"load_inplace"` // instead of one that was loaded under the name
}

var errNoLoad = &failure{http.StatusForbidden, "this server loads no adapters: start onering serve with --lora-root DIR, the folder under which they lie", "invalid_request_error", "", ""}

// load answers POST /v1/load_lora_adapter. Nothing is decoded while the adapter is read.
func (s *Server) load(w http.ResponseWriter, r *http.Request, body []byte) error {
	var q loading
	if err := read(body, &q); err != nil {
		return err
	}
	switch {
	case s.Load == nil:
		return errNoLoad
	case q.Name == "" || q.Path == "":
		return invalid("lora_name", "there must be lora_name and lora_path")
	}
	err := s.engine.do(r.Context(), func() error { return s.add(q) })
	if err == nil {
		tell(w, "Success: LoRA adapter '%s' added successfully.", q.Name)
	}
	return err
}

// add loads an adapter. The engine calls it between two steps.
func (s *Server) add(q loading) error {
	before, _ := s.model(q.Name)
	loaded := 0
	for _, m := range s.list() {
		if m.close != nil {
			loaded++
		}
	}
	switch {
	case before != nil && before.close == nil:
		return invalid("lora_name", "%q is a name that the server began with: give the adapter another", q.Name)
	case before != nil && !q.InPlace:
		return invalid("lora_name", "The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.", q.Name)
	case before == nil && loaded >= maxLoaded:
		return invalid("lora_name", "there are %d loaded adapters, as many as there may be: unload one", loaded)
	}
	m, end, err := s.Load(q.Name, q.Path)
	if err != nil {
		return invalid("lora_path", "%v", err)
	}
	if err := m.prepare(); err != nil {
		end()
		return err
	}
	m.close = end
	if before != nil {
		s.retire(before)
	}
	s.engine.models = append(s.engine.models, m)
	s.engine.most.Add(int64(m.Decoder.Slots()))
	s.serve(append(s.list(), m))
	return nil
}

// unload answers POST /v1/unload_lora_adapter. What the adapter is answering goes on.
func (s *Server) unload(w http.ResponseWriter, r *http.Request, body []byte) error {
	var q struct {
		Name string `json:"lora_name"`
		ID   *int   `json:"lora_int_id"` // vLLM's number of an adapter, which nothing needs
	}
	if err := read(body, &q); err != nil {
		return err
	}
	if s.Load == nil {
		return errNoLoad
	}
	err := s.engine.do(r.Context(), func() error {
		m, err := s.model(q.Name)
		switch {
		case q.Name == "" || err != nil:
			return &failure{http.StatusNotFound, fmt.Sprintf("The lora adapter '%.100s' cannot be found.", q.Name), "NotFoundError", "lora_name", ""}
		case m.close == nil:
			return invalid("lora_name", "%q is a name that the server began with: it stays", q.Name)
		}
		s.retire(m)
		return nil
	})
	if err == nil {
		tell(w, "Success: LoRA adapter '%s' removed successfully.", q.Name)
	}
	return err
}

// retire has a model answer no further requests. The engine ends it when it is idle.
func (s *Server) retire(m *Model) {
	m.retired = true
	s.serve(slices.DeleteFunc(s.list(), func(x *Model) bool { return x == m }))
}

// list returns the models that requests may name.
func (s *Server) list() []*Model { return slices.Clone(*s.served.Load()) }

func (s *Server) serve(list []*Model) { s.served.Store(&list) }

// prepare makes what moves the model's sequences on.
func (m *Model) prepare() (err error) {
	if m.Sampling == (sampler.Sampling{}) {
		m.Sampling = sampler.Plain(0)
	}
	if m.scheduler, err = sampler.NewScheduler(m.Decoder); err != nil {
		return fmt.Errorf("openai: model %q: %w", m.Name, err)
	}
	return nil
}

// end ends a model that was loaded.
func (m *Model) end() {
	m.scheduler.Close()
	if m.close != nil {
		m.close()
	}
}

// step moves every model on by a token, and ends those that are retired and idle. It reports
// whether there is more to do.
func (e *engine) step() (busy bool) {
	e.models = slices.DeleteFunc(e.models, func(m *Model) bool {
		more := m.scheduler.Step()
		if busy = more || busy; more || !m.retired {
			return false
		}
		m.end()
		e.most.Add(-int64(m.Decoder.Slots()))
		return true
	})
	return busy
}

// tell writes a text.
func tell(w http.ResponseWriter, format string, args ...any) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, format, args...)
}
